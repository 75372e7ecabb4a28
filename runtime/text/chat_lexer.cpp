// Converts a template to tokens, and removes the white space that tags trim.
#include <charconv>

#include "base/escape.h"
#include "base/parse.h"
#include "base/utf8.h"
#include "text/chat_strings.h"
#include "text/chat_template.h"
#include "text/unicode.h"

namespace bowline::text::chat {
namespace {

bool is_name_begin(char c) { return is_lower(c) || is_upper(c) || c == '_'; }

size_t spaces_of(std::string_view text) { return text.size() - strip(text, Side::left).size(); }

class Lexer {
 public:
  explicit Lexer(Tree& tree) : tree_(tree), rest_(tree.source) {}

  Result<std::vector<Token>> lex() {
    while (!rest_.empty()) {
      const Status read = next();
      BOWLINE_TRY(with_line(read, line_));
    }
    add(Token::Kind::end, {});
    return std::move(out_);
  }

 private:
  // Reads text up to a tag, and the tag.
  Status next() {
    const size_t at = next_tag();
    if (at == std::string_view::npos) {
      take(Token::Kind::data, rest_.size());
      return {};
    }
    const char kind = rest_[at + 1], sign = sign_at(at + 2);
    add(Token::Kind::data, trimmed(rest_.substr(0, at), sign, kind != '{'));
    skip(at + 2 + (sign == ' ' ? 0 : 1));
    if (kind == '#') {
      return comment();
    }
    if (const size_t end = kind == '%' ? end_of_tag(0, "raw", false) : 0) {
      skip(end);
      return raw();
    }
    return tag(kind == '{');
  }

  size_t next_tag() const {
    for (size_t at = 0; (at = rest_.find('{', at)) != std::string_view::npos; ++at) {
      if (is_among(rest_.substr(at + 1, 1), {"{", "%", "#"})) {
        return at;
      }
    }
    return std::string_view::npos;
  }

  // Returns the sign of a tag for white space: '-', '+', or ' ' if there is none.
  char sign_at(size_t at) const {
    return at < rest_.size() && (rest_[at] == '-' || rest_[at] == '+') ? rest_[at] : ' ';
  }

  // Trims the data before a tag with this sign.
  std::string_view trimmed(std::string_view data, char sign, bool is_block) const {
    return sign == '-'               ? strip(data, Side::right)
           : sign == ' ' && is_block ? without_indent(data)
                                     : data;
  }

  // Removes the white space of a line before a block tag, if the line has nothing else.
  std::string_view without_indent(std::string_view data) const {
    const size_t newline = data.rfind('\n');
    const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
    const bool is_line = line > 0 || line_begins_;
    return is_line && strip(data.substr(line), Side::left).empty() ? data.substr(0, line) : data;
  }

  // Length of the end of a tag at `at`, with the white space that it trims; 0: no tag ends here.
  size_t end_at(size_t at, std::string_view end, bool trims) const {
    const std::string_view text = rest_.substr(at);
    if (text.starts_with('-') && text.substr(1).starts_with(end)) {
      return 3 + spaces_of(text.substr(3));
    }
    if (trims && text.starts_with('+') && text.substr(1).starts_with(end)) {
      return 3;
    }
    if (text.starts_with(end)) {
      return trims && text.substr(2).starts_with('\n') ? 3 : 2;
    }
    return 0;
  }

  Status comment() {
    for (size_t at = 0; at < rest_.size(); ++at) {
      if (const size_t end = end_at(at, "#}", true)) {
        skip(at + end);
        return {};
      }
    }
    return failure("A comment has no end.");
  }

  // Returns the end of a block tag if it has only this name. `at`: after the start of the tag. 0:
  // it is another tag.
  size_t end_of_tag(size_t at, std::string_view name, bool trims) const {
    at += spaces_of(rest_.substr(at));
    if (!rest_.substr(at).starts_with(name)) {
      return 0;
    }
    at += name.size();
    at += spaces_of(rest_.substr(at));
    const size_t end = end_at(at, "%}", trims);
    return end == 0 ? 0 : at + end;
  }

  Status raw() {
    for (size_t at = 0; (at = rest_.find("{%", at)) != std::string_view::npos; ++at) {
      const char sign = sign_at(at + 2);
      if (const size_t end = end_of_tag(at + (sign == ' ' ? 2 : 3), "endraw", true)) {
        add(Token::Kind::data, trimmed(rest_.substr(0, at), sign, true));
        skip(end);
        return {};
      }
    }
    return failure("A raw block has no end.");
  }

  Status tag(bool prints) {
    add(prints ? Token::Kind::print_begin : Token::Kind::block_begin, {});
    while (!rest_.empty()) {
      if (open_.empty()) {
        if (const size_t end = end_at(0, prints ? "}}" : "%}", !prints)) {
          add(prints ? Token::Kind::print_end : Token::Kind::block_end, {});
          skip(end);
          return {};
        }
      }
      BOWLINE_TRY(token());
    }
    return failure("A tag has no end.");
  }

  Status token() {
    if (const size_t spaces = spaces_of(rest_)) {
      skip(spaces);
      return {};
    }
    if (is_digit(rest_[0])) {
      return number();
    }
    if (is_name_begin(rest_[0])) {
      size_t n = 1;
      while (n < rest_.size() && (is_name_begin(rest_[n]) || is_digit(rest_[n]))) {
        ++n;
      }
      take(Token::Kind::name, n);
      return {};
    }
    if (rest_[0] == '"' || rest_[0] == '\'') {
      return text();
    }
    return symbol();
  }

  // Length of digits with single _ between them; 0: no digits.
  size_t digits_from(size_t at) const {
    size_t n = at;
    while (n < rest_.size() &&
           (is_digit(rest_[n]) ||
            (n > at && rest_[n] == '_' && n + 1 < rest_.size() && is_digit(rest_[n + 1])))) {
      ++n;
    }
    return n - at;
  }

  Status number() {
    size_t n = digits_from(0);
    const size_t whole = n;
    const bool behind_dot =
        !out_.empty() && out_.back().kind == Token::Kind::symbol && out_.back().text == ".";
    if (!behind_dot) {
      if (n < rest_.size() && rest_[n] == '.' && digits_from(n + 1) > 0) {
        n += 1 + digits_from(n + 1);
      }
      if (n < rest_.size() && (rest_[n] | 0x20) == 'e') {
        const bool sign = n + 1 < rest_.size() && (rest_[n + 1] == '-' || rest_[n + 1] == '+');
        const size_t digits = digits_from(n + (sign ? 2 : 1));
        n += digits > 0 ? digits + (sign ? 2 : 1) : 0;
      }
    }
    std::string text(rest_.substr(0, n));
    std::erase(text, '_');
    const std::string_view behind = rest_.substr(n);
    BOWLINE_REQUIRE_FILE(
        (n != whole || n <= 1 || rest_[0] != '0') && (behind.empty() || !is_name_begin(behind[0])),
        "The number {} is not supported.", quoted(rest_.substr(0, n + 2)));
    add(n == whole ? Token::Kind::integer : Token::Kind::real, rest_.substr(0, n));
    const char* const end = text.data() + text.size();
    const auto read = n == whole ? std::from_chars(text.data(), end, out_.back().integer)
                                 : std::from_chars(text.data(), end, out_.back().real);
    BOWLINE_REQUIRE_FILE(read.ec != std::errc::result_out_of_range, "A number is too large.");
    skip(n);
    return {};
  }

  Status text() {
    const char quote = rest_[0];
    size_t n = 1;
    while (n < rest_.size() && rest_[n] != quote) {
      n += rest_[n] == '\\' ? 2 : 1;
    }
    BOWLINE_REQUIRE_FILE(n < rest_.size(), "A text has no end.");
    std::string_view inner = rest_.substr(1, n - 1);
    if (inner.find('\\') != std::string_view::npos) {
      std::string out;
      while (!inner.empty()) {
        BOWLINE_TRY(unescape(inner, out));
      }
      inner = tree_.texts.emplace_back(std::move(out));
    }
    add(Token::Kind::text, inner);
    skip(n + 1);
    return {};
  }

  // As in Python: an unknown escape keeps its backslash.
  Status unescape(std::string_view& from, std::string& out) const {
    if (from[0] != '\\') {
      out += from[0];
      from.remove_prefix(1);
      return {};
    }
    const char c = from[1];
    const std::string_view simple = "\\'\"abfnrtv";
    const size_t known = simple.find(c);
    if (known != std::string_view::npos) {
      out += "\\'\"\a\b\f\n\r\t\v"[known];
      from.remove_prefix(2);
      return {};
    }
    if (c == '\n') {
      from.remove_prefix(2);
      return {};
    }
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits == 0) {
      BOWLINE_REQUIRE_FILE(c != 'N' && !is_digit(c) && static_cast<unsigned char>(c) < 0x80,
                           "The escape \"\\{}\" is not supported.", escaped(std::string(1, c)));
      out += '\\';
      from.remove_prefix(1);
      return {};
    }
    const auto code = number_in<uint32_t>(from.substr(2, digits), 16);
    BOWLINE_REQUIRE_FILE(from.size() >= 2 + digits && code, "An escape has too few digits.");
    BOWLINE_REQUIRE_FILE(*code <= 0x10FFFF && (*code < 0xD800 || *code >= 0xE000),
                         "An escape does not name a character.");
    append(out, *code);
    from.remove_prefix(2 + digits);
    return {};
  }

  Status symbol() {
    constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
    if (std::ranges::find(kTwo, rest_.substr(0, 2)) != std::end(kTwo)) {
      take(Token::Kind::symbol, 2);
      return {};
    }
    const char c = rest_[0];
    BOWLINE_REQUIRE_FILE(std::string_view("+-/*%~[](){}><=.:|,;").find(c) != std::string_view::npos,
                         "The character {} is not allowed in a tag.",
                         quoted(rest_.substr(0, std::max<size_t>(utf8_length(rest_), 1))));
    if (c == '(' || c == '[' || c == '{') {
      open_ += c;
    } else if (c == ')' || c == ']' || c == '}') {
      const char begin = c == ')' ? '(' : c == ']' ? '[' : '{';
      BOWLINE_REQUIRE_FILE(!open_.empty() && open_.back() == begin,
                           "The bracket \"{}\" closes none.", c);
      open_.pop_back();
    }
    take(Token::Kind::symbol, 1);
    return {};
  }

  void add(Token::Kind kind, std::string_view text) {
    if (kind != Token::Kind::data || !text.empty()) {
      out_.push_back({kind, line_, text});
    }
  }

  void take(Token::Kind kind, size_t n) {
    add(kind, rest_.substr(0, n));
    skip(n);
  }

  void skip(size_t n) {
    line_ += static_cast<uint32_t>(std::ranges::count(rest_.substr(0, n), '\n'));
    line_begins_ = n > 0 && rest_[n - 1] == '\n';
    rest_.remove_prefix(n);
  }

  Tree& tree_;
  std::string_view rest_;
  uint32_t line_ = 1;
  bool line_begins_ = true;
  std::string open_;  // brackets
  std::vector<Token> out_;
};

// Converts all line ends to \n and removes the last one.
std::string with_newlines(std::string_view text) {
  std::string out;
  char before = '\0';
  for (const char c : text) {
    if (c != '\n' || before != '\r') {
      out += c == '\r' ? '\n' : c;
    }
    before = c;
  }
  if (out.ends_with('\n')) {
    out.pop_back();
  }
  return out;
}

}  // namespace

Result<std::vector<Token>> lex(Tree& tree) {
  BOWLINE_REQUIRE_FILE(tree.source.size() <= kMostTemplateBytes,
                       "The template has {} bytes, more than {}.", tree.source.size(),
                       kMostTemplateBytes);
  BOWLINE_REQUIRE_FILE(valid_utf8(tree.source), "The template is not valid UTF-8.");
  tree.source = with_newlines(tree.source);
  return Lexer(tree).lex();
}

}  // namespace bowline::text::chat
