// Inputs and per-step scalars of an entry point, from the command line. An input is
// NAME=@file.npy, NAME=@file.txt, NAME=1,2,3, NAME=zeros, NAME=ones or NAME=random:SEED.
#pragma once

#include "common/npy.h"

namespace bowline::command {

extern const char* const kInputHelp;

struct Inputs {
  std::vector<std::string> names;
  std::vector<Array> arrays;
  std::vector<BoundDim> dims;  // the given dims, and dims that follow from given values
  // Dims that follow from given values, then the other given dims. For a dynamic dimension this is
  // its actual size.
  std::vector<BoundDim> lengths;

  std::vector<Tensor> tensors();
};

// Creates the inputs. `otherwise` is the value of inputs without a flag, such as "random:1". Empty:
// each input needs a flag. Random floats are uniform in [-1, 1), integers in 0..127, booleans in
// 0..1.
// Errors  bad_argument: an input is unknown or missing, or the size of a dim is unknown. bad_file:
//         a file or list cannot be read.
Result<Inputs> make_inputs(const EntryPointInfo& entry, const std::vector<std::string>& flags,
                           std::vector<BoundDim> dims, const std::string& otherwise);

extern const char* const kStepHelp;

// Parses NAME=NUMBER for per-step scalars and dynamic dimensions. The names in the result are views
// of `flags`.
// Errors  bad_argument: a flag is not of this form.
Result<std::vector<StepScalar>> steps_of(const std::vector<std::string>& flags);

}  // namespace bowline::command
