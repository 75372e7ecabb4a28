// Reads the tokens of a template from start to end.
#pragma once

#include "text/chat_template.h"

namespace bowline::text::chat {

class Cursor {
 public:
  explicit Cursor(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& at(size_t ahead = 0) const {
    return tokens_[std::min(next_ + ahead, tokens_.size() - 1)];
  }
  bool is(Token::Kind kind) const { return at().kind == kind; }
  // True if the current token (or the one `ahead` tokens later) is this name or symbol.
  bool is(std::string_view text, size_t ahead = 0) const {
    const Token& token = at(ahead);
    return (token.kind == Token::Kind::symbol || token.kind == Token::Kind::name) &&
           token.text == text;
  }
  // Returns the first of `texts` that equals the current token. Empty: none does.
  std::string_view first_of(std::initializer_list<std::string_view> texts) const {
    const auto* const found = std::ranges::find_if(texts, [&](auto text) { return is(text); });
    return found == texts.end() ? std::string_view() : *found;
  }

  const Token& take() {
    const Token& token = at();
    next_ += next_ + 1 < tokens_.size() ? 1 : 0;
    return token;
  }
  bool skip(std::string_view text) { return is(text) ? (take(), true) : false; }
  Status expect(std::string_view text) {
    return skip(text) ? Status() : unexpected(format("\"{}\"", text));
  }
  Status expect(Token::Kind kind, std::string_view what) {
    return is(kind) ? (take(), Status()) : unexpected(what);
  }
  Result<std::string_view> any_name() {
    return is(Token::Kind::name) ? Result<std::string_view>(take().text)
                                 : Result<std::string_view>(unexpected("A name"));
  }

  Status unexpected(std::string_view expected) const {
    return failure("{} is expected before {}.", expected, shown());
  }
  std::string shown() const {
    switch (at().kind) {
      case Token::Kind::end:
        return "the end of the template";
      case Token::Kind::block_end:
      case Token::Kind::print_end:
        return "the end of the tag";
      default:
        return quoted(at().text);
    }
  }

 private:
  std::vector<Token> tokens_;
  size_t next_ = 0;
};

}  // namespace bowline::text::chat
