#include "base/read_file.h"

#include <cerrno>

#include "base/atomic_file.h"

namespace bowline {

Result<std::optional<std::string>> read_file(std::string_view what, const std::string& path,
                                             uint64_t most, FileSystem& files) {
  const int fd = files.open(path.c_str(), FileSystem::OpenFor::reading);
  if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) {
    return std::optional<std::string>();
  }
  const auto failed = [&](std::string_view why) {
    return Status(Code::io_error, format("{} \"{}\" cannot be read: {}.", what, path, why));
  };
  if (fd < 0) {
    return failed(error_text(errno));
  }
  FileStatus status;
  const bool is_file = files.status(fd, status) == 0 && status.kind == FileStatus::Kind::regular;
  const uint64_t size = is_file ? status.size : 0;
  std::string text(size <= most ? static_cast<size_t>(size) : 0, '\0');
  const int64_t bytes = files.read(fd, text.data(), text.size());
  const std::string error = error_text(errno);
  files.close(fd);
  if (!is_file) {
    return failed("it is not a regular file");
  }
  if (bytes < 0) {
    return failed(error);
  }
  text.resize(static_cast<size_t>(bytes));
  return std::optional(std::move(text));
}

}  // namespace bowline
