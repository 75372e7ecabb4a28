#include "peft/modules.h"

#include <cstring>

namespace bowline::peft {

Layout layout_of(const Model& model, std::string_view parameter) {
  const std::string_view module = module_of(parameter);
  const std::string_view last = module.substr(module.rfind('.') + 1);
  if (last.starts_with("c_") && model.metadata("architecture") == "gpt2") {
    return Layout::conv1d;
  }
  const bool is_table =
      last == "embed_tokens" || last == "wte" || last == "wpe" || last.ends_with("_embeddings");
  return is_table ? Layout::embedding : Layout::linear;
}

std::string_view module_of(std::string_view parameter) {
  constexpr std::string_view kWeight = ".weight";
  return parameter.ends_with(kWeight) ? parameter.substr(0, parameter.size() - kWeight.size())
                                      : std::string_view();
}

Factors factors_of(const ParameterInfo& target, std::string_view adapter) {
  const std::string begin = target.name + "." + std::string(adapter);
  Factors out{begin + ".lora_b", begin + ".lora_a"};
  if (target.view.transpose) {
    std::swap(out.left, out.right);
  }
  return out;
}

std::vector<std::byte> transposed(std::span<const std::byte> bytes, size_t rows, size_t columns,
                                  size_t element) {
  std::vector<std::byte> out(bytes.size());
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) {
      std::memcpy(out.data() + (c * rows + r) * element, bytes.data() + (r * columns + c) * element,
                  element);
    }
  }
  return out;
}

}  // namespace bowline::peft
