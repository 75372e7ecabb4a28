// Locks a folder, so that only one process writes to it.
#pragma once

#include <string>

#include "common/files.h"

namespace bowline::command {

// Holds the lock during its lifetime. If the process is killed, the kernel releases the lock. The
// destructor also removes the lock file.
class FolderLock {
 public:
  static Result<FolderLock> take(const std::string& folder);
  ~FolderLock();
  FolderLock(FolderLock&&) = default;
  FolderLock& operator=(FolderLock&&) = delete;

 private:
  FolderLock(std::string path, Descriptor file) : path_(std::move(path)), file_(std::move(file)) {}
  std::string path_;
  Descriptor file_;
};

}  // namespace bowline::command
