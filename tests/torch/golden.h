// The files of tests/golden/torch, which tools/make_golden makes. Lines of text:
//
//   # ...                           a comment: the version of PyTorch and the seed
//   Op: | inputs | attributes -> outputs
//                                   a case in the language of conformance/case.h, with all numbers
//   dout (...) _ ...                of the case before: a gradient of each of its outputs
//   din (...) _ ...                 and those of its inputs that follow
//   tensor name [3,5] (...)         numbers by a name
//   word ...                        what else a file says: "steps 100", "optimizer ...", "model
//       ..."
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace bowline::test {

using Numbers = std::vector<double>;
// None for each "_".
using NumberLists = std::vector<std::optional<Numbers>>;

struct GoldenCase {
  std::string op;
  std::string line;  // without the operator
  int number = 0;    // of the line in the file
  NumberLists douts, dins;
};

struct GoldenTensor {
  std::vector<int64_t> shape;
  Numbers numbers;

  std::vector<float> floats() const { return {numbers.begin(), numbers.end()}; }
  std::vector<int32_t> integers() const;
};

// A line that begins with another word, and the tensors up to the next one.
struct GoldenSection {
  std::vector<std::string> words;
  std::map<std::string, GoldenTensor> tensors;

  const GoldenTensor& at(const std::string& name) const;
  // The number behind "name=" among the words, or `none`.
  double option(const std::string& name, double none) const;
};

// Of a file of the folder. A line of another form is a failure of the test.
std::vector<GoldenCase> golden_cases(const std::string& file);
std::vector<GoldenSection> golden_sections(const std::string& file);

}  // namespace bowline::test
