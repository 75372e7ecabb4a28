// Files of a model. Their bytes are read on demand and not kept in memory.
#pragma once

#include <memory>
#include <string>

#include "bowline.h"

namespace bowline::import {

// A regular file that stays open. Thread-safe.
class File {
 public:
  // Errors  bad_file: the file is missing, is not a regular file, or cannot be opened.
  static Result<std::shared_ptr<const File>> open(const std::string& path);
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::string& path() const { return path_; }
  uint64_t bytes() const { return bytes_; }
  // Reads bytes [first, first + out.size()). Errors  bad_file: the file is too short; io_error.
  Status read(uint64_t first, std::span<std::byte> out) const;

 private:
  File(std::string path, int fd, uint64_t bytes) : path_(std::move(path)), fd_(fd), bytes_(bytes) {}
  std::string path_;
  int fd_;
  uint64_t bytes_;
};

// Returns `bytes` bytes from offset `first` as the values of a tensor. They must be inside the
// file.
ValueSource bytes_of(std::shared_ptr<const File> file, uint64_t first, uint64_t bytes);
// Returns an identifier of the file and offset, for SourceTensor::place.
std::string place_of(const File& file, uint64_t first);

// Reads a whole file of at most `most` bytes. Errors  bad_file, io_error.
Result<std::string> read_whole(const std::string& path, uint64_t most);

// Checks that a file is inside its folder after all links are followed. A link may also lead to the
// blobs of a Hugging Face cache that contains the folder (snapshots/REVISION beside blobs). A
// missing file is accepted.
// Errors  bad_file: the file is elsewhere.
Status check_inside(const std::string& folder, const std::string& path);

}  // namespace bowline::import
