// A plan as plain structs, for Session::describe(), Trainer::describe() and the listing of records.
#pragma once

#include "plan/plan.h"

namespace bowline::detail::plan {

// Describes a plan, except SegmentInfo::launches: the device counts them when it records the plan.
SegmentInfo describe(const Plan& plan);

// Returns the parameter lists of all Repeats of a bound graph.
std::vector<RepeatListInfo> describe_repeat_lists(const graph::BoundGraph& graph);

}  // namespace bowline::detail::plan
