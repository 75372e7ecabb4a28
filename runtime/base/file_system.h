// The system calls of the file layer behind one seam, so that tests can fail each of them.
//
// posix/, windows/ and wasi/ define them. -1 (or a null pointer) with errno set is a failure. Paths
// are UTF-8 on every system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace bowline {

// The characters that separate the folders of a path.
#ifdef _WIN32
inline constexpr std::string_view kPathSeparators = "/\\";
#else
inline constexpr std::string_view kPathSeparators = "/";
#endif

struct FileStatus {
  enum class Kind : uint8_t { regular, folder, other };
  Kind kind = Kind::other;
  uint64_t size = 0;
  uint32_t mode = 0;    // the permissions, where the system has them
  uint64_t volume = 0;  // with `number`, names the file
  uint64_t number = 0;
};

class FileSystem {
 public:
  enum class OpenFor : uint8_t {
    reading,
    writing,  // makes the file if there is none; does not follow a link
    folder,
  };
  virtual ~FileSystem() = default;

  // Opening a pipe does not wait for its other end.
  virtual int open(const char* path, OpenFor use);
  // Opens `path` for reading beneath the folder, without following links and without leaving it.
  virtual int open_beneath(int folder, const char* path);
  // The same where the system has no call for it: folder by folder. `path` has no "..".
  static int open_in_steps(int folder, const char* path);
  virtual int status(int fd, FileStatus& out);
  virtual int status(const char* path, FileStatus& out);
  virtual int free_bytes(int fd, uint64_t& out);
  virtual int lock(int fd);  // exclusive, without waiting
  virtual int set_mode(int fd, uint32_t mode);
  virtual int truncate(int fd, uint64_t size);
  virtual int64_t read(int fd, void* data, size_t size);
  // Leaves the position of the descriptor as it is.
  virtual int64_t read_at(int fd, void* data, size_t size, uint64_t offset);
  virtual int64_t write(int fd, const void* data, size_t size);
  virtual int sync(int fd);
  virtual int close(int fd);
  virtual int rename(const char* from, const char* to);
  virtual int unlink(const char* path);
  virtual int make_folder(const char* path);
  // Read-only. The offset is a multiple of mapping_alignment() (memory.h).
  virtual void* map(int fd, size_t size, uint64_t offset);
  virtual void unmap(void* data, size_t size);
  virtual int forget(void* data, size_t size);  // whole pages of a mapping; read again when touched
};

// The system itself.
FileSystem& real_file_system();

}  // namespace bowline
