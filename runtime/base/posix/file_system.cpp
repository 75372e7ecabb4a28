#include "base/file_system.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

// Android ends an app that calls openat2, instead of returning ENOSYS.
#if __has_include(<linux/openat2.h>) && !defined(__ANDROID__)
#include <linux/openat2.h>
#include <sys/syscall.h>
#endif

namespace bowline {
namespace {

constexpr int kReadFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW;

int fill(int result, const struct stat& info, FileStatus& out) {
  out.kind = S_ISREG(info.st_mode)   ? FileStatus::Kind::regular
             : S_ISDIR(info.st_mode) ? FileStatus::Kind::folder
                                     : FileStatus::Kind::other;
  out.size = static_cast<uint64_t>(info.st_size);
  out.mode = info.st_mode & 07777;
  out.volume = static_cast<uint64_t>(info.st_dev);
  out.number = static_cast<uint64_t>(info.st_ino);
  return result;
}

int flags_of(FileSystem::OpenFor use) {
  switch (use) {
    case FileSystem::OpenFor::writing:
      return O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK;
    case FileSystem::OpenFor::folder:
      return O_RDONLY | O_DIRECTORY;
    case FileSystem::OpenFor::reading:
      break;
  }
  return O_RDONLY | O_NONBLOCK;
}

}  // namespace

int FileSystem::open(const char* path, OpenFor use) {
  return ::open(path, flags_of(use) | O_CLOEXEC, 0666);
}

int FileSystem::open_beneath(int folder, const char* path) {
#ifdef RESOLVE_BENEATH
  open_how how{};
  how.flags = static_cast<uint64_t>(kReadFlags);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
  const long fd = syscall(SYS_openat2, folder, path, &how, sizeof(how));
  if (fd >= 0 || (errno != ENOSYS && errno != EPERM)) {
    return static_cast<int>(fd);
  }
#endif
  return open_in_steps(folder, path);
}

// Kernels before 5.6 lack openat2: each folder of the path is opened in turn, none of them through
// a link.
int FileSystem::open_in_steps(int folder, const char* path) {
  const char* rest = path;
  int at = folder;
  while (const char* slash = std::strchr(rest, '/')) {
    const std::string name(rest, slash);
    const int next = openat(at, name.c_str(), kReadFlags | O_DIRECTORY);
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
  const int fd = openat(at, rest, kReadFlags);
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

int FileSystem::free_bytes(int fd, uint64_t& out) {
  struct statvfs info;
  if (fstatvfs(fd, &info) != 0) {
    return -1;
  }
  out = static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
  return 0;
}

int FileSystem::lock(int fd) { return flock(fd, LOCK_EX | LOCK_NB); }
int FileSystem::set_mode(int fd, uint32_t mode) { return fchmod(fd, static_cast<mode_t>(mode)); }
int FileSystem::truncate(int fd, uint64_t size) { return ftruncate(fd, static_cast<off_t>(size)); }
int64_t FileSystem::read(int fd, void* data, size_t size) { return ::read(fd, data, size); }
int64_t FileSystem::read_at(int fd, void* data, size_t size, uint64_t offset) {
  return ::pread(fd, data, size, static_cast<off_t>(offset));
}
int64_t FileSystem::write(int fd, const void* data, size_t size) { return ::write(fd, data, size); }
int FileSystem::sync(int fd) { return fsync(fd); }
int FileSystem::close(int fd) { return ::close(fd); }
int FileSystem::rename(const char* from, const char* to) { return ::rename(from, to); }
int FileSystem::unlink(const char* path) { return ::unlink(path); }
int FileSystem::make_folder(const char* path) { return mkdir(path, 0777); }

void* FileSystem::map(int fd, size_t size, uint64_t offset) {
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, static_cast<off_t>(offset));
  return data == MAP_FAILED ? nullptr : data;
}
void FileSystem::unmap(void* data, size_t size) { munmap(data, size); }
int FileSystem::forget(void* data, size_t size) { return madvise(data, size, MADV_DONTNEED); }

FileSystem& real_file_system() {
  static FileSystem system;
  return system;
}

}  // namespace bowline
