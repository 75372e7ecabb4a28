// Golden files of every released format, with inputs and expected outputs as self tests in the
// file.
#pragma once

#include "graph/load.h"
#include "graph/save.h"

namespace bowline::test {

// Runs every self test of the model on its device.
// Errors  bad_argument: an output differs; the message names the first element.
Status run_self_tests(const Model& model, const Device& device);

// A run whose outputs a golden file contains.
struct GoldenCase {
  std::string entry_point;
  std::vector<BoundDim> dims;
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;  // filled in by the run
};

// The content of a golden file of this version, with its bytes.
struct GoldenModel {
  Model model;
  std::vector<GoldenCase> cases;
  bool with_codes = false;                                         // adds a quantized storage
  std::vector<std::shared_ptr<std::vector<std::byte>>> data = {};  // of the cases
};
// A tied language model: embedding and head share a weight; the layers are a Repeat.
GoldenModel golden_tied_lm();
// A decoder with a dynamic dimension, with states that it writes, and with a transposed 16-bit tie.
GoldenModel golden_decoder();

}  // namespace bowline::test
