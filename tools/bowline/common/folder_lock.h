// One process at a time writes into a folder.
#pragma once

#include <string>

#include "common/files.h"

namespace bowline::command {

// Held while it lives. The kernel releases the lock when the process dies, however it dies; a clean
// end removes the lock file too.
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
