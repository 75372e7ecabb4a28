// Pools a sequence of hidden rows to one vector.
#pragma once

#include <string_view>

#include "bowline.h"

namespace bowline::import {

// Pools hidden f32 [batch, seq, width] to f32 [batch, width] by "mean", "cls" (the first row),
// "last" or "max". lengths i32 [batch]; rows beyond the length are ignored.
Value pool(GraphBuilder& g, Value hidden, Value tokens, Value lengths, std::string_view mode,
           int64_t width);
// Normalizes rows [batch, width] to length 1.
Value normalized(GraphBuilder& g, Value rows);

}  // namespace bowline::import
