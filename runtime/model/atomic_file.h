// A file that appears whole or not at all.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "core/status.h"
#include "model/file_system.h"

namespace bowline::detail::model {

// Writes a temporary file in the folder of `path`; commit() puts it in its place. A writer that
// ends without commit removes it; one that a killed process left is reused by the next. One writer
// at a time per path.
class AtomicFile {
 public:
  // Checks that the folder has room for `bytes`. The file gets the mode of the one that it
  // replaces. Errors  io_error: the folder cannot be written, is full, or another process writes
  // this file now.
  static Result<std::unique_ptr<AtomicFile>> create(const std::string& path, uint64_t bytes,
                                                    FileSystem& files);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // The path that a temporary file of this name becomes, or empty if it is none.
  static std::string target_of(const std::string& temporary);

  Status write(std::span<const std::byte> bytes);
  // What is written lies here until the commit.
  const std::string& temporary() const { return temporary_; }
  // fsync, rename, fsync of the folder. A failure of the last leaves the new file in its place.
  Status commit();

 private:
  AtomicFile(const std::string& path, FileSystem& files);
  Status open();
  Status prepare(uint64_t bytes);
  Status failed(std::string_view what) const;

  FileSystem& files_;
  std::string path_;
  std::string temporary_;
  int fd_ = -1;
};

}  // namespace bowline::detail::model
