// Reads models of ONNX: the file, and its graph as an entry point of a Bowline model.
//
// A file is untrusted: what is truncated, cyclic or of an unknown operator set, or names bytes
// outside of its folder, is refused with a sentence that has the node and the place. Nothing is
// run.
//
// Source  https://github.com/onnx/onnx/blob/main/docs/IR.md and Operators.md, operator sets 1 to
//         28.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bowline.h"
#include "onnx/numbers.h"
#include "source/finite.h"

namespace bowline::onnx {

namespace file {
class ModelProto;
}

inline constexpr int64_t kBatch = -1;

struct ImportOptions {
  std::string entry_point = "forward";
  // Numbers for named dims of the inputs.
  std::vector<BoundDim> dims;
  // By input its whole shape, for dims that have no name, or one name for several sizes. It agrees
  // with the numbers in the file. kBatch stands for the dynamic batch.
  std::map<std::string, std::vector<int64_t>> shapes;
  // Name of a dynamic batch; empty: there is none. The first axis of an input that has one element
  // or no number there becomes it, and so does every dim of this name.
  std::string batch_dim;
  // By input the values that it always has: it becomes a constant, and conditions and shapes that
  // follow from it are known. One value fills any shape.
  std::map<std::string, std::vector<double>> fixed;
  // Numbers of inputs that are known when the model is read: shapes, axes and the like are taken
  // from them.
  std::map<std::string, Numbers> given;
  // Whether the tensor of this name is trained although it looks like a constant: one number alone,
  // or a mask. Empty: none is.
  std::function<bool(const std::string&)> trains;
  // Matrices of equal values become one weight, and equal layers one Repeat.
  bool tie_equal = false;
};

struct Imported {
  Model model;
  std::vector<std::string> inputs;   // those that the graph reads
  std::vector<std::string> outputs;  // in the order of the file
  std::vector<std::string> notes;    // what was left out, and why. Sentences.
  // Parameters with values that are not finite. They are not trained unless ImportOptions::trains
  // says so.
  std::vector<import::NotFinite> not_finite;
};

// Errors  bad_file: it cannot be read or is no model of ONNX, with the place. unsupported: of
//         another version.
Result<std::shared_ptr<file::ModelProto>> read_model(const std::string& path);
Result<std::shared_ptr<file::ModelProto>> parse_model(const std::string& bytes);
// A tensor as it stands alone in a file, with its name. Errors  bad_file.
Result<std::pair<std::string, Numbers>> read_tensor(const std::string& path);

// `folder` is that of the file: external data lies there. Errors  bad_file: what is wrong, with the
// node. unsupported: an operator, a
// dtype or a form of one that Bowline lacks, a dim without a number, rows of a dynamic batch that
// meet. bad_argument: an option names no input or dim of the graph, or no input has a batch.
Result<Imported> import_graph(const file::ModelProto& model, const std::string& folder,
                              const ImportOptions& options);
Result<Imported> import_file(const std::string& path, const ImportOptions& options);

}  // namespace bowline::onnx
