// Checks TrainOptions, lists the options that a resumed run must share, and finds parameter groups.
#pragma once

#include "params/table.h"

namespace bowline::detail::train {

// Errors  bad_argument: an option is not finite or out of range. The message names it.
Status check_options(const TrainOptions& options);

// Returns `dims`, followed by `more_dims`.
std::vector<std::vector<BoundDim>> sets_of_dims(const TrainOptions& options);
// Returns text such as "batch=2 seq=16".
std::string text_of(std::span<const BoundDim> dims);

// Names and values of the options that must be equal when a run is resumed.
using RunSettings = std::vector<std::pair<std::string, std::string>>;
RunSettings run_settings(const TrainOptions& options);

// How the optimizer updates one storage.
struct UpdateRule {
  float weight_decay = 0;
  float learning_rate_factor = 1;
  auto operator<=>(const UpdateRule&) const = default;
};
// Returns the rule of a storage.
// Errors  bad_argument: two of its parameters are in different groups. The message names both.
Result<UpdateRule> rule_of(uint32_t tie, const params::Table& table, const TrainOptions& options);
// Checks that each group has a parameter. `trained` lists the trained tie indices, ascending.
// Errors  bad_argument: a pattern matches no parameter of these storages.
Status check_groups(const params::Table& table, std::span<const uint32_t> trained,
                    const TrainOptions& options);

}  // namespace bowline::detail::train
