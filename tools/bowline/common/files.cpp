#include "common/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "base/status.h"

namespace bowline::command {
namespace {

constexpr size_t kPiece = size_t{1} << 20;

const char* kind_of(mode_t mode) {
  return S_ISDIR(mode)    ? "a directory"
         : S_ISFIFO(mode) ? "a pipe"
         : S_ISSOCK(mode) ? "a socket"
                          : "a device";
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    Descriptor old(std::exchange(fd_, other.release()));
  }
  return *this;
}

int Descriptor::release() { return std::exchange(fd_, -1); }

Result<Descriptor> open_regular(std::string_view what, const std::string& path, int flags,
                                mode_t mode) {
  const auto refuse = [&](const std::string& why) {
    return Status(Code::bad_file, fmt::format("{} \"{}\" {}.", what, path, why));
  };
  struct stat info {};
  // Opening a device can have side effects, so the kind of the file is checked before opening, and
  // again after it.
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return refuse(fmt::format("is {}, not a regular file", kind_of(info.st_mode)));
  }
  Descriptor file(::open(path.c_str(), flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, mode));
  if (file.get() < 0 || fstat(file.get(), &info) != 0) {
    return refuse(fmt::format("cannot be opened: {}", std::strerror(errno)));
  }
  if (!S_ISREG(info.st_mode)) {
    return refuse(fmt::format("is {}, not a regular file", kind_of(info.st_mode)));
  }
  return file;
}

Status read_regular(std::string_view what, const std::string& path, uint64_t most,
                    const std::function<Status(std::string_view piece)>& take) {
  BOWLINE_TRY_ASSIGN(const Descriptor file, open_regular(what, path, O_RDONLY));
  const auto too_large = [&] {
    return Status(Code::bad_file,
                  fmt::format("{} \"{}\" has more than {} bytes.", what, path, most));
  };
  struct stat info {};
  if (fstat(file.get(), &info) == 0 && static_cast<uint64_t>(info.st_size) > most) {
    return too_large();
  }
  std::vector<char> piece(kPiece);
  for (uint64_t total = 0;;) {
    const ssize_t n = ::read(file.get(), piece.data(), piece.size());
    if (n < 0 && errno == EINTR) {
      continue;
    }
    BOWLINE_REQUIRE_CODE(n >= 0, Code::bad_file, "{} \"{}\" cannot be read: {}.", what, path,
                         std::strerror(errno));
    if (n == 0) {
      return {};
    }
    total += static_cast<uint64_t>(n);
    if (total > most) {
      return too_large();
    }
    BOWLINE_TRY(take({piece.data(), static_cast<size_t>(n)}));
  }
}

Result<std::string> read_file(std::string_view what, const std::string& path, uint64_t most) {
  std::string out;
  BOWLINE_TRY(read_regular(what, path, most, [&](std::string_view piece) {
    out += piece;
    return Status();
  }));
  return out;
}

Result<std::string> read_stdin(size_t most) {
  std::string text;
  std::vector<char> piece(kPiece);
  for (;;) {
    const ssize_t n = ::read(STDIN_FILENO, piece.data(), piece.size());
    if (n < 0 && errno == EINTR) {
      continue;
    }
    BOWLINE_REQUIRE_CODE(n >= 0, Code::io_error, "Standard input cannot be read: {}.",
                         std::strerror(errno));
    if (n == 0) {
      return text;
    }
    text.append(piece.data(), static_cast<size_t>(n));
    BOWLINE_REQUIRE(text.size() <= most, "Standard input has more than {} bytes.", most);
  }
}

bool write_all(int fd, std::span<const std::byte> bytes) {
  constexpr size_t kMost = size_t{1} << 30;  // one write takes less than 2 GiB
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), std::min(bytes.size(), kMost));
    if (n == 0 || (n < 0 && errno != EINTR)) {
      errno = n == 0 ? ENOSPC : errno;
      return false;
    }
    bytes = bytes.subspan(static_cast<size_t>(std::max<ssize_t>(n, 0)));
  }
  return true;
}

Status write_text(const std::string& path, std::string_view text) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
  return write_file(path, {&bytes, 1});
}

bool begins_with(const std::string& path, std::string_view magic) {
  std::string begin(magic.size(), '\0');
  std::ifstream file(path, std::ios::binary);
  return file.read(begin.data(), static_cast<std::streamsize>(begin.size())) && begin == magic;
}

bool same_place(const std::string& a, const std::string& b) {
  namespace fs = std::filesystem;
  if (a.empty() || b.empty()) {
    return false;
  }
  std::error_code error;
  if (fs::equivalent(a, b, error) && !error) {
    return true;
  }
  const fs::path left = fs::weakly_canonical(fs::absolute(a, error), error);
  return left == fs::weakly_canonical(fs::absolute(b, error), error);
}

}  // namespace bowline::command
