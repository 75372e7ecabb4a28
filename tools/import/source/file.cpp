#include "source/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/escape.h"
#include "base/status.h"

namespace bowline::import {

Result<std::shared_ptr<const File>> File::open(const std::string& path) {
  // O_NONBLOCK: open() must not wait for the writer of a pipe, which is rejected below.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  BOWLINE_REQUIRE_CODE(fd >= 0, Code::bad_file, "\"{}\" cannot be read: {}.", escaped(path),
                       std::strerror(errno));
  struct stat info {};
  const bool regular = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  std::shared_ptr<const File> file(
      new File(path, fd, regular ? static_cast<uint64_t>(info.st_size) : 0));
  BOWLINE_REQUIRE_CODE(regular, Code::bad_file, "\"{}\" is not a regular file.", escaped(path));
  return file;
}

File::~File() { ::close(fd_); }

Status File::read(uint64_t first, std::span<std::byte> out) const {
  BOWLINE_REQUIRE_CODE(first <= bytes_ && out.size() <= bytes_ - first, Code::bad_file,
                       "\"{}\" has {} bytes. Reading {} bytes from offset {} exceeds them.",
                       escaped(path_), bytes_, out.size(), first);
  for (size_t done = 0; done < out.size();) {
    const ssize_t got =
        ::pread(fd_, out.data() + done, out.size() - done, static_cast<off_t>(first + done));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    BOWLINE_REQUIRE_CODE(got > 0, Code::io_error, "\"{}\" cannot be read at byte {}: {}.",
                         escaped(path_), first + done,
                         got == 0 ? "the file ends there" : std::strerror(errno));
    done += static_cast<size_t>(got);
  }
  return {};
}

ValueSource bytes_of(std::shared_ptr<const File> file, uint64_t first, uint64_t bytes) {
  return [file = std::move(file), first, bytes](uint64_t from, std::span<std::byte> out) -> Status {
    BOWLINE_REQUIRE(from <= bytes && out.size() <= bytes - from,
                    "Reading {} bytes from offset {} exceeds the tensor of {} bytes.", out.size(),
                    from, bytes);
    return file->read(first + from, out);
  };
}

std::string place_of(const File& file, uint64_t first) {
  return fmt::format("{}:{}", file.path(), first);
}

Result<std::string> read_whole(const std::string& path, uint64_t most) {
  BOWLINE_TRY_ASSIGN(const std::shared_ptr<const File> file, File::open(path));
  BOWLINE_REQUIRE_CODE(file->bytes() <= most, Code::bad_file,
                       "\"{}\" has {} bytes, more than the limit of {}.", escaped(path),
                       file->bytes(), most);
  std::string out(file->bytes(), '\0');
  BOWLINE_TRY(file->read(0, std::as_writable_bytes(std::span(out))));
  return out;
}

Status check_inside(const std::string& folder, const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path root = fs::canonical(folder, error);
  const fs::path file = error ? fs::path() : fs::canonical(path, error);
  if (error) {
    return {};
  }
  const auto is_in = [&](const fs::path& parent) {
    return std::ranges::mismatch(parent, file).in1 == parent.end();
  };
  const bool is_cached = root.parent_path().filename() == "snapshots" &&
                         is_in(root.parent_path().parent_path() / "blobs");
  BOWLINE_REQUIRE_CODE(is_in(root) || is_cached, Code::bad_file,
                       "\"{}\" is a link to \"{}\", which is outside of the folder. If you trust "
                       "it, replace the link with a copy of the file.",
                       escaped(path), escaped(file.string()));
  return {};
}

}  // namespace bowline::import
