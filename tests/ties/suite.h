// The interface of the recipes (recipe.h) for programs that only run them.
#pragma once

#include "bowline.h"

namespace bowline::test {

class Bench;

struct Recipe {
  const char* id;      // "R1", or the name of a model without a report: "UT12"
  const char* source;  // the public reports
  const char* story;   // the fault in the report, in one line
  void (*run)(Bench& bench);
};

// All recipes, grouped by topic.
std::span<const std::span<const Recipe>> recipes();

// Returns the problems, or an empty text. A problem names its possible causes.
std::string run(const Recipe& recipe, const Device& a, const Device& b);

}  // namespace bowline::test
