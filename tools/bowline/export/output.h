// A folder, or one file, that appears whole or not at all: until commit() what is written lies in a
// folder beside it.
#pragma once

#include <span>
#include <string>

#include "bowline.h"
#include "common/files.h"

namespace bowline::command {

class Output {
 public:
  // `replace`: what lies at `path` goes at the commit, whole: a file, or a folder of nothing but
  // files, of which `weights` is the only
  // *.safetensors. `bytes`: that the folder must have room for. Errors  bad_argument: there is
  // something at `path` that is not replaced.
  // io_error: it cannot be written, or another process writes there.
  static Result<Output> begin(const std::string& path, std::string_view weights, bool replace,
                              uint64_t bytes);
  // Removes what was not committed.
  ~Output();
  Output(Output&&) = default;
  Output& operator=(Output&&) = delete;

  // One file at a time, from its begin on. Errors  io_error.
  Status open(const std::string& name);
  Status write(std::span<const std::byte> bytes);
  Status write(std::string_view text) { return write(std::as_bytes(std::span(text))); }
  Status close();
  // The whole folder becomes `path`, or its file `name` does. Errors  io_error.
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
  std::string folder_;  // empty: it is gone
  bool replace_;
  Descriptor lock_;
  std::string name_;  // of the open file
  Descriptor file_;
};

}  // namespace bowline::command
