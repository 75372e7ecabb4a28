// Operators from their cases that are small enough for a random model. A new operator takes part
// without a change here.
#pragma once

#include "conformance/random/recipe.h"

namespace bowline::conformance::random {

struct Pattern {
  struct Operand {
    Shape shape;
    DType dtype = DType::f32;
    int64_t classes = 0;  // an index is smaller than this
  };
  Op op = Op::Invalid;
  std::vector<Operand> operands;
  std::vector<Attribute> attributes;
  bool differentiable = false;
};

// Patterns by operator, without empty entries. The operators have no state, and their result 0 is
// f32 or bool.
const std::vector<std::vector<Pattern>>& patterns();

}  // namespace bowline::conformance::random
