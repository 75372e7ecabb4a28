// Imports ONNX models: parses the file and adds its graph as an entry point of a Bowline model.
//
// Files are untrusted. A file that is truncated, has a cycle, needs an unknown operator set or
// names external data outside of its folder is rejected. The message has the node and the position.
// No code of the file runs.
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
#include "source/progress.h"

namespace bowline::onnx {

namespace file {
class ModelProto;
}

inline constexpr int64_t kBatch = -1;

struct ImportOptions {
  std::string entry_point = "forward";
  // Sizes of named dims of the inputs.
  std::vector<BoundDim> dims;
  // The whole shape of an input, by input name. Needed for dims without a name, or if one name
  // stands for several sizes. Sizes that the file has must agree. kBatch stands for the dynamic
  // batch.
  std::map<std::string, std::vector<int64_t>> shapes;
  // Name of the dynamic batch. Empty: the batch is fixed. The first axis of an input becomes the
  // batch axis if its size is 1 or not given. So does every dim of this name.
  std::string batch_dim;
  // Inputs that become constants, by name. Conditions and shapes that depend on them are then
  // known. A single value fills any shape.
  std::map<std::string, std::vector<double>> fixed;
  // Values of inputs that are known when the model is read, by name. Shapes, axes and similar
  // arguments are computed from them. The inputs stay inputs.
  std::map<std::string, ConstantTensor> given;
  // Returns whether the tensor of this name is trained although it looks like a constant: a scalar
  // or a mask. Empty: all of them stay constants.
  std::function<bool(const std::string&)> trains;
  // Ties matrices of equal values to one weight, and merges equal layers into one Repeat.
  bool tie_equal = false;
  import::Progress progress = {};
};

struct Imported {
  Model model;
  std::vector<std::string> inputs;   // inputs that the graph reads
  std::vector<std::string> outputs;  // in the order of the file
  std::vector<std::string> notes;    // parts that were left out, and why, as sentences
  // Parameters with non-finite values. They are not trained unless ImportOptions::trains says so.
  std::vector<NotFiniteTensor> not_finite;
};

// Parses a model file.
// Errors  bad_file: the file cannot be read or is not an ONNX model; the message has the position.
//         unsupported: the version is not supported.
Result<std::shared_ptr<file::ModelProto>> read_model(const std::string& path,
                                                     const import::Progress& progress = {});
Result<std::shared_ptr<file::ModelProto>> parse_model(const std::string& bytes);
// Reads a file with a single TensorProto. Returns its name and values. Errors  bad_file.
Result<std::pair<std::string, ConstantTensor>> read_tensor(const std::string& path);

// Imports the graph of a parsed model. `folder` is the model file's folder, for external data.
// Errors  bad_file: the file is wrong; the message names the node.
//         unsupported: an operator, dtype or attribute is not supported, a dim has no size, or an
//         operator mixes the rows of a dynamic batch.
//         bad_argument: an option names an unknown input or dim, or no input has a batch axis.
Result<Imported> import_graph(const file::ModelProto& model, const std::string& folder,
                              const ImportOptions& options);
Result<Imported> import_file(const std::string& path, const ImportOptions& options);

}  // namespace bowline::onnx
