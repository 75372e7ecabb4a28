// The system calls of the file layer behind one seam, so that tests can fail each of them.
//
// Every call has the contract of its POSIX namesake: -1 (or a null pointer) with errno set is a
// failure.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace bowline {

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  virtual int open(const char* path, int flags, mode_t mode);
  // Opens `path` for reading beneath the folder, without following links and without leaving it.
  virtual int open_beneath(int folder, const char* path);
  // The same where the kernel has no call for it: folder by folder. `path` has no "..".
  static int open_in_steps(int folder, const char* path);
  virtual int status(int fd, struct stat& out);
  virtual int status(const char* path, struct stat& out);
  virtual int free_bytes(int fd, uint64_t& out);
  virtual int lock(int fd);  // exclusive, without waiting
  virtual int set_mode(int fd, mode_t mode);
  virtual int truncate(int fd, uint64_t size);
  virtual ssize_t read(int fd, void* data, size_t size);
  // Leaves the position of the descriptor as it is.
  virtual ssize_t read_at(int fd, void* data, size_t size, uint64_t offset);
  virtual ssize_t write(int fd, const void* data, size_t size);
  virtual int sync(int fd);
  virtual int close(int fd);
  virtual int rename(const char* from, const char* to);
  virtual int unlink(const char* path);
  // Read-only. The offset is a multiple of the page size.
  virtual void* map(int fd, size_t size, uint64_t offset);
  virtual void unmap(void* data, size_t size);
  virtual int forget(void* data, size_t size);  // whole pages of a mapping; read again when touched
};

// The system itself.
FileSystem& real_file_system();

}  // namespace bowline
