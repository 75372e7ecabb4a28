// The inputs of an entry point, as the command line gives them: NAME=@file.npy, NAME=@file.txt,
// NAME=1,2,3, NAME=zeros, NAME=ones, NAME=random:SEED; and its step words.
#pragma once

#include "common/npy.h"

namespace bowline::command {

extern const char* const kInputHelp;

struct Inputs {
  std::vector<std::string> names;
  std::vector<Array> arrays;
  std::vector<BoundDim> dims;  // those given, and those that the shapes of files say
  // Those that the shapes of files say, else those given: the size of a dynamic dimension in a run.
  std::vector<BoundDim> lengths;

  std::vector<Tensor> tensors();
};

// `otherwise` is what an input gets that is not given, such as "random:1"; empty: each must be
// given. Random numbers are uniform in [-1, 1), integers and booleans in 0..127 and 0..1.
// Errors  bad_argument: a name that the graph has not, a dim that nothing says. bad_file: of a
//         file.
Result<Inputs> make_inputs(const EntryPointInfo& entry, const std::vector<std::string>& flags,
                           std::vector<BoundDim> dims, const std::string& otherwise);

extern const char* const kStepHelp;

// NAME=NUMBER of per-step scalars and of dynamic dimensions; the names lie in the flags. Errors
// bad_argument: not of this form.
Result<std::vector<StepScalar>> steps_of(const std::vector<std::string>& flags);

}  // namespace bowline::command
