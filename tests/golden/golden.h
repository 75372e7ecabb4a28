// Golden files: of every released format, with inputs and expected outputs as self tests in the
// file.
#pragma once

#include "graph/load.h"
#include "graph/save.h"

namespace bowline::test {

// Runs every self test of the model on the device that it lies on.
// Errors  bad_argument: an output is not as expected; the first such element is named.
Status run_self_tests(const Model& model, const Device& device);

// The small tied model that golden files of this version hold, with bytes.
Model make_golden_model();

// The inputs of its self test and an output to be filled in.
struct GoldenCase {
  std::vector<int32_t> tokens = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8};  // [batch 3, seq 4]
  std::vector<float> logits = std::vector<float>(3 * 4 * 11);
};

}  // namespace bowline::test
