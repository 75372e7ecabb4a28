// A graph of a recipe as straight-line code: Repeats are unrolled, and parameters are resolved to
// storages.
#pragma once

#include "conformance/random/recipe.h"

namespace bowline::conformance::random {

struct Tape {
  struct Value {
    Shape shape;
    int32_t input = -1;      // node of the entry point
    int32_t parameter = -1;  // of the recipe
    // Depends on a trainable storage, or enters a Repeat that differentiates it.
    bool needed = false;
    int32_t factor = -1;  // index of a mean in the loss
  };
  struct Line {
    Op op = Op::Invalid;
    Attributes attributes;
    std::vector<uint32_t> inputs;
    std::vector<uint32_t> outputs;
    uint32_t iteration = 0;  // as Dropout counts it
  };
  std::vector<Value> values;
  std::vector<Line> lines;
  std::vector<uint32_t> outputs;
};

// With `as_repeat`, iterations have numbers as Dropout counts them in a Repeat.
Result<Tape> make_tape(const Recipe& recipe, const Graph& graph, bool as_repeat);

}  // namespace bowline::conformance::random
