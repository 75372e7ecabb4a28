// A plan as data, for Session::describe() and Trainer::describe(); the listing of records is made
// of it.
#pragma once

#include "plan/plan.h"

namespace bowline::detail::plan {

// Without launches, which the device counts when it records the plan.
SegmentInfo describe(const Plan& plan);

// The parameters of the bodies of Repeats of a bound graph.
std::vector<RepeatListInfo> describe_repeat_lists(const graph::BoundGraph& graph);

}  // namespace bowline::detail::plan
