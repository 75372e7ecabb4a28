#include "conformance/expression.h"

#include <cctype>
#include <charconv>

namespace bowline::conformance {
namespace {

// Recursive descent: sum of products of atoms.
class Reader {
 public:
  Reader(std::string_view text, const Numbers& numbers) : rest_(text), numbers_(numbers) {}

  Result<int64_t> all() {
    BOWLINE_TRY_ASSIGN(const int64_t value, sum());
    skip();
    BOWLINE_REQUIRE(rest_.empty(), "\"{}\" is left over.", rest_);
    return value;
  }

 private:
  Result<int64_t> sum() {
    BOWLINE_TRY_ASSIGN(int64_t value, product());
    for (;;) {
      if (take('+')) {
        BOWLINE_TRY_ASSIGN(const int64_t term, product());
        value += term;
      } else if (take('-')) {
        BOWLINE_TRY_ASSIGN(const int64_t term, product());
        value -= term;
      } else {
        return value;
      }
    }
  }

  Result<int64_t> product() {
    BOWLINE_TRY_ASSIGN(int64_t value, atom());
    for (;;) {
      if (take('*')) {
        BOWLINE_TRY_ASSIGN(const int64_t factor, atom());
        value *= factor;
      } else if (take('/')) {
        BOWLINE_TRY_ASSIGN(const int64_t divisor, atom());
        BOWLINE_REQUIRE(divisor != 0, "A division by zero.");
        value /= divisor;
      } else {
        return value;
      }
    }
  }

  Result<int64_t> atom() {
    if (take('-')) {
      BOWLINE_TRY_ASSIGN(const int64_t value, atom());
      return -value;
    }
    if (take('(')) {
      BOWLINE_TRY_ASSIGN(const int64_t value, sum());
      BOWLINE_REQUIRE(take(')'), "A parenthesis is not closed before \"{}\".", rest_);
      return value;
    }
    skip();
    int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error == std::errc()) {
      rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
      return value;
    }
    size_t n = 0;
    while (n < rest_.size() &&
           (std::isalnum(static_cast<unsigned char>(rest_[n])) != 0 || rest_[n] == '_')) {
      ++n;
    }
    const auto it = numbers_.find(rest_.substr(0, n));
    BOWLINE_REQUIRE(n > 0 && it != numbers_.end(), "\"{}\" is no number and no variable.", rest_);
    rest_.remove_prefix(n);
    return it->second;
  }

  void skip() {
    while (!rest_.empty() && rest_[0] == ' ') {
      rest_.remove_prefix(1);
    }
  }
  bool take(char c) {
    skip();
    if (rest_.empty() || rest_[0] != c) {
      return false;
    }
    rest_.remove_prefix(1);
    return true;
  }

  std::string_view rest_;
  const Numbers& numbers_;
};

}  // namespace

Result<int64_t> evaluate(std::string_view text, const Numbers& numbers) {
  return Reader(text, numbers).all();
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t' || text.front() == '\r')) {
    text.remove_prefix(1);
  }
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) {
    text.remove_suffix(1);
  }
  return text;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> out;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == separator && depth == 0)) {
      const std::string_view part = trim(text.substr(begin, i - begin));
      if (!part.empty()) {
        out.push_back(part);
      }
      begin = i + 1;
    } else if (text[i] == '[' || text[i] == '(' || text[i] == '{') {
      ++depth;
    } else if (text[i] == ']' || text[i] == ')' || text[i] == '}') {
      --depth;
    }
  }
  return out;
}

}  // namespace bowline::conformance
