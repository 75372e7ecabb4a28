// A preloaded library that ends the command with SIGKILL at its n-th file operation, n = $KILL_AT.
// The operation is not executed. Of a write, the first half is executed. All writes to the file
// $FAIL_WRITE except the first fail, as on a full disk.
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

bool reached() {
  static int count = 0;
  const char* at = getenv("KILL_AT");
  return at != nullptr && ++count == atoi(at);
}

void end() {
  kill(getpid(), SIGKILL);
  pause();
}

bool is_file(int fd) {
  struct stat s;
  return fstat(fd, &s) == 0 && S_ISREG(s.st_mode);
}

bool is_full(int fd) {
  const char* path = getenv("FAIL_WRITE");
  struct stat opened;
  struct stat named;
  static int count = 0;
  return path != nullptr && fstat(fd, &opened) == 0 && stat(path, &named) == 0 &&
         opened.st_ino == named.st_ino && ++count > 1;
}

template <class F>
F next(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" ssize_t write(int fd, const void* bytes, size_t count) {
  static const auto real = next<ssize_t (*)(int, const void*, size_t)>("write");
  if (is_full(fd)) {
    errno = ENOSPC;
    return -1;
  }
  if (is_file(fd) && reached()) {
    (void)!real(fd, bytes, count / 2);
    end();
  }
  return real(fd, bytes, count);
}

extern "C" int fsync(int fd) {
  static const auto real = next<int (*)(int)>("fsync");
  if (reached()) {
    end();
  }
  return real(fd);
}

extern "C" int rename(const char* from, const char* to) noexcept {
  static const auto real = next<int (*)(const char*, const char*)>("rename");
  if (reached()) {
    end();
  }
  return real(from, to);
}
