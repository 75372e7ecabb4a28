// How peft names and lays out the two factors of a change.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bowline.h"

namespace bowline::peft {

// What a module does with its weight W, which the change is added to.
enum class Layout : uint8_t {
  linear,     // W [out, in] += B A, of lora_A [rank, in] and lora_B [out, rank]
  conv1d,     // W [in, out] += (B A)^T: fan_in_fan_out, as GPT-2 has it
  embedding,  // W [vocabulary, width] += (B A)^T, of lora_embedding_A [rank, vocabulary] and lora_embedding_B [width, rank]
};

// Of a module's weight in a model of Hugging Face, by the name of the parameter.
Layout layout_of(const Model& model, std::string_view parameter);

// "model.layers.0.self_attn.q_proj" of "model.layers.0.self_attn.q_proj.weight"; empty: it is no weight of a module.
std::string_view module_of(std::string_view parameter);

// The two parameters of an adapter that one of the model sees, and so W += left right, [m, rank] and [rank, n] as W [m, n] is shown.
struct Factors {
  std::string left;
  std::string right;
};
Factors factors_of(const ParameterInfo& target, std::string_view adapter);

// The bytes of a matrix [rows, columns] as those of its transpose.
std::vector<std::byte> transposed(std::span<const std::byte> bytes, size_t rows, size_t columns,
                                  size_t element);

}  // namespace bowline::peft
