/// \file
/// Low-rank adapters (LoRA): small trainable changes of large matrices.
///
/// An adapter replaces a matrix W `[out, in]` by W + s B A. A `[rank, in]` and B `[out, rank]` are
/// small matrices. The scale s is weight * alpha / rank; set_adapter_weight() sets the weight.
/// Linear, Embedding and MatMul add the change while they run; W is not modified. A starts with
/// uniform random values between -1 / sqrt(in) and 1 / sqrt(in). B starts at zero, so a new adapter
/// has no effect. If a model has several adapters, their changes are added.
///
/// A and B are parameters of the model, like all others. The parameter that they change is their
/// *target*. An adapter adds these parameters, and some internal ones:
/// - "<target>.<adapter>.lora_a": A.
/// - "<target>.<adapter>.lora_b": B.
/// - "<adapter>.lora_scale": s, one value for all targets.
/// - "<adapter>.lora_alpha": alpha, one value for all targets.
///
/// An adapter and its targets must be on the same device. An adapter does not change parameters
/// that are tied to a target later.
///
/// Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bowline/model.h"
#include "bowline/status.h"

#pragma GCC visibility push(default)

namespace bowline {

/// Options of add_adapter().
struct AdapterOptions {
  int64_t rank = 8;  ///< Rank of the change. The scale s uses this rank for all targets.
  float alpha = 16;  ///< Multiplies the change; see the scale s.
  /// Pattern of the targets (see model.h). Matching parameters that are not the matrix of a Linear,
  /// Embedding or MatMul are ignored.
  ///
  /// A "!" before a name means full rank instead of `rank`. The name may then also match the bias
  /// of a Linear. For example, "{*.q.weight,!head.*}" adapts all q.weight with `rank`, and the
  /// weight and bias of the head with full rank.
  std::string target = "*";
  /// false: the adapter also changes all parameters that are tied to a matching one. true: it
  /// changes the matching parameters only, each with its own A and B.
  bool per_parameter = false;
  /// Freezes all weights of the model. Other adapters stay trainable.
  bool freeze_others = true;
  /// Seed of the random values of A.
  uint64_t seed = 0;
  /// Dropout probability of the input of A while training, at least 0 and below 1. Files and clones
  /// contain it. It has no effect on embedding tables and biases.
  float dropout = 0;
};

/// The result of add_adapter().
struct AdapterReport {
  std::vector<std::string> targets;  ///< Names of the targets.
  uint64_t bytes = 0;                ///< Size of the new storages.
};

/// Adds an adapter to a model.
///
/// Errors:
/// - bad_argument: the name is taken, or an option is out of range.
/// - bad_argument: no match can be a target, or a match of a "!" name cannot be a target.
/// - bad_argument: a parameter that is tied to a target cannot be a target. See per_parameter.
Result<AdapterReport> add_adapter(Model& model, std::string_view name,
                                  const AdapterOptions& options = {});

/// Returns the names of all adapters in the order in which they were added.
std::vector<std::string> adapters(const Model& model);

/// Sets the weight of an adapter. The default is 1; 0 disables the adapter. No plan is made again.
///
/// Errors: bad_argument: there is no such adapter, or the weight is not finite.
Status set_adapter_weight(Model& model, std::string_view name, float weight);

/// Returns the weight of an adapter. Errors: bad_argument: there is no such adapter.
Result<float> adapter_weight(const Model& model, std::string_view name);

/// Removes an adapter. All Parameter handles of the model become invalid.
///
/// Parameters that add_adapter() froze stay frozen. Errors: bad_argument: there is no such adapter.
Status remove_adapter(Model& model, std::string_view name);

/// Adds the change of an adapter to the values of its targets, then removes the adapter.
///
/// The sum is computed in f32 and then rounded to the dtype of the target.
///
/// Errors:
/// - bad_argument: there is no such adapter, or a target is quantized.
/// - bad_argument: a target is tied to a parameter that the adapter does not change.
Status merge_adapter(Model& model, std::string_view name);

/// Saves an adapter without the model. The file contains a digest of the weights of the model.
/// Errors: bad_argument: there is no such adapter.
Status save_adapter(const Model& model, std::string_view name, const std::string& path);

/// Adds an adapter from a file and returns its name.
///
/// If `name` is empty, the adapter keeps its saved name. The call freezes nothing.
///
/// Errors: as Model::open().
/// - bad_argument: the weights of the model do not match the digest in the file.
/// - bad_argument: the name is taken, or the file contains no adapter.
Result<std::string> load_adapter(Model& model, const std::string& path, std::string_view name = {});

}  // namespace bowline

#pragma GCC visibility pop
