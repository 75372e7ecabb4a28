// One vector for a sequence of hidden rows.
#pragma once

#include <string_view>

#include "bowline.h"

namespace bowline::import {

// hidden f32 [batch, seq, width] and lengths i32 [batch] -> f32 [batch, width], by "mean", "cls" or
// "max". Rows behind a length do not count.
Value pool(GraphBuilder& g, Value hidden, Value tokens, Value lengths, std::string_view mode,
           int64_t width);
// Rows [batch, width] of length 1.
Value normalized(GraphBuilder& g, Value rows);

}  // namespace bowline::import
