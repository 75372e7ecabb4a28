// What can be checked about the attributes of a node without knowing its operator's rules.
#pragma once

#include "model/verify_parts.h"

namespace bowline::detail::model {

// Enums are known, lists are not too long, sizes are inside their limits, floats are numbers, the
// dims that sizes name are dims of the model: for every field of the attribute table, of whatever
// operator. What a Repeat runs is checked with its body.
Status check_attributes(Check& check, const file::Node& node);

// A dim of a value: a number inside the limits, or the name of a dim of the model.
Status check_dim(Check& check, int64_t value, const flatbuffers::String* name, int64_t lowest);

}  // namespace bowline::detail::model
