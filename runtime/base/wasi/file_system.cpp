// Files of WASI: those of the folders that the host opens for the program. There are no locks, no
// permissions and no mappings: a mapping is a copy in memory.
#include "base/file_system.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace bowline {
namespace {

int fill(int result, const struct stat& info, FileStatus& out) {
  out.kind = S_ISREG(info.st_mode)   ? FileStatus::Kind::regular
             : S_ISDIR(info.st_mode) ? FileStatus::Kind::folder
                                     : FileStatus::Kind::other;
  out.size = static_cast<uint64_t>(info.st_size);
  out.volume = static_cast<uint64_t>(info.st_dev);
  out.number = static_cast<uint64_t>(info.st_ino);
  return result;
}

int flags_of(FileSystem::OpenFor use) {
  switch (use) {
    case FileSystem::OpenFor::writing:
      return O_WRONLY | O_CREAT | O_NOFOLLOW;
    case FileSystem::OpenFor::folder:
      return O_RDONLY | O_DIRECTORY;
    case FileSystem::OpenFor::reading:
      break;
  }
  return O_RDONLY;
}

}  // namespace

int FileSystem::open(const char* path, OpenFor use) { return ::open(path, flags_of(use), 0666); }

int FileSystem::open_beneath(int folder, const char* path) { return open_in_steps(folder, path); }

int FileSystem::open_in_steps(int folder, const char* path) {
  const char* rest = path;
  int at = folder;
  while (const char* slash = std::strchr(rest, '/')) {
    const std::string name(rest, slash);
    const int next = openat(at, name.c_str(), O_RDONLY | O_NOFOLLOW | O_DIRECTORY);
    const int error = errno;
    if (at != folder) {
      ::close(at);
    }
    if (next < 0) {
      errno = error;
      return -1;
    }
    at = next;
    rest = slash + 1;
  }
  const int fd = openat(at, rest, O_RDONLY | O_NOFOLLOW);
  const int error = errno;
  if (at != folder) {
    ::close(at);
  }
  errno = error;
  return fd;
}

int FileSystem::status(int fd, FileStatus& out) {
  struct stat info {};
  return fill(fstat(fd, &info), info, out);
}
int FileSystem::status(const char* path, FileStatus& out) {
  struct stat info {};
  return fill(stat(path, &info), info, out);
}

// WASI does not tell. A write that finds no room fails.
int FileSystem::free_bytes(int, uint64_t& out) {
  out = UINT64_MAX;
  return 0;
}

int FileSystem::lock(int) { return 0; }
int FileSystem::set_mode(int, uint32_t) { return 0; }
int FileSystem::truncate(int fd, uint64_t size) { return ftruncate(fd, static_cast<off_t>(size)); }
int64_t FileSystem::read(int fd, void* data, size_t size) { return ::read(fd, data, size); }
int64_t FileSystem::read_at(int fd, void* data, size_t size, uint64_t offset) {
  return ::pread(fd, data, size, static_cast<off_t>(offset));
}
int64_t FileSystem::write(int fd, const void* data, size_t size) { return ::write(fd, data, size); }

// A host without fsync for folders is no failure of the program.
int FileSystem::sync(int fd) {
  return fsync(fd) == 0 || errno == ENOSYS || errno == ENOTSUP || errno == EINVAL ? 0 : -1;
}
int FileSystem::close(int fd) { return ::close(fd); }
int FileSystem::rename(const char* from, const char* to) { return ::rename(from, to); }
int FileSystem::unlink(const char* path) { return ::unlink(path); }
int FileSystem::make_folder(const char* path) { return mkdir(path, 0777); }

void* FileSystem::map(int fd, size_t size, uint64_t offset) {
  constexpr size_t kAlignment = 64, kMost = size_t{1} << 30;
  if (size > SIZE_MAX - kAlignment) {
    errno = ENOMEM;
    return nullptr;
  }
  auto* const data = static_cast<char*>(
      std::aligned_alloc(kAlignment, (size + kAlignment - 1) / kAlignment * kAlignment));
  for (size_t done = 0; data != nullptr && done < size;) {
    const size_t piece = size - done < kMost ? size - done : kMost;
    const ssize_t n = ::pread(fd, data + done, piece, static_cast<off_t>(offset + done));
    if (n <= 0) {
      errno = n == 0 ? EIO : errno;
      std::free(data);
      return nullptr;
    }
    done += static_cast<size_t>(n);
  }
  return data;
}
void FileSystem::unmap(void* data, size_t) { std::free(data); }
int FileSystem::forget(void*, size_t) { return 0; }

FileSystem& real_file_system() {
  static FileSystem system;
  return system;
}

}  // namespace bowline
