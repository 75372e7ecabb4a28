// What files of other tools say of an adapter: for each module the two factors of its change.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bowline.h"

namespace bowline::peft {

// What a module does with its weight W, which B A is added to, of A [rank, in] and B [out, rank].
enum class Layout : uint8_t {
  linear,     // W [out, in]
  conv1d,     // W [in, out] += (B A)^T, as GPT-2 has it
  embedding,  // W [in, out] += (B A)^T: rows of a table
};
// Of a module's weight in a model of Hugging Face, by the name of the parameter.
Layout layout_of(const Model& model, std::string_view parameter);

// "model.layers.0.self_attn.q_proj" of "model.layers.0.self_attn.q_proj.weight"; empty: it is no
// weight of a module.
std::string_view module_of(std::string_view parameter);

struct Factor {
  std::string name;  // in its file, for messages
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};
// The values of f32, f16 or bf16.
std::vector<float> floats_of(DType dtype, std::span<const std::byte> bytes);
// The bytes of a matrix as those of its transpose.
Factor transposed(const Factor& factor);

struct Change {
  std::string parameter;  // a bias [n] is changed as a matrix [1, n]
  Layout layout = Layout::linear;
  Factor a;
  Factor b;
  bool whole =
      false;  // of as high a rank as the parameter's values have, whatever that of the others is
};

struct LowRank {
  int64_t rank = 0;    // of changes that are not whole
  double scaling = 0;  // B A is multiplied by it
  double dropout = 0;
  std::vector<Change> changes;
};

// Adds them to a model as an adapter, all or nothing. Errors  bad_file: a factor is not of the rank
// and the parameter's shape, or a
// parameter is none that an adapter can change. a factor has a value that is not finite.
// unsupported: factors of integers, or of two dtypes. bad_argument: as add_adapter().
Result<AdapterReport> add_changes(Model& model, std::string_view name, const LowRank& from);

// Those of an adapter of a model, in the order of the parameters. What the adapter is multiplied by
// is in their scaling. Errors bad_argument: there is no such adapter.
Result<LowRank> changes_of(const Model& model, std::string_view adapter);

// For formats that have nothing else. Errors  bad_argument: a change is whole, or not of the weight
// of a module.
Status require_low_rank(const LowRank& changes);

// The one adapter of a model. Errors  bad_argument: it has none, or several.
Result<std::string> only_adapter(const Model& model);

}  // namespace bowline::peft
