// Names of the values of public enums.
#include "bowline_import.h"

namespace bowline {

std::string_view name_of(ImportFormat of) {
  constexpr std::string_view names[] = {"Hugging Face", "GGUF", "ONNX"};
  return names[static_cast<size_t>(of)];
}

std::string_view name_of(ImportTask task) {
  constexpr std::string_view names[] = {"generate", "classify", "embed", "tag"};
  return names[static_cast<size_t>(task)];
}

std::string_view name_of(ImportedTensor::Use use) {
  constexpr std::string_view names[] = {"unexpected", "taken", "tied", "dropped"};
  return names[static_cast<size_t>(use)];
}

std::string_view name_of(ImportProgress::Part part) {
  constexpr std::string_view kNames[] = {"files", "bytes", "tensors", "nodes"};
  return kNames[static_cast<size_t>(part)];
}

}  // namespace bowline
