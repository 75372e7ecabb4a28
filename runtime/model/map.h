// Opens a model file: maps it into memory, or reads it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "base/status.h"
#include "bowline.h"

namespace bowline::detail::model {

// A whole file: memory-mapped read-only, or read into memory if other programs may write to it.
class MappedFile {
 public:
  enum class Access : uint8_t { map, read };

  // Errors  io_error: the file cannot be opened or read, or is not a regular file.
  static Result<std::shared_ptr<MappedFile>> open(const std::string& path,
                                                  FileSystem& files = real_file_system(),
                                                  Access access = Access::map);
  // Opens the file `relative` in or below the folder of this file, with the same access. Does not
  // follow links.
  // Errors  io_error: the file cannot be opened in this way, or is not a regular file.
  Result<std::shared_ptr<MappedFile>> open_sibling(const std::string& relative,
                                                   FileSystem& files = real_file_system()) const;
  // Makes a file from bytes in memory. `path` is its name in messages.
  static std::shared_ptr<MappedFile> from_bytes(std::vector<std::byte> bytes, std::string path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // Releases the memory of these pages. The next access reads them from the file again. Has no
  // effect if the file is not mapped.
  void forget(uint64_t offset, uint64_t length) const;
  const std::string& path() const { return path_; }

 private:
  MappedFile() = default;
  static Result<std::shared_ptr<MappedFile>> take(int fd, std::string path, FileSystem& files,
                                                  Access access);
  Status map(int fd, uint64_t size, FileSystem& files);
  Status read(int fd, uint64_t size, FileSystem& files);
  std::string path_;
  Access access_ = Access::map;
  FileSystem* files_ = nullptr;  // null: the bytes are owned
  std::vector<std::byte> owned_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// A verified byte range of a file, with its checksum.
struct FileRange {
  std::shared_ptr<MappedFile> file;
  uint64_t offset = 0;  // from the start of the file
  uint64_t length = 0;
  uint64_t xxh3 = 0;
  mutable std::atomic<bool> checked = false;

  // Returns the bytes. The first call computes the checksum; later changes of a mapped file are not
  // detected.
  // Errors  bad_file: the bytes do not match the checksum.
  Result<std::span<const std::byte>> bytes() const;
  // Calls part(offset in the range, bytes) for each piece of the range, in order. Releases the
  // memory of each piece after its call.
  // Errors  as bytes(), and errors of `part`.
  Status each_piece(const std::function<Status(uint64_t, std::span<const std::byte>)>& part) const;

 private:
  Status check() const;
};

// Makes a range from bytes in memory. `name` is used in messages.
std::shared_ptr<const FileRange> in_memory(std::vector<std::byte> bytes, std::string name);

}  // namespace bowline::detail::model
