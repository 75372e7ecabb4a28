#include "common/folder_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/status.h"

namespace bowline::command {
namespace {

constexpr const char* kName = ".bowline-lock";

std::string owner_of(int fd) {
  char text[24] = {};
  const ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
  const std::string pid(text, n > 0 ? static_cast<size_t>(n) : 0);
  return pid.empty() || pid.find_first_not_of("0123456789") != std::string::npos ? "not known"
                                                                                 : pid;
}

// True if the path still names the open file. The previous owner of the lock may have removed the
// file in the meantime.
bool is_named(int fd, const std::string& path) {
  struct stat opened {};
  struct stat named {};
  return fstat(fd, &opened) == 0 && lstat(path.c_str(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

}  // namespace

Result<FolderLock> FolderLock::take(const std::string& folder) {
  const std::string path = folder + "/" + kName;
  const auto failed = [&](std::string_view what) {
    return Status(Code::io_error, fmt::format("Folder \"{}\" cannot be locked: {}: {}.", folder,
                                              what, std::strerror(errno)));
  };
  for (;;) {
    Result<Descriptor> opened =
        open_regular("Lock file", path, O_RDWR | O_CREAT | O_NOFOLLOW, 0666);
    if (!opened.ok()) {
      return std::move(opened).status().as(Code::io_error);
    }
    Descriptor file = std::move(opened).value();
    if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) {
        return failed("flock");
      }
      return Status(Code::io_error,
                    fmt::format("Another run is writing to folder \"{}\": process {}.", folder,
                                owner_of(file.get())));
    }
    if (!is_named(file.get(), path)) {
      continue;
    }
    const std::string pid = std::to_string(getpid());
    if (ftruncate(file.get(), 0) != 0 ||
        pwrite(file.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
      return failed("writing the process number");
    }
    return FolderLock(path, std::move(file));
  }
}

FolderLock::~FolderLock() {
  if (file_.get() >= 0) {
    unlink(path_.c_str());
  }
}

}  // namespace bowline::command
