// A file that appears whole or not at all.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/file_system.h"
#include "base/status.h"

namespace bowline {

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

// Whether a file of so many bytes could be written at `path` now. Nothing is left behind. Errors as
// AtomicFile::create().
Status probe_file(const std::string& path, uint64_t bytes);

// The path that a temporary file was to become, which a killed process left; empty: `temporary` is
// no name of a temporary file.
std::string target_of_temporary(const std::string& temporary);

// The folder of a path, "." if it names none.
std::string folder_of(const std::string& path);

// Makes the folder and those above it. The next use of the folder says why that failed.
void make_folders(const std::string& path, FileSystem& files);

// The text of errno.
std::string error_text(int error);

}  // namespace bowline
