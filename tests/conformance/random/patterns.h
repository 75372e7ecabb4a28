// Operators as their cases have them, small enough for a random model: a new operator is among them
// without an edit.
#pragma once

#include "conformance/random/recipe.h"

namespace bowline::conformance::random {

struct Pattern {
  struct Operand {
    Shape shape;
    DType dtype = DType::f32;
    int64_t classes = 0;  // of an index: it is below
  };
  Op op = Op::Invalid;
  std::vector<Operand> operands;
  std::vector<Attribute> attributes;
  bool differentiable = false;
};

// By operator; none is empty. Of operators without state, whose result 0 is f32 or bool.
const std::vector<std::vector<Pattern>>& patterns();

}  // namespace bowline::conformance::random
