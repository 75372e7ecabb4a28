// Opens a model file and maps it; the FlatBuffer part is copied, so that a later writer cannot change it.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"

namespace bowline::model {

// A whole file, mapped read-only. Files that others may write while they are open should be read instead.
class MappedFile {
 public:
  // Errors  io_error: it cannot be opened, or is not a regular file.
  static Result<std::shared_ptr<MappedFile>> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  MappedFile() = default;
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// A verified byte range of a file, with its checksum.
struct FileRange {
  std::shared_ptr<MappedFile> file;
  uint64_t offset = 0;  // from the begin of the file
  uint64_t length = 0;
  uint64_t xxh3 = 0;
  mutable std::atomic<bool> checked = false;

  // The bytes. Errors  bad_file: they do not match the checksum (computed at the first call).
  Result<std::span<const std::byte>> bytes() const;
};

}  // namespace bowline::model
