#include "gguf/terms.h"

#include "base/pattern.h"

namespace bowline::gguf {
namespace {

// Matches the text against the pattern and returns the layer index that "{}" stands for, without
// leading zeros. Returns an empty text if the pattern has no "{}", and nothing without a match.
std::optional<std::string_view> layer_of(std::string_view pattern, std::string_view text) {
  const std::optional<Digits> digits = number_in(pattern, text);
  if (!digits) {
    return text == pattern ? std::optional<std::string_view>("") : std::nullopt;
  }
  const std::string_view layer = text.substr(digits->begin, digits->end - digits->begin);
  return layer.size() == 1 || layer[0] != '0' ? std::optional(layer) : std::nullopt;
}

Named translated(const Terms& terms, std::string_view name, std::string_view TensorTerm::*from,
                 std::string_view TensorTerm::*to) {
  for (const TensorTerm& term : terms.tensors) {
    if (const auto layer = layer_of(term.*from, name)) {
      std::string out(term.*to);
      if (const size_t hole = out.find("{}"); hole != std::string::npos) {
        out.replace(hole, 2, *layer);
      }
      return {out, term.order};
    }
  }
  return {};
}

}  // namespace

Named to_hugging_face(const Terms& terms, std::string_view gguf) {
  return translated(terms, gguf, &TensorTerm::gguf, &TensorTerm::hugging_face);
}

Named to_gguf(const Terms& terms, std::string_view hugging_face) {
  return translated(terms, hugging_face, &TensorTerm::hugging_face, &TensorTerm::gguf);
}

}  // namespace bowline::gguf
