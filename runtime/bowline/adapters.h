/// \file
/// Low-rank adapters (LoRA): small trainable changes of large matrices.
///
/// An adapter changes a matrix W to W + weight * alpha / rank * B A. A is [rank, in] and B is [out,
/// rank]. The operators Linear, Embedding and MatMul add the change to their result, without
/// storing the sum. A is drawn uniformly from [-1, 1] / sqrt(in) and B is zero, so a new adapter
/// changes nothing. Several adapters of one model add up.
///
/// The storages of an adapter are parameters like all others. Their names are:
/// - "<target>.<adapter>.lora_a" and "<target>.<adapter>.lora_b": A and B. ParameterInfo::target
///   names the target.
/// - "<adapter>.lora_scale": weight * alpha / rank.
/// - "<adapter>.lora_alpha": alpha.
///
/// An adapter and the matrices that it changes must be on one device. If you tie a parameter to a
/// changed storage later, that parameter does not see the change.
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
  int64_t rank = 8;
  float alpha = 16;
  /// Pattern of the parameters to change, as in Model::resize(). Parameters that are not the matrix
  /// of a Linear, Embedding or MatMul are left out. Parameters that match after a "!", as in
  /// "!head.*", get a change of full rank instead, also if they are biases.
  std::string target = "*";
  /// false: all parameters of a storage share one change. true: each storage is changed only for
  /// the parameters that match.
  bool per_use = false;
  /// Freezes all parameters of the model that are not part of an adapter.
  bool freeze_others = true;
  /// Seed of the initial values of A.
  uint64_t seed = 0;
  /// Dropout probability of the input of B A while training. Each use and each micro-batch draws
  /// new random numbers from TrainOptions::seed. The adapter keeps the probability in files and
  /// clones. Changes of an embedding table have no dropout.
  float dropout = 0;
};

/// The result of add_adapter().
struct AdapterReport {
  std::vector<std::string> targets;  ///< Parameters that see a change.
  uint64_t bytes = 0;                ///< Bytes of the new storages.
};

/// Adds an adapter to a model.
///
/// Errors:
/// - bad_argument: the name is taken; the rank is below 1; no parameter matches; no matching
///   parameter is a matrix that an adapter can change; a parameter after "!" is neither such a
///   matrix nor a bias; another operator reads a target, too; the model is busy.
Result<AdapterReport> add_adapter(Model& model, std::string_view name,
                                  const AdapterOptions& options = {});

/// Returns the names of all adapters in the order in which they were added.
std::vector<std::string> adapters(const Model& model);

/// Sets the weight of an adapter. The default is 1; 0 disables the adapter. Plans stay valid.
Status set_adapter_weight(Model& model, std::string_view name, float weight);

/// Returns the weight of an adapter.
Result<float> adapter_weight(const Model& model, std::string_view name);

/// Removes an adapter with its parameters. All Parameter handles of the model become invalid.
///
/// Parameters that add_adapter() froze stay frozen.
Status remove_adapter(Model& model, std::string_view name);

/// Adds the change of an adapter to the matrices, then removes the adapter.
///
/// The sum is computed in f32 and rounded once.
///
/// Errors:
/// - bad_argument: a changed storage is quantized; a changed storage has a parameter that does not
///   see the change.
Status merge_adapter(Model& model, std::string_view name);

/// Saves an adapter without the model. The file contains a digest of the values of the model.
Status save_adapter(const Model& model, std::string_view name, const std::string& path);

/// Adds an adapter from a file and returns its name.
///
/// If `name` is empty, the adapter keeps the name that it was saved with.
///
/// Errors: as Model::open().
/// - bad_argument: the adapter belongs to a model with other values, or the name is taken.
Result<std::string> load_adapter(Model& model, const std::string& path, std::string_view name = {});

}  // namespace bowline

#pragma GCC visibility pop
