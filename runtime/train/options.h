// What a run is asked to do: limits of the options, what must be the same for a run to go on,
// parameter groups.
#pragma once

#include "params/table.h"

namespace bowline::detail::train {

// Errors  bad_argument: an option is not a number or outside its range; its name and value.
Status check_options(const TrainOptions& options);

// `dims`, then `more_dims`.
std::vector<std::vector<BoundDim>> sets_of_dims(const TrainOptions& options);
// "batch=2 seq=16".
std::string text_of(std::span<const BoundDim> dims);

// By name; total_steps is not among them.
using RunSettings = std::vector<std::pair<std::string, std::string>>;
RunSettings run_settings(const TrainOptions& options);

// How one storage is updated.
struct UpdateRule {
  float weight_decay = 0;
  float learning_rate_factor = 1;
  auto operator<=>(const UpdateRule&) const = default;
};
// Errors  bad_argument: two of its parameters are in different groups; both are named.
Result<UpdateRule> rule_of(uint32_t tie, const params::Table& table, const TrainOptions& options);
// Checks that each group has a parameter. `trained` lists the trained tie indices, ascending.
// Errors  bad_argument: a pattern matches no parameter of these storages.
Status check_groups(const params::Table& table, std::span<const uint32_t> trained,
                    const TrainOptions& options);

}  // namespace bowline::detail::train
