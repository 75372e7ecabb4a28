// The recipes (recipe.h) as those see them who only run them.
#pragma once

#include "bowline.h"

namespace bowline::test {

class Bench;

struct Recipe {
  const char* id;      // "R1"; of a model without a report its name: "UT12"
  const char* source;  // the public reports
  const char* story;   // what went wrong there, in one line
  void (*run)(Bench& bench);
};

// By topic, all of them one after the other.
std::span<const std::span<const Recipe>> recipes();

// What is wrong, or nothing. A problem says of what it may come.
std::string run(const Recipe& recipe, const Device& a, const Device& b);

}  // namespace bowline::test
