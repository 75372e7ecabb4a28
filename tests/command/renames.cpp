// A preloaded library that imitates a file system without renameat2(), like network file systems.
// If $FAIL_RENAME is set, the rename of the C library with this number fails.
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

extern "C" int renameat2(int, const char*, int, const char*, unsigned int) noexcept {
  errno = EINVAL;
  return -1;
}

extern "C" int rename(const char* from, const char* to) noexcept {
  static const auto real =
      reinterpret_cast<int (*)(const char*, const char*)>(dlsym(RTLD_NEXT, "rename"));
  static int count = 0;
  const char* const at = getenv("FAIL_RENAME");
  if (at != nullptr && ++count == atoi(at)) {
    errno = EIO;
    return -1;
  }
  return real(from, to);
}
