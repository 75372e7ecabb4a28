// Reads tensors whose bytes are in a file beside the model.
//
// Source  ONNX, "External Data": location, offset and length. A location is relative to the folder
//         of the model.
#pragma once

#include <string>
#include <vector>

#include "bowline.h"

namespace bowline::onnx {

namespace file {
class TensorProto;
}

// Returns the `bytes` bytes of a tensor.
// Errors  bad_file: the location is absolute, leaves `folder` or is a link, or the file is too
//         short.
Result<std::vector<std::byte>> external_bytes(const file::TensorProto& tensor,
                                              const std::string& folder, uint64_t bytes);

}  // namespace bowline::onnx
