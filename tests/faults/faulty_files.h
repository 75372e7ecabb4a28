// The file system with a failing n-th operation.
#pragma once

#include <algorithm>
#include <cerrno>

#include "base/file_system.h"

namespace bowline::test {

class FaultyFiles : public FileSystem {
 public:
  // Operation number `n` fails with `error`, once. EINTR and short writes apply only to writes.
  void arm(int n, int error, bool short_write = false) {
    fail_at_ = n;
    error_ = error;
    short_write_ = short_write;
    calls_ = 0;
  }
  bool fired() const { return fail_at_ > 0 && calls_ >= fail_at_; }
  int calls() const { return calls_; }
  int open_descriptors() const { return open_; }

  int open(const char* path, OpenFor use) override {
    return fails() ? -1 : opened(FileSystem::open(path, use));
  }
  int open_beneath(int folder, const char* path) override {
    return fails() ? -1 : opened(FileSystem::open_beneath(folder, path));
  }
  int status(int fd, FileStatus& out) override {
    return fails() ? -1 : FileSystem::status(fd, out);
  }
  int status(const char* path, FileStatus& out) override {
    return fails() ? -1 : FileSystem::status(path, out);
  }
  int free_bytes(int fd, uint64_t& out) override {
    return fails() ? -1 : FileSystem::free_bytes(fd, out);
  }
  int lock(int fd) override { return fails() ? -1 : FileSystem::lock(fd); }
  int set_mode(int fd, uint32_t mode) override {
    return fails() ? -1 : FileSystem::set_mode(fd, mode);
  }
  int truncate(int fd, uint64_t size) override {
    return fails() ? -1 : FileSystem::truncate(fd, size);
  }
  int64_t read(int fd, void* data, size_t size) override {
    return fails() ? -1 : FileSystem::read(fd, data, size);
  }
  int64_t read_at(int fd, void* data, size_t size, uint64_t offset) override {
    return fails() ? -1 : FileSystem::read_at(fd, data, size, offset);
  }
  int64_t write(int fd, const void* data, size_t size) override {
    if (!fails()) {
      return FileSystem::write(fd, data, size);
    }
    return short_write_ ? FileSystem::write(fd, data, std::max<size_t>(1, size / 2)) : -1;
  }
  int sync(int fd) override { return fails() ? -1 : FileSystem::sync(fd); }
  int close(int fd) override {
    --open_;
    const int result = FileSystem::close(fd);
    return fails() ? -1 : result;
  }
  int rename(const char* from, const char* to) override {
    return fails() ? -1 : FileSystem::rename(from, to);
  }
  int unlink(const char* path) override { return fails() ? -1 : FileSystem::unlink(path); }
  void* map(int fd, size_t size, uint64_t offset) override {
    return fails() ? nullptr : FileSystem::map(fd, size, offset);
  }

 private:
  bool fails() {
    ++calls_;
    errno = calls_ == fail_at_ ? error_ : errno;
    return calls_ == fail_at_;
  }
  int opened(int fd) {
    open_ += fd >= 0 ? 1 : 0;
    return fd;
  }
  int fail_at_ = 0;
  int error_ = EIO;
  bool short_write_ = false;
  int calls_ = 0;
  int open_ = 0;
};

}  // namespace bowline::test
