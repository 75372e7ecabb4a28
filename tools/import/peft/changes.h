// The changes of an adapter file: two factors per module.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bowline.h"

namespace bowline::peft {

// How B A is added to the weight W of a module, with A [rank, in] and B [out, rank].
enum class Layout : uint8_t {
  linear,     // W [out, in]
  conv1d,     // W [in, out] += (B A)^T, as in GPT-2
  embedding,  // W [in, out] += (B A)^T, a table of rows
};
// The layout of a module's weight, by the Hugging Face name of the parameter.
Layout layout_of(const Model& model, std::string_view parameter);

// Returns "model.layers.0.self_attn.q_proj" for "model.layers.0.self_attn.q_proj.weight". Empty if
// the parameter is not a weight of a module.
std::string_view module_of(std::string_view parameter);

struct Factor {
  std::string name;  // in the file, for messages
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};
// "F32", "F16" or "BF16", as in safetensors and GGUF.
std::string_view type_name(DType dtype);
// Converts f32, f16 or bf16 to f32.
std::vector<float> floats_of(DType dtype, std::span<const std::byte> bytes);
// Returns the transposed matrix.
Factor transposed(const Factor& factor);

struct Change {
  std::string parameter;  // a bias [n] is changed as a matrix [1, n]
  Layout layout = Layout::linear;
  Factor a;
  Factor b;
  // Full rank: the rank is that of the parameter, independent of the other changes.
  bool whole = false;
};

struct LowRank {
  int64_t rank = 0;    // of changes that are not full-rank
  double scaling = 0;  // factor of B A
  double dropout = 0;
  std::vector<Change> changes;
};

// Adds the changes to a model as an adapter. After a failure the model is unchanged.
// Errors  bad_file: a factor does not match the rank or the parameter's shape, has a non-finite
//         value, or the parameter cannot have an adapter. unsupported: the factors are integers or
//         have two dtypes. bad_argument: as add_adapter().
Result<AdapterReport> add_changes(Model& model, std::string_view name, const LowRank& from);

// Returns the changes of an adapter, in the order of the parameters. The scale of the adapter is in
// `scaling`.
// Errors  bad_argument: the model has no such adapter.
Result<LowRank> changes_of(const Model& model, std::string_view adapter);

// Requires changes that formats without modules_to_save can store.
// Errors  bad_argument: a change is full-rank, or does not change the weight of a module.
Status require_low_rank(const LowRank& changes);

}  // namespace bowline::peft
