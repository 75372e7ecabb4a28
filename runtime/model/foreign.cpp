#include "model/foreign.h"

#include <algorithm>
#include <cstdint>

#include "base/utf8.h"

namespace bowline::detail::model {
namespace {

using namespace std::string_view_literals;

struct Signature {
  size_t offset;
  std::string_view bytes;
  std::string_view format;
};

// The signatures are from the specification of each format.
constexpr Signature kSignatures[] = {
    {0, "GGUF"sv, "a GGUF file"},
    {0, "lmgg"sv, "a GGML file"},
    {0, "PK\x03\x04"sv, "a ZIP archive (as PyTorch, Keras and NumPy's .npz write)"},
    {0, "\x93NUMPY"sv, "a NumPy array"},
    {0, "\x1F\x8B"sv, "a gzip file"},
    {0, "\x28\xB5\x2F\xFD"sv, "a Zstandard file"},
    {0,
     "\xFD"
     "7zXZ\0"sv,
     "an xz file"},
    {0, "BZh"sv, "a bzip2 file"},
    {0, "\x89HDF\r\n\x1A\n"sv, "an HDF5 file (as Keras writes)"},
    {4, "TFL3"sv, "a TensorFlow Lite model"},
    {257, "ustar"sv, "a tar archive"},
    {0,
     "\x7F"
     "ELF"sv,
     "a program (ELF)"},
    {0, "%PDF"sv, "a PDF document"},
};

std::string_view as_text(std::span<const std::byte> file) {
  return {reinterpret_cast<const char*>(file.data()), file.size()};
}

// 8 bytes with the length of a JSON header, then the header.
bool is_safetensors(std::string_view file, uint64_t file_bytes) {
  if (file.size() < 10 || file[8] != '{') {
    return false;
  }
  uint64_t length = 0;
  for (size_t i = 8; i-- > 0;) {
    length = length << 8 | static_cast<uint8_t>(file[i]);
  }
  return length >= 2 && length <= file_bytes - 8;
}

// Protocol 2 to 5, then an opcode that may begin a pickle file.
bool is_pickle(std::string_view file) {
  return file.size() > 2 && file[0] == '\x80' && file[1] >= 2 && file[1] <= 5 &&
         "}](\x8a\x95"
         "cXK"sv.find(file[2]) != std::string_view::npos;
}

// A protocol buffer whose first field is ir_version, followed by a string field (the producer) or
// the graph.
bool is_onnx(std::string_view file) {
  return file.size() > 4 && file[0] == '\x08' && file[1] > 0 && file[1] < 32 &&
         (file[2] == '\x12' || file[2] == '\x1A' || file[2] == '\x3A' || file[2] == '\x42');
}

// The beginning of a text. Its last character may be cut off.
bool is_text(std::string_view file, uint64_t file_bytes) {
  std::string_view head = file.substr(0, 512);
  const bool cut = head.size() < file_bytes;
  while (!head.empty()) {
    const size_t n = utf8_length(head);
    const auto c = static_cast<uint8_t>(head[0]);
    if (n == 0) {
      return cut && head.size() < 4;
    }
    if (c < 0x20 && c != '\n' && c != '\r' && c != '\t' && c != '\f') {
      return false;
    }
    head.remove_prefix(n);
  }
  return true;
}

}  // namespace

std::string_view foreign_format(std::span<const std::byte> head, uint64_t file_bytes) {
  const std::string_view file = as_text(head);
  if (file.empty()) {
    return "an empty file";
  }
  for (const Signature& s : kSignatures) {
    if (file.size() >= s.offset && file.substr(s.offset).starts_with(s.bytes)) {
      return s.format;
    }
  }
  return is_safetensors(file, file_bytes) ? "a safetensors file"
         : is_pickle(file)                ? "a Python pickle (as older PyTorch writes)"
         : is_onnx(file)                  ? "an ONNX model"
         : is_text(file, file_bytes)      ? "a text file"
                                          : "";
}

}  // namespace bowline::detail::model
