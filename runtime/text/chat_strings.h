// String functions of Python, by code points. All texts are valid UTF-8.
#pragma once

#include <algorithm>
#include <optional>

#include "text/chat_value.h"

namespace bowline::text::chat {

// Returns a list of texts with one code point each.
Result<Value> code_points(Heap& heap, std::string_view text);
int64_t length(std::string_view text);
// Byte offset of code point `n`; the length of the text if it has fewer code points.
size_t offset_of(std::string_view text, int64_t n);

inline bool is_among(std::string_view text, std::initializer_list<std::string_view> texts) {
  return std::ranges::find(texts, text) != texts.end();
}

// ASCII.
constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
constexpr bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }

// str.isspace() for the first code point of a text that is not empty.
bool begins_with_space(std::string_view text);

enum class Side : uint8_t { both, left, right };
// str.strip(chars); without chars it strips white space.
std::string_view strip(std::string_view text, Side side,
                       std::optional<std::string_view> chars = std::nullopt);
// str.split(separator, most); without a separator it splits at runs of white space. most < 0: no
// limit.
Result<std::vector<Value>> split(Heap& heap, std::string_view text,
                                 std::optional<std::string_view> separator, int64_t most,
                                 bool from_right);
// str.replace(from, to, most).
Result<std::string> replace(Heap& heap, std::string_view text, std::string_view from,
                            std::string_view to, int64_t most);
Result<std::vector<Value>> split_lines(Heap& heap, std::string_view text);

// title: as str.title(), a letter is upper case if no letter precedes it. words: as the filter
// `title` of Jinja, after white space, a dash or an opening bracket.
enum class Case : uint8_t { lower, upper, title, words, capitalize };
// Errors  bad_file: the text is not ASCII, which is not supported.
Result<Value> with_case(Heap& heap, std::string_view text, Case to);

// The indices of a[start:stop:step] for a sequence of `size` elements.
struct Slice {
  std::optional<int64_t> start;
  std::optional<int64_t> stop;
  int64_t step = 1;
};
std::vector<size_t> sliced(const Slice& slice, size_t size);

}  // namespace bowline::text::chat
