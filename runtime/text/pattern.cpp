#include "text/pattern.h"

#include <pcre2.h>

#include <array>

#include "base/escape.h"
#include "text/oniguruma.h"
#include "text/require.h"
#include "text/unicode.h"

namespace bowline::text {
namespace {

constexpr size_t kLongestExpression = 1 << 16;
// Limits for match steps. Usual patterns take a few steps per byte. A search that exceeds `kCheap`
// is repeated with the budget `kDear`, which is shared by the whole text.
constexpr uint32_t kCheap = 2000;
constexpr uint64_t kDear = 20'000'000;
constexpr uint64_t kDearPerByte = 200;

// ---- hand-written matchers

enum Class : uint8_t { kOther, kLetter, kNumber, kSpace };

constexpr auto kAscii = [] {
  std::array<Class, 128> out{};
  for (int c = 0; c < 128; ++c) {
    const int low = c | 0x20;
    out[static_cast<size_t>(c)] = low >= 'a' && low <= 'z'               ? kLetter
                                  : c >= '0' && c <= '9'                 ? kNumber
                                  : c == ' ' || (c >= '\t' && c <= '\r') ? kSpace
                                                                         : kOther;
  }
  return out;
}();

// Returns the class of the code point at `at` and advances `at`.
Class class_of(std::string_view text, size_t& at) {
  const auto lead = static_cast<uint8_t>(text[at]);
  if (lead < 0x80) {
    ++at;
    return kAscii[lead];
  }
  const char32_t c = next_of(text, at);
  return is_letter(c) ? kLetter : is_number(c) ? kNumber : is_white_space(c) ? kSpace : kOther;
}

// End of a run of class `k` from `at`, at most `most` code points long.
size_t run(std::string_view text, size_t at, Class k, size_t most = SIZE_MAX) {
  for (size_t next = at; most > 0 && next < text.size(); --most) {
    if (class_of(text, next) != k) {
      break;
    }
    at = next;
  }
  return at;
}

constexpr std::string_view kLineEnds = "\r\n";
bool is_line_end(char c) { return c == '\r' || c == '\n'; }

// Length of 's 't 're 've 'm 'll 'd at `at`, or 0.
size_t contraction(std::string_view text, size_t at, bool any_case) {
  const std::string_view rest = text.substr(at + 1, 2);
  const auto letter = [&](size_t i) {
    const char c = i < rest.size() ? rest[i] : '\0';
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  };
  const char a = letter(0);
  const char b = letter(1);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') {
    return 2;
  }
  if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) {
    return 3;
  }
  return any_case && rest == "\xC5\xBF" ? 3 : 0;  // U+017F is an s if case is ignored
}

// White space: \s+(?!\S)|\s+. At the end of the text it takes all white space, else all but the
// last, which belongs to the next word.
size_t white_space(std::string_view text, size_t at) {
  const size_t end = run(text, at, kSpace);
  if (end == text.size()) {
    return end;
  }
  size_t last = end;
  (void)previous_of(text, last);
  return last > at ? last : end;
}

// Covers a text by matches, in order, and the text between them.
class Cover {
 public:
  Cover(std::string_view text, std::vector<Range>& out) : text_(text), out_(out) {}
  void add(size_t begin, size_t end) {
    fill(begin);
    out_.push_back({begin, end, true});
    end_ = end;
  }
  void finish() { fill(text_.size()); }
  size_t end() const { return end_; }  // of the last match

 private:
  void fill(size_t end) {
    if (end_ < end) {
      out_.push_back({end_, end, false});
    }
  }
  std::string_view text_;
  std::vector<Range>& out_;
  size_t end_ = 0;
};

struct Words {
  bool any_case = false;  // of contractions
  // Llama 3 and Qwen: line ends are separate, and a punctuation mark joins the word.
  bool lines = false;
  size_t digits = SIZE_MAX;  // per token
};

// End of the GPT-2 word at `at`.
size_t gpt2_word(std::string_view text, size_t at) {
  size_t next = at;
  Class k = class_of(text, next);
  if (text[at] == ' ' && next < text.size()) {  // the space joins the word behind it
    size_t behind = next;
    k = class_of(text, behind);
  }
  return k == kSpace ? white_space(text, at) : run(text, next, k);
}

// End of the Llama 3 word at `at`.
size_t line_word(std::string_view text, size_t at, const Words& w) {
  size_t next = at;
  const Class k = class_of(text, next);
  if (k == kLetter) {
    return run(text, next, kLetter);
  }
  if (k == kNumber) {
    return run(text, next, kNumber, w.digits - 1);
  }
  Class second = kSpace;
  size_t after = next;
  if (next < text.size()) {
    second = class_of(text, after);
  }
  if (second == kLetter && !is_line_end(text[at])) {
    return run(text, after, kLetter);
  }
  if (k == kOther || (text[at] == ' ' && second == kOther)) {
    const size_t end = run(text, next, kOther);
    return std::min(text.find_first_not_of(kLineEnds, end), text.size());
  }
  const std::string_view spaces = text.substr(at, run(text, at, kSpace) - at);
  const size_t last = spaces.find_last_of(kLineEnds);
  return last == std::string_view::npos ? white_space(text, at) : at + last + 1;
}

void find_words(std::string_view text, const Words& w, std::vector<Range>& out) {
  for (size_t at = 0; at < text.size();) {
    const size_t short_form = text[at] == '\'' ? contraction(text, at, w.any_case) : 0;
    const size_t end = short_form > 0 ? at + short_form
                       : w.lines      ? line_word(text, at, w)
                                      : gpt2_word(text, at);
    out.push_back({at, end, true});
    at = end;
  }
}

struct Known {
  std::string_view expression;
  Words words;
};
constexpr Known kKnown[] = {
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", {}},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     {true, true, 3}},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     {true, true, 1}},
};

// ---- PCRE2

struct Compiled {
  ~Compiled() { pcre2_code_free(code); }
  pcre2_code* code = nullptr;
};
struct Match {
  ~Match() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
  }
  pcre2_match_data* data = nullptr;
  pcre2_match_context* context = nullptr;
};

std::string error_text(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  const int n = pcre2_get_error_message(error, text.data(), text.size());
  return n > 0 ? std::string(reinterpret_cast<const char*>(text.data()), static_cast<size_t>(n))
               : "error " + std::to_string(error);
}

// One search from `at`, with limits. `dear`: remaining step budget of this text beyond the cheap
// steps.
Result<int> search(const Compiled& code, const Match& m, std::string_view text, size_t at,
                   uint64_t& dear) {
  const auto once = [&](uint32_t limit) {
    pcre2_set_match_limit(m.context, limit);
    return pcre2_match(code.code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                       PCRE2_NO_UTF_CHECK, m.data, m.context);
  };
  int found = once(kCheap);
  if (found == PCRE2_ERROR_MATCHLIMIT && dear > kCheap) {
    const auto limit = static_cast<uint32_t>(std::min<uint64_t>(dear / 2, UINT32_MAX));
    found = once(limit);
    // PCRE2 does not report the steps of a search. A search that hits the limit used all of them;
    // another search used a few.
    dear -= found == PCRE2_ERROR_MATCHLIMIT ? dear : std::min<uint64_t>(dear, limit / 64 + kCheap);
  }
  BOWLINE_REQUIRE_FILE(
      found >= PCRE2_ERROR_NOMATCH,
      "A regular expression of the tokenizer exceeds its limits at byte {} of {}: {}.", at,
      text.size(), error_text(found));
  return found;
}

Status find_expression(const Compiled& code, std::string_view text, std::vector<Range>& out) {
  Match m;
  m.data = pcre2_match_data_create_from_pattern(code.code, nullptr);
  m.context = pcre2_match_context_create(nullptr);
  BOWLINE_REQUIRE_CODE(m.data != nullptr && m.context != nullptr, bowline::Code::out_of_memory,
                       "Out of memory.");
  pcre2_set_depth_limit(m.context, 100'000);
  pcre2_set_heap_limit(m.context, 64 << 10);  // KiB
  uint64_t dear = kDear + kDearPerByte * text.size();
  Cover cover(text, out);
  bool any = false;  // a match was found
  for (size_t at = 0; at <= text.size() && !text.empty();) {
    BOWLINE_TRY_ASSIGN(const int found, search(code, m, text, at, dear));
    if (found < 0) {
      break;
    }
    const PCRE2_SIZE* place = pcre2_get_ovector_pointer(m.data);
    const size_t begin = place[0];
    const size_t end = place[1];
    // An empty match cuts, except directly after a match.
    if (end <= begin && any && begin == cover.end()) {
      at = begin + (begin < text.size() ? length_of(text[begin]) : 1);
      continue;
    }
    at = std::max(begin, end);
    cover.add(begin, at);
    any = true;
  }
  cover.finish();
  return {};
}

}  // namespace

Pattern Pattern::of_class(Class in) {
  return Pattern([in](std::string_view text, std::vector<Range>& out) -> Status {
    Cover cover(text, out);
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      if (in(next_of(text, at))) {
        cover.add(begin, at);
      }
    }
    cover.finish();
    return {};
  });
}

Pattern Pattern::of_words() {
  return Pattern([](std::string_view text, std::vector<Range>& out) -> Status {
    const auto kind = [](char32_t c) { return is_word(c) ? 2 : is_white_space(c) ? 0 : 1; };
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      const int k = kind(next_of(text, at));
      for (size_t next = at; next < text.size() && kind(next_of(text, next)) == k;) {
        at = next;
      }
      out.push_back({begin, at, k != 0});
    }
    return {};
  });
}

Pattern Pattern::of_text(std::string wanted) {
  return Pattern([wanted](std::string_view text, std::vector<Range>& out) -> Status {
    Cover cover(text, out);
    while (!wanted.empty()) {
      const size_t begin = text.find(wanted, cover.end());
      if (begin == std::string_view::npos) {
        break;
      }
      cover.add(begin, begin + wanted.size());
    }
    cover.finish();
    return {};
  });
}

Pattern Pattern::gpt2() { return of_expression(kKnown[0].expression).value(); }

Result<Pattern> Pattern::of_expression(std::string_view expression, bool plain) {
  const auto* const known = std::ranges::find(kKnown, expression, &Known::expression);
  if (known != std::end(kKnown) && !plain) {
    return Pattern([words = known->words](std::string_view text, std::vector<Range>& out) {
      find_words(text, words, out);
      return Status();
    });
  }
  BOWLINE_REQUIRE_FILE(expression.size() <= kLongestExpression,
                       "A regular expression has {} bytes, more than {}.", expression.size(),
                       kLongestExpression);
  const auto code = std::make_shared<Compiled>();
  int error = 0;
  PCRE2_SIZE place = 0;
  BOWLINE_TRY_ASSIGN(const std::string spelled, pcre2_of_oniguruma(expression));
  // \C would match a part of a code point.
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(spelled.data()), spelled.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                             &error, &place, nullptr);
  BOWLINE_REQUIRE_FILE(code->code != nullptr,
                       "The regular expression \"{}\" does not compile: {} (byte {}).",
                       escaped(expression.substr(0, 200)), error_text(error), place);
  return Pattern([code](std::string_view text, std::vector<Range>& out) {
    return find_expression(*code, text, out);
  });
}

Status Pattern::find(std::string_view text, std::vector<Range>& out) const {
  return find_(text, out);
}

std::vector<std::string_view> known_expressions() {
  std::vector<std::string_view> out;
  for (const Known& known : kKnown) {
    out.push_back(known.expression);
  }
  return out;
}

}  // namespace bowline::text
