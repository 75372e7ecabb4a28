// What a token is, as GGUF numbers it (tokenizer.ggml.token_type).
#pragma once

#include <cstdint>
#include <string_view>

namespace bowline::command {

enum class TokenType : int32_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6
};

// Merges lead to it, and go on from it.
constexpr bool takes_part(TokenType type) {
  return type == TokenType::normal || type == TokenType::user_defined || type == TokenType::unused;
}
// It is found in a text before anything else, as an added token.
constexpr bool is_found_first(TokenType type) {
  return type == TokenType::control || type == TokenType::unknown ||
         type == TokenType::user_defined;
}

// Stands for a space in pieces (U+2581).
constexpr std::string_view kSpace = "\u2581";

// The piece is found in text and goes on behind a space.
constexpr bool crosses_words(TokenType type, std::string_view piece) {
  return type == TokenType::normal && piece.find(kSpace, 1) != std::string_view::npos;
}

}  // namespace bowline::command
