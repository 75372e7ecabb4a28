// Checks the attributes of a node, as far as no rule of its operator is needed.
#pragma once

#include "model/verify_parts.h"

namespace bowline::detail::model {

// Checks every field of an attribute table: enum values are known, lists are not too long, sizes
// are inside their limits, floats are not NaN, and named dims are dims of the model. The body of a
// Repeat is checked elsewhere.
Status check_attributes(Check& check, const file::Node& node);

// Checks a dim of a value: a size inside the limits, or the name of a dim of the model.
Status check_dim(Check& check, int64_t value, const flatbuffers::String* name, int64_t lowest);

}  // namespace bowline::detail::model
