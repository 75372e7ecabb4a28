// A pattern at which a tokenizer cuts or replaces: a text, a class of code points, or a regular
// expression.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bowline_text.h"
#include "text/description.h"

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
  // Matches runs of word characters, and runs of other characters except white space.
  static Pattern of_words();
  static Pattern of_text(std::string text);
  // The expressions of GPT-2, Llama 3 and Qwen are recognized by their text and matched by
  // hand-written code. `plain`: always uses PCRE2.
  // Errors  bad_file: the expression does not compile, or is too large.
  static Result<Pattern> of_expression(std::string_view expression, bool plain = false);
  static Result<Pattern> of(const PatternText& pattern) {
    return pattern.is_expression ? of_expression(pattern.text)
                                 : Result<Pattern>(of_text(pattern.text));
  }
  // The expression of GPT-2.
  static Pattern gpt2();

  // Appends ranges that cover `text`: the matches and the text between them. Errors  bad_file: the
  // expression exceeds its limits.
  Status find(std::string_view text, std::vector<Range>& out) const;

 private:
  using Find = std::function<Status(std::string_view, std::vector<Range>&)>;
  explicit Pattern(Find find) : find_(std::move(find)) {}
  Find find_;
};

// The expressions that have hand-written code. A test compares this code with PCRE2.
std::vector<std::string_view> known_expressions();

}  // namespace bowline::text
