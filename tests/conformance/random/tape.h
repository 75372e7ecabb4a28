// A graph of a recipe as straight-line code: Repeats written out, parameters resolved to storages.
#pragma once

#include "conformance/random/recipe.h"

namespace bowline::conformance::random {

struct Tape {
  struct Value {
    Shape shape;
    int32_t input = -1;      // node of the entry point
    int32_t parameter = -1;  // of the recipe
    bool needed = false;     // a trainable storage is behind it, or it enters a Repeat that
                             // differentiates for it
    int32_t factor = -1;     // of a mean of the loss
  };
  struct Line {
    Op op = Op::Invalid;
    Attributes attributes;
    std::vector<uint32_t> inputs;
    std::vector<uint32_t> outputs;
    uint32_t iteration = 0;  // as Dropout sees it
  };
  std::vector<Value> values;
  std::vector<Line> lines;
  std::vector<uint32_t> outputs;
};

// `as_repeat`: iterations are numbered, as Dropout sees them in a Repeat.
Result<Tape> make_tape(const Recipe& recipe, const Graph& graph, bool as_repeat);

}  // namespace bowline::conformance::random
