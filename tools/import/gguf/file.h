// Parses GGUF files, versions 2 and 3, little endian. Nothing is copied: names, texts and arrays
// are views of the file's bytes. Every tensor is inside the file.
//
//   head and metadata (base/gguf.h)
//   tensors   name, rank u32, dims u64 each (the contiguous dim first), type u32, offset u64 from
//       the start of the data
//   data      starts at a multiple of general.alignment (32), as does every tensor
//
// Source  ggml/docs/gguf.md of ggml.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/gguf.h"
#include "bowline.h"
#include "gguf/types.h"

namespace bowline::gguf {

struct TensorEntry {
  std::string_view name;
  const TensorType* type = nullptr;
  // Row-major: the last dim is contiguous. The file has the opposite order.
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

class File : public Header {
 public:
  // Memory-maps a regular file. If another program truncates the file later, SIGBUS ends this one.
  // Errors  io_error: the file cannot be read. bad_file: the message says what and where.
  static Result<std::shared_ptr<const File>> open(const std::string& path);
  // Parses bytes, which must outlive the File.
  static Result<File> parse(std::span<const std::byte> bytes);

  File(File&&) = default;

  uint64_t alignment = 32;
  std::vector<TensorEntry> tensors;
  std::span<const std::byte> bytes;

 private:
  explicit File(Header metadata) : Header(std::move(metadata)) {}
  std::shared_ptr<const void> mapping_;
};

}  // namespace bowline::gguf
