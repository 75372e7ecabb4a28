#include "text/oniguruma.h"

#include <pcre2.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/boundary.h"

namespace bowline::text {
namespace {

// PCRE2 counts U+180E, too, which lost the property in Unicode 6.3.
constexpr std::string_view kSpaceElements =
    R"(\t-\r\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
// Letters with their marks, decimal digits and connectors.
constexpr std::string_view kWordElements = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
// Outside brackets and at word boundaries, Oniguruma also treats these Latin-1 superscripts and
// fractions as word characters.
constexpr std::string_view kMoreWordElements = R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
constexpr std::string_view kHexElements = "0-9A-Fa-f";

struct Named {
  std::string_view name, elements;
};
// POSIX brackets and properties of the same names. PCRE2 has the others, with the same elements.
constexpr Named kNamed[] = {
    {"alpha", R"(\p{Alphabetic})"},
    {"alnum", R"(\p{Alphabetic}\p{Nd})"},
    {"upper", R"(\p{Uppercase})"},
    {"lower", R"(\p{Lowercase})"},
    {"digit", R"(\p{Nd})"},
    {"space", kSpaceElements},
    {"punct", R"(\p{P}\p{S})"},
    {"word", kWordElements},
    {"xdigit", kHexElements},
    {"blank", R"(\t\p{Zs})"},
    {"cntrl", R"(\p{Cc})"},
    {"graph", R"(\p{L}\p{M}\p{N}\p{P}\p{S}\p{Cf}\p{Co})"},
    {"print", R"(\p{L}\p{M}\p{N}\p{P}\p{S}\p{Cf}\p{Co}\p{Zs})"},
};

const Named* named(std::string_view name) {
  std::string small(name);
  std::ranges::transform(small, small.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  });
  const auto found = std::ranges::find(kNamed, std::string_view(small), &Named::name);
  return found == std::end(kNamed) ? nullptr : found;
}

bool compiles(const std::string& expression) {
  int error = 0;
  PCRE2_SIZE place = 0;
  pcre2_code* const code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()),
                                         expression.size(), PCRE2_UTF, &error, &place, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

// A bracket class: [elements] or [^elements].
struct ElementClass {
  std::string elements;
  bool negated = false;

  std::string text() const { return (negated ? "[^" : "[") + elements + "]"; }
};

// The union of a bracket class with other classes.
struct Union {
  std::string elements;
  std::vector<std::string> others;  // expressions that match one code point each

  void add(const ElementClass& c) {
    if (c.negated) {
      others.push_back(c.text());
    } else {
      elements += c.elements;
    }
  }

  std::string text(bool negated) const {
    if (elements.empty() && others.empty()) {
      return negated ? "(?s:.)" : "(?!)";
    }
    if (others.empty()) {
      return ElementClass{elements, negated}.text();
    }
    if (!negated && elements.empty() && others.size() == 1) {
      return others[0];
    }
    std::string any;
    if (!elements.empty()) {
      any = "[" + elements + "]";
    }
    for (const std::string& other : others) {
      any += (any.empty() ? "" : "|") + other;
    }
    return negated ? "(?:(?!" + any + ")(?s:.))" : "(?:" + any + ")";
  }
};

class Translator {
 public:
  explicit Translator(std::string_view from) : from_(from) {}

  Result<std::string> run() {
    while (at_ < from_.size()) {
      BOWLINE_TRY(step());
    }
    close_options();
    return std::move(out_);
  }

 private:
  // Maximum nesting depth of classes and groups.
  static constexpr int kDeepest = 50;

  char peek(size_t ahead = 0) const {
    return at_ + ahead < from_.size() ? from_[at_ + ahead] : '\0';
  }
  bool starts_with(std::string_view text) const { return from_.substr(at_).starts_with(text); }
  void copy(size_t n) {
    out_ += from_.substr(at_, n);
    at_ += n;
  }
  Status refused(std::string_view what) const {
    return Status(Code::unsupported,
                  format("\"{}\" in a regular expression is not supported.", what));
  }
  void close_options() {
    out_.append(static_cast<size_t>(options_.back()), ')');
    options_.back() = 0;
  }

  Status step() {
    switch (peek()) {
      case '\\':
        return escape();
      case '[': {
        ++at_;
        BOWLINE_TRY_ASSIGN(const std::string set, bracket(0));
        out_ += set;
        return {};
      }
      case '(':
        return group();
      case ')':
        if (options_.size() > 1) {
          close_options();
          options_.pop_back();
        }
        copy(1);
        return {};
      case '{':
        return interval();
      default:
        copy(1);
        return {};
    }
  }

  Status escape() {
    const char c = peek(1);
    if (c != '\0' && std::string_view("QEKNo").find(c) != std::string_view::npos) {
      return refused(from_.substr(at_, 2));
    }
    if (c == 'b' || c == 'B') {
      at_ += 2;
      out_ += boundary(c == 'b');
      return {};
    }
    BOWLINE_TRY_ASSIGN(std::optional<ElementClass> set, class_of_escape());
    if (!set) {
      copy(2);
      return {};
    }
    set->elements += set->elements == kWordElements ? kMoreWordElements : "";
    out_ += set->text();
    return {};
  }

  // Returns an expression for \b, or for \B if `is_one` is false.
  static std::string boundary(bool is_one) {
    const std::string word =
        "[" + std::string(kWordElements) + std::string(kMoreWordElements) + "])";
    const std::string_view behind = is_one ? "(?!" : "(?=", or_behind = is_one ? "(?=" : "(?!";
    return format("(?:(?<={}{}{}|(?<!{}{}{})", word, behind, word, word, or_behind, word);
  }

  // Reads an escape that is a class. Empty: the escape is not a class that differs, and is not
  // consumed.
  Result<std::optional<ElementClass>> class_of_escape() {
    const char c = peek(1);
    const std::string_view spelled = c == 's' || c == 'S'   ? kSpaceElements
                                     : c == 'w' || c == 'W' ? kWordElements
                                     : c == 'h' || c == 'H' ? kHexElements
                                     : c == 'v'             ? std::string_view(R"(\x0b)")
                                                            : std::string_view();
    if (!spelled.empty()) {
      at_ += 2;
      return std::optional(ElementClass{std::string(spelled), c == 'S' || c == 'W' || c == 'H'});
    }
    if (c != 'p' && c != 'P') {
      return std::optional<ElementClass>();
    }
    const size_t end = from_.find('}', at_);
    if (peek(2) != '{' || end == std::string_view::npos) {
      return refused(from_.substr(at_, 3));
    }
    ElementClass out = named_class(from_.substr(at_ + 3, end - at_ - 3), false);
    out.negated = out.negated != (c == 'P');
    at_ = end + 1;
    return std::optional(out);
  }

  // Returns the class of a POSIX bracket or a property. A leading ^ negates it.
  static ElementClass named_class(std::string_view name, bool is_posix) {
    const bool negated = name.starts_with('^');
    name.remove_prefix(negated ? 1 : 0);
    const Named* const set = named(name);
    if (set != nullptr) {
      // [[:punct:]] also contains symbols; \p{Punct} does not.
      const bool is_property = !is_posix && set->name == "punct";
      return {is_property ? R"(\p{P})" : std::string(set->elements), negated};
    }
    // Without "script=", PCRE2 would use script extensions.
    const std::string script = format("\\p{sc:{}}", name);
    return {is_posix                              ? format("[:{}:]", name)
            : name.size() > 2 && compiles(script) ? script
                                                  : format("\\p{{}}", name),
            negated};
  }

  // Reads a bracket class after its opening bracket, including the closing bracket.
  Result<std::string> bracket(int depth) {
    if (depth > kDeepest) {
      return refused("[");
    }
    const bool negated = peek() == '^';
    at_ += negated ? 1 : 0;
    std::vector<Union> parts(1);  // parts of an intersection
    for (bool first = true;; first = false) {
      if (at_ >= from_.size()) {
        return Status(Code::bad_file, "A class of a regular expression has no end.");
      }
      Union& part = parts.back();
      if (peek() == ']' && !first) {
        ++at_;
        break;
      }
      if (starts_with("&&")) {
        at_ += 2;
        parts.emplace_back();
        continue;
      }
      BOWLINE_TRY(element(part, depth));
    }
    if (parts.size() == 1) {
      return parts[0].text(negated);
    }
    std::string both = "(?:";
    for (size_t i = 0; i < parts.size(); ++i) {
      const bool last = i + 1 == parts.size();
      both += last ? parts[i].text(false) : "(?=" + parts[i].text(false) + ")";
    }
    both += ")";
    return negated ? "(?:(?!" + both + ")(?s:.))" : both;
  }

  Status element(Union& part, int depth) {
    std::optional<ElementClass> set;
    const size_t end = starts_with("[:") ? from_.find(":]", at_ + 2) : std::string_view::npos;
    if (end != std::string_view::npos && end - at_ < 12) {
      set = named_class(from_.substr(at_ + 2, end - at_ - 2), true);
      at_ = end + 2;
    } else if (peek() == '[') {
      ++at_;
      BOWLINE_TRY_ASSIGN(part.others.emplace_back(), bracket(depth + 1));
      return {};
    } else if (peek() == '\\') {
      BOWLINE_TRY_ASSIGN(set, class_of_escape());
    }
    if (set) {
      part.add(*set);
      if (peek() == '-') {  // a hyphen after a class is a literal
        part.elements += "\\-";
        ++at_;
      }
      return {};
    }
    const size_t n = peek() == '\\' ? 2 : 1;
    // A leading ] is an element.
    part.elements += peek() == ']' ? std::string_view("\\]") : from_.substr(at_, n);
    at_ = std::min(at_ + n, from_.size());
    return {};
  }

  Status group() {
    if (starts_with("(*")) {
      return refused("(*");
    }
    if (starts_with("(?#")) {
      const size_t end = from_.find(')', at_);
      copy(end == std::string_view::npos ? from_.size() - at_ : end - at_ + 1);
      return {};
    }
    if (starts_with("(?") && (peek(2) == '-' || (peek(2) >= 'a' && peek(2) <= 'z'))) {
      return options();
    }
    copy(1);
    options_.push_back(0);
    return {};
  }

  // (?i) up to the end of the enclosing group, with all of its alternatives, or (?i: ...). Option m
  // is s in PCRE2.
  Status options() {
    size_t end = at_ + 2;
    std::string flags;
    for (; end < from_.size() && from_[end] != ')' && from_[end] != ':'; ++end) {
      const char c = from_[end];
      if (c != 'i' && c != 'm' && c != 'x' && c != '-') {
        return refused(from_.substr(at_, end - at_ + 1));
      }
      flags += c == 'm' ? 's' : c;
    }
    if (flags.find('x') != std::string::npos) {
      return refused("(?x");
    }
    out_ += "(?" + flags + ":";
    if (end < from_.size() && from_[end] == ')') {
      ++options_.back();
    } else {
      options_.push_back(0);
    }
    at_ = std::min(end + 1, from_.size());
    return {};
  }

  // {,n}, and a quantifier after an interval: Oniguruma repeats the interval, PCRE2 would change
  // it.
  Status interval() {
    const size_t end = std::min(from_.find_first_not_of("0123456789,", at_ + 1), from_.size());
    const std::string_view inside = from_.substr(at_ + 1, end - at_ - 1);
    if (inside.empty() || inside == "," || end >= from_.size() || from_[end] != '}') {
      copy(1);
      return {};
    }
    const char behind = end + 1 < from_.size() ? from_[end + 1] : '\0';
    if (behind == '+' || (behind == '?' && inside.find(',') == std::string_view::npos)) {
      return refused(from_.substr(at_, end - at_ + 2));
    }
    out_ += inside.starts_with(',') ? "{0" : "{";
    out_.append(inside).append("}");
    at_ = end + 1;
    return {};
  }

  std::string_view from_;
  size_t at_ = 0;
  std::string out_;
  std::vector<int> options_ = {0};  // options that end with each open group
};

}  // namespace

Result<std::string> pcre2_of_oniguruma(std::string_view expression) {
  return Translator(expression).run();
}

}  // namespace bowline::text
