// What a tokenizer cuts or replaces at: a text, a class of code points, or a regular expression.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bowline_text.h"

namespace bowline::text {

struct Range {
  size_t begin = 0;
  size_t end = 0;
  bool match = false;
  bool operator==(const Range&) const = default;
};

class Pattern {
 public:
  using Class = bool (*)(char32_t);

  static Pattern of_class(Class in);
  // Runs of word characters, and runs of what is neither those nor white space.
  static Pattern of_words();
  static Pattern of_text(std::string text);
  // The patterns of GPT-2, Llama 3 and Qwen are known by their text and matched without the
  // library; `plain`: they are not. Errors bad_file: it does not compile, or is too large.
  static Result<Pattern> of_expression(std::string_view expression, bool plain = false);
  // The expression of GPT-2.
  static Pattern gpt2();

  // Appends ranges that cover `text`: matches and what lies between them. Errors  bad_file: the
  // expression exceeds its limits.
  Status find(std::string_view text, std::vector<Range>& out) const;

 private:
  using Find = std::function<Status(std::string_view, std::vector<Range>&)>;
  explicit Pattern(Find find) : find_(std::move(find)) {}
  Find find_;
};

// The expressions that are matched by hand, for the test that compares them with the library.
std::vector<std::string_view> known_expressions();

}  // namespace bowline::text
