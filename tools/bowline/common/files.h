// Files that a user names. Only regular files are opened, and opening never waits for another
// process.
#pragma once

#include <sys/types.h>

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "bowline.h"

namespace bowline::command {

// Owns a file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  int get() const { return fd_; }
  int release();

 private:
  int fd_ = -1;
};

// Opens a regular file. `what` is the first word of an error message ("Text"). `flags` and `mode`:
// as for open(2).
// Errors  bad_file: the file is missing, is not a regular file, or cannot be opened.
Result<Descriptor> open_regular(std::string_view what, const std::string& path, int flags,
                                mode_t mode = 0);

// Reads a regular file of at most `most` bytes and calls `take` with consecutive parts.
// Errors  bad_file; those of `take`.
Status read_regular(std::string_view what, const std::string& path, uint64_t most,
                    const std::function<Status(std::string_view piece)>& take);

// As read_regular(). Returns the whole file.
Result<std::string> read_file(std::string_view what, const std::string& path, uint64_t most);

// Reads all of standard input.
// Errors  io_error: it cannot be read. bad_argument: it has more than `most` bytes.
Result<std::string> read_stdin(size_t most = size_t{64} << 20);

// Writes all bytes. Returns false and sets errno on failure.
bool write_all(int fd, std::span<const std::byte> bytes);
// Writes a file atomically. Errors  io_error.
Status write_text(const std::string& path, std::string_view text);

// True if the file begins with `magic`.
bool begins_with(const std::string& path, std::string_view magic);

// True if both paths lead to the same file, even if it does not exist yet. False if a path is
// empty.
bool same_place(const std::string& a, const std::string& b);

}  // namespace bowline::command
