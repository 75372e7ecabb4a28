// Writes a folder or a file atomically. Until commit(), the files are in a temporary folder beside
// it.
#pragma once

#include <span>
#include <string>

#include "bowline.h"
#include "common/files.h"

namespace bowline::command {

class Output {
 public:
  // Creates the temporary folder and checks that `bytes` bytes are free.
  // `replace`: commit() replaces an existing file, or a folder that is empty or an earlier export.
  // An earlier export holds only files, has `weights` and no other *.safetensors. Errors
  // bad_argument: `path` exists and is not replaced, or has no file name. io_error: the
  //         folder cannot be written, or another process writes to it.
  static Result<Output> begin(const std::string& path, std::string_view weights, bool replace,
                              uint64_t bytes);
  // Removes what was not committed.
  ~Output();
  Output(Output&&) = default;
  Output& operator=(Output&&) = delete;

  // Write one file after the other. Errors  io_error.
  Status open(const std::string& name);
  Status write(std::span<const std::byte> bytes);
  Status close();
  // Writes a whole file.
  Status add(const std::string& name, std::span<const std::byte> bytes);
  Status add(const std::string& name, std::string_view text) {
    return add(name, std::as_bytes(std::span(text)));
  }
  // commit() moves the folder to `path`. commit_file() moves its file `name` there. Errors
  // io_error.
  Status commit();
  Status commit_file(const std::string& name);

 private:
  Output(std::string path, std::string folder, bool replace, Descriptor lock)
      : path_(std::move(path)),
        folder_(std::move(folder)),
        replace_(replace),
        lock_(std::move(lock)) {}
  Status failed(std::string_view what) const;
  Status rename_to_path(const std::string& from);

  std::string path_;
  std::string folder_;  // the temporary folder; empty after commit() if nothing is left to remove
  bool replace_;
  Descriptor lock_;
  std::string name_;  // of the open file
  Descriptor file_;
};

}  // namespace bowline::command
