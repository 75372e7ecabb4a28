// Opens a model file: maps it into memory, reads it, or takes its bytes from the program.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "base/status.h"
#include "bowline.h"

namespace bowline::detail::model {

// A whole file: memory-mapped read-only, read into memory if other programs may write to it, in
// memory of the program, or read by a callback.
class MappedFile {
 public:
  enum class Access : uint8_t { map, read };
  static Access access_of(const OpenOptions& options) {
    return options.memory_map ? Access::map : Access::read;
  }

  // Errors  io_error: the file cannot be opened or read, or is not a regular file.
  static Result<std::shared_ptr<MappedFile>> open(const std::string& path,
                                                  FileSystem& files = real_file_system(),
                                                  Access access = Access::map);
  // Opens the file `relative` in or below the folder of this file, with the same access. Does not
  // follow links.
  // Errors  io_error: the file cannot be opened in this way, or is not a regular file.
  //         unsupported: this file has no path.
  Result<std::shared_ptr<MappedFile>> open_sibling(const std::string& relative,
                                                   FileSystem& files = real_file_system()) const;
  // Makes a file from a part of an open file. 0 bytes: the part reaches to the end. The descriptor
  // is not used after the call.
  // Errors  bad_argument: the descriptor is not open, or is not of a regular file.
  //         bad_file: the file ends before the end of the part.
  //         io_error: the file cannot be mapped or read.
  static Result<std::shared_ptr<MappedFile>> of_descriptor(int fd, uint64_t offset, uint64_t bytes,
                                                           FileSystem& files = real_file_system(),
                                                           Access access = Access::map);
  // Makes a file from memory of the program, which must outlive it unchanged. Access::read copies.
  static std::shared_ptr<MappedFile> of_memory(std::span<const std::byte> bytes,
                                               Access access = Access::map);
  // Makes a file that a callback reads. Access::read reads all of it now.
  // Errors  bad_argument: the callback is empty. Errors of the callback.
  static Result<std::shared_ptr<MappedFile>> of_reader(ModelReader reader,
                                                       Access access = Access::map);
  // Makes a file from bytes in memory. `path` is its name in messages.
  static std::shared_ptr<MappedFile> from_bytes(std::vector<std::byte> bytes, std::string path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  uint64_t size() const { return size_; }
  // Returns true if values in the file can be used where they are: they are in memory, and aligned
  // as operator new aligns.
  bool is_in_place() const;
  // Copies bytes [first, first + out.size()) to `out`. They must be in the file.
  // Errors  those of the callback.
  Status copy(uint64_t first, std::span<std::byte> out) const;
  // Returns bytes [first, first + count), which must be in the file. They are in memory already, or
  // are copied to `scratch`.
  // Errors  those of the callback.
  Result<std::span<const std::byte>> read(uint64_t first, uint64_t count,
                                          std::vector<std::byte>& scratch) const;
  // Calls part(offset from `first`, bytes) for each piece of [first, first + count), in order.
  // Releases the memory of each piece after its call.
  // Errors  those of the callback, and errors of `part`.
  using Part = std::function<Status(uint64_t, std::span<const std::byte>)>;
  Status each_piece(uint64_t first, uint64_t count, const Part& part) const;
  // The bytes of a file in memory. Empty if a callback reads the file.
  std::span<const std::byte> bytes() const { return {data_, data_ == nullptr ? 0 : size_}; }
  // The name in messages: a path in quotes, or a place such as: descriptor 5
  const std::string& name() const { return name_; }

 private:
  MappedFile() = default;
  static Result<std::shared_ptr<MappedFile>> take(int fd, std::string path, FileSystem& files,
                                                  Access access);
  Status fill(int fd, uint64_t offset, uint64_t size, FileSystem& files);
  Status map(int fd, uint64_t offset, uint64_t size, FileSystem& files);
  Status load(int fd, uint64_t offset, uint64_t size, FileSystem& files);
  void own(std::vector<std::byte> bytes);
  // Releases the memory of these pages. The next access reads them from the file again. Has no
  // effect if the file is not mapped.
  void forget(uint64_t offset, uint64_t length) const;

  std::string path_;  // empty: no siblings can be opened
  std::string name_;
  Access access_ = Access::map;
  FileSystem* files_ = nullptr;  // null: not mapped
  std::span<std::byte> pages_;   // the mapping, which may begin before the file
  std::vector<std::byte> owned_;
  ModelReader reader_;               // used if the bytes are not in memory
  const std::byte* data_ = nullptr;  // null: the bytes are not in memory
  uint64_t size_ = 0;
};

// A verified byte range of a file, with its checksum.
struct FileRange {
  std::shared_ptr<MappedFile> file;
  uint64_t offset = 0;  // from the start of the file
  uint64_t length = 0;
  uint64_t xxh3 = 0;
  mutable std::atomic<bool> checked = false;

  // Returns bytes [first, first + count) of the range, aligned as in memory from operator new. They
  // are in memory already, or are copied to `scratch`. The first call computes the checksum of the
  // range; later changes of a mapped file are not detected.
  // Errors  bad_file: the bytes do not match the checksum. Errors of the callback that reads them.
  Result<std::span<const std::byte>> read(uint64_t first, uint64_t count,
                                          std::vector<std::byte>& scratch) const;
  // Returns all bytes of the range. Errors  as read().
  Result<std::vector<std::byte>> copy() const;
  // Calls part(offset in the range, bytes) for each piece of the range, in order. Releases the
  // memory of each piece after its call. If the checksum was not computed yet, a mismatch is found
  // after the last call.
  // Errors  as read(), and errors of `part`.
  Status each_piece(const MappedFile::Part& part) const;
  // Computes the checksum, if it was not computed yet. Errors  as read().
  Status check() const;

 private:
  Status compare(uint64_t found) const;
};

// Makes a range from bytes in memory. `name` is used in messages.
std::shared_ptr<const FileRange> in_memory(std::vector<std::byte> bytes, std::string name);

}  // namespace bowline::detail::model
