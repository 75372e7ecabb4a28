// Golden files: of every released format, with inputs and expected outputs as self tests in the
// file.
#pragma once

#include "graph/load.h"
#include "graph/save.h"

namespace bowline::test {

// Runs every self test of the model on the device that it lies on.
// Errors  bad_argument: an output is not as expected; the first such element is named.
Status run_self_tests(const Model& model, const Device& device);

// A run whose outputs a golden file holds.
struct GoldenCase {
  std::string entry_point;
  std::vector<BoundDim> dims;
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;  // to be filled in
};

// What a golden file of this version holds, with bytes.
struct GoldenModel {
  Model model;
  std::vector<GoldenCase> cases;
  bool with_codes = false;                                         // a storage of codes too
  std::vector<std::shared_ptr<std::vector<std::byte>>> data = {};  // of the cases
};
// A tied language model: an embedding that is its head, a Repeat.
GoldenModel golden_tied_lm();
// A decoder with a counted dim and states that it writes, and 16 bits through a transposed tie.
GoldenModel golden_decoder();

}  // namespace bowline::test
