// Maps the tensor names, row orders and settings of an architecture between GGUF and Hugging Face.
// Each file of terms/ has the terms of an architecture and defines terms_of_<file>(). Readers and
// writers use the same terms.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bowline.h"
#include "gguf/file.h"
#include "source/keys.h"

namespace bowline::gguf {

// The layout of a Hugging Face tensor in GGUF.
enum class Order : uint8_t {
  same,
  // Rotary pairs of a head (elements i and i + half) are neighbours in GGUF.
  query_heads,
  key_heads,
  transposed,
  numbers,  // same layout, but always dequantized: a model reads slices of the tensor
  // The values are 1 larger in GGUF, which stores gamma. Hugging Face stores gamma - 1.
  one_less,
};

struct TensorTerm {
  std::string_view gguf;  // "blk.{}.attn_q.weight"; "{}" is the layer index
  std::string_view hugging_face;
  Order order = Order::same;
};

// A numeric setting. `gguf` is the key after "<architecture>.".
struct KeyTerm {
  std::string_view gguf;  // "attention.head_count"
  std::string_view hugging_face;
  enum class Kind : uint8_t { whole, real } kind = Kind::whole;
  bool needed = true;
};

// A setting that GGUF does not store because it depends on others. Readers set it. Writers reject a
// config with another value.
struct ImpliedTerm {
  std::string_view hugging_face;
  nlohmann::json (*of)(const nlohmann::json& config);
};

struct Terms {
  std::string_view architecture;  // general.architecture
  std::string_view class_name;    // "LlamaForCausalLM"
  std::vector<TensorTerm> tensors;
  std::vector<KeyTerm> keys;
  nlohmann::json fixed;  // settings that GGUF does not store
  bool rotary = false;   // the keys rope.* are read
  // Settings that are true if a tensor exists, and settings that are the first dim of a tensor.
  std::vector<std::pair<std::string_view, std::string_view>> present = {};
  std::vector<std::pair<std::string_view, std::string_view>> rows = {};
  // Hugging Face tensor that is tied to `table` if it is missing. Empty: there is no such tensor.
  std::string_view head = "";
  std::string_view table = "";
  std::vector<ImpliedTerm> implied = {};
  // Additional keys after "<architecture>." that do not become settings (keys.cpp).
  std::vector<import::KeyRule> more_keys = {};
  std::string_view model_type = {};  // of config.json; empty: same as `architecture`
};

// Terms that all Llama-like decoders share, without biases, with all rows in the order of Hugging
// Face. `more`: additional tensors of this architecture.
Terms llama_terms(std::string_view architecture, std::string_view class_name,
                  std::initializer_list<TensorTerm> more);

// Null if the architecture is not supported. Generated from the files of terms/.
const Terms* find_terms(std::string_view architecture);
// "bert, gpt2, llama, ..."
std::string known_architectures();

// The Hugging Face name with the layer index, and the layout. Empty if there is no term for the
// tensor.
struct Named {
  std::string name;
  Order order = Order::same;
};
Named to_hugging_face(const Terms& terms, std::string_view gguf);
Named to_gguf(const Terms& terms, std::string_view hugging_face);

}  // namespace bowline::gguf
