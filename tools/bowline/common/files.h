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

// Opens a regular file; `what` begins the message ("Text"), `flags` and `mode` are those of
// open(2).
// Errors  bad_file: it is not there, is not a regular file, or cannot be opened.
Result<Descriptor> open_regular(std::string_view what, const std::string& path, int flags,
                                mode_t mode = 0);

// Reads a regular file of at most `most` bytes and gives it to `take` in pieces.
// Errors  bad_file, or what `take` returns.
Status read_regular(std::string_view what, const std::string& path, uint64_t most,
                    const std::function<Status(std::string_view piece)>& take);

// All of standard input. Errors  io_error: it cannot be read. bad_argument: it has more than `most`
//         bytes.
Result<std::string> read_stdin(size_t most = size_t{64} << 20);

// Writes all bytes. False: errno says why not.
bool write_all(int fd, std::span<const std::byte> bytes);
// A file that appears whole or not at all. Errors  io_error.
Status write_text(const std::string& path, std::string_view text);

// The first bytes of the file are `magic`.
bool begins_with(const std::string& path, std::string_view magic);

// Both paths lead to the same file, or would when the file is made. An empty path leads nowhere.
bool same_place(const std::string& a, const std::string& b);

}  // namespace bowline::command
