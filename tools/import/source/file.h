// A file of a model, read where it lies: nothing of it is kept in memory.
#pragma once

#include <memory>
#include <string>

#include "bowline.h"

namespace bowline::import {

// A regular file that stays open. Any thread.
class File {
 public:
  // Errors  bad_file: it is not there, is no regular file, or cannot be opened.
  static Result<std::shared_ptr<const File>> open(const std::string& path);
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::string& path() const { return path_; }
  uint64_t bytes() const { return bytes_; }
  // Bytes [first, first + out.size()). Errors  bad_file: the file has not so many; io_error.
  Status read(uint64_t first, std::span<std::byte> out) const;

 private:
  File(std::string path, int fd, uint64_t bytes) : path_(std::move(path)), fd_(fd), bytes_(bytes) {}
  std::string path_;
  int fd_;
  uint64_t bytes_;
};

// `bytes` bytes from `first` on, which lie inside the file, as the values of a tensor.
ValueSource bytes_of(std::shared_ptr<const File> file, uint64_t first, uint64_t bytes);
// As SourceTensor::place.
std::string place_of(const File& file, uint64_t first);

// A whole file of at most `most` bytes. Errors  bad_file, io_error.
Result<std::string> read_whole(const std::string& path, uint64_t most);

// Checks that a file of a folder lies in the folder, after all links are followed. A link may also
// lead to the blobs of the Hugging Face cache in which the folder lies (snapshots/REVISION beside
// blobs).
// Errors  bad_file: it lies elsewhere. A missing file is no error.
Status check_inside(const std::string& folder, const std::string& path);

}  // namespace bowline::import
