// Reads the files of tests/golden/torch, which tools/make_golden writes. Lines of text:
//
//   # ...                           a comment: the version of PyTorch and the seed
//   Op: | inputs | attributes -> outputs
//                                   a case in the language of conformance/case.h, with all values
//   dout (...) _ ...                of the last case: a gradient of each output
//   din (...) _ ...                 and the gradients of its inputs
//   tensor name [3,5] (...)         values with a name
//   word ...                        other settings: "steps 100", "optimizer ...", "model ..."
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace bowline::test {

using Numbers = std::vector<double>;
// An entry is std::nullopt for "_".
using NumberLists = std::vector<std::optional<Numbers>>;

struct GoldenCase {
  std::string op;
  std::string line;  // without the operator
  int number = 0;    // of the line in the file, from 1
  NumberLists douts, dins;
};

struct GoldenTensor {
  std::vector<int64_t> shape;
  Numbers numbers;

  std::vector<float> floats() const { return {numbers.begin(), numbers.end()}; }
  std::vector<int32_t> integers() const;
};

// A line that begins with another word, and the tensors up to the next section.
struct GoldenSection {
  std::vector<std::string> words;
  std::map<std::string, GoldenTensor> tensors;

  const GoldenTensor& at(const std::string& name) const;
  // Returns the words "name=value".
  std::map<std::string, double> options() const;
};

// Reads a file of the folder. A malformed line fails the test.
std::vector<GoldenCase> golden_cases(const std::string& file);
std::vector<GoldenSection> golden_sections(const std::string& file);

}  // namespace bowline::test
