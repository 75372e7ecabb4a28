// Opens a model file and maps it; the FlatBuffer part is copied, so that a later writer cannot
// change it.
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

// A whole file, mapped read-only, or read where others may write it meanwhile.
class MappedFile {
 public:
  enum class Access : uint8_t { map, read };

  // Errors  io_error: it cannot be opened or read, or is not a regular file.
  static Result<std::shared_ptr<MappedFile>> open(const std::string& path,
                                                  FileSystem& files = real_file_system(),
                                                  Access access = Access::map);
  // Opens `relative` beneath the folder of this file, without following links, with the same
  // access.
  // Errors  io_error: it cannot be opened so, or is not a regular file.
  Result<std::shared_ptr<MappedFile>> open_sibling(const std::string& relative,
                                                   FileSystem& files = real_file_system()) const;
  // A file that lies in memory; `path` is used in messages.
  static std::shared_ptr<MappedFile> from_bytes(std::vector<std::byte> bytes, std::string path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // Gives the memory of these pages back; who touches them again reads the file again. The bytes of
  // a file that was not mapped stay.
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
  uint64_t offset = 0;  // from the begin of the file
  uint64_t length = 0;
  uint64_t xxh3 = 0;
  mutable std::atomic<bool> checked = false;

  // The bytes. Errors  bad_file: they do not match the checksum (computed at the first call: a
  // mapped file that
  // somebody edits later is used as it is then).
  Result<std::span<const std::byte>> bytes() const;
  // Calls part(offset in the range, bytes) for one piece after the other, and forgets each when the
  // call returns: what is read once keeps no
  // memory beside its copy. Errors  those of bytes() and of `part`.
  Status each_piece(const std::function<Status(uint64_t, std::span<const std::byte>)>& part) const;

 private:
  Status check() const;
};

// A range of bytes that lie in memory; `name` is used in messages.
std::shared_ptr<const FileRange> in_memory(std::vector<std::byte> bytes, std::string name);

}  // namespace bowline::detail::model
