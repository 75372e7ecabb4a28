// What an architecture is called in GGUF and what Hugging Face calls it: names of tensors, orders
// of rows, settings. Each file of terms/ has the terms of one and defines terms_of_<file>().
// Readers use them one way, writers the other.
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

// How a tensor of Hugging Face lies in GGUF.
enum class Order : uint8_t {
  same,
  // Rows of a head: elements i and i + half, which rotary embeddings turn, are neighbours in GGUF.
  query_heads,
  key_heads,
  transposed,
  numbers,  // as it is, and codes become numbers: a model reads slices of it
  // Numbers that are 1 larger in GGUF: it has scales of norms themselves, Hugging Face how far they
  // are from 1.
  one_less,
};

struct TensorTerm {
  std::string_view gguf;  // "blk.{}.attn_q.weight"; "{}" stands for the layer
  std::string_view hugging_face;
  Order order = Order::same;
};

// A number. The key stands behind "<architecture>.".
struct KeyTerm {
  std::string_view gguf;  // "attention.head_count"
  std::string_view hugging_face;
  enum class Kind : uint8_t { whole, real } kind = Kind::whole;
  bool needed = true;
};

// A setting that GGUF does not say, as it follows from others. Readers set it; writers refuse a
// config that says another.
struct ImpliedTerm {
  std::string_view hugging_face;
  nlohmann::json (*of)(const nlohmann::json& config);
};

struct Terms {
  std::string_view architecture;  // general.architecture, which is model_type too
  std::string_view class_name;    // "LlamaForCausalLM"
  std::vector<TensorTerm> tensors;
  std::vector<KeyTerm> keys;
  nlohmann::json fixed;  // settings that GGUF does not say
  bool rotary = false;   // rope.* are read
  // Settings that are true where there is such a tensor, and that are its first dim.
  std::vector<std::pair<std::string_view, std::string_view>> present = {};
  std::vector<std::pair<std::string_view, std::string_view>> rows = {};
  std::string_view head =
      "";  // the tensor of Hugging Face that is tied to `table` where it is absent; empty: none
  std::string_view table = "";
  std::vector<ImpliedTerm> implied = {};
  // Keys behind "<architecture>." that become no setting, where it differs from others (keys.cpp).
  std::vector<import::KeyRule> more_keys = {};
};

// Null: there is none. Generated from the files of terms/.
const Terms* find_terms(std::string_view architecture);
// "bert, gpt2, llama, ..."
std::string known_architectures();

// The name of Hugging Face with the number of the layer, and how the tensor lies. Empty: there is
// no term.
struct Named {
  std::string name;
  Order order = Order::same;
};
Named to_hugging_face(const Terms& terms, std::string_view gguf);
Named to_gguf(const Terms& terms, std::string_view hugging_face);

}  // namespace bowline::gguf
