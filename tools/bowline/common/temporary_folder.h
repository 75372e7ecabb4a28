// A folder for the files of one run.
#pragma once

#include <fmt/format.h>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <utility>

#include "base/status.h"

namespace bowline::command {

// The destructor removes the folder with its content.
class TemporaryFolder {
 public:
  static Result<TemporaryFolder> make() {
    std::error_code error;
    std::string path = (std::filesystem::temp_directory_path(error) / "bowline_XXXXXX").string();
    BOWLINE_REQUIRE_CODE(!error && mkdtemp(path.data()) != nullptr, Code::io_error,
                         "No folder \"{}\" can be made.", path);
    return TemporaryFolder(std::move(path));
  }
  ~TemporaryFolder() {
    std::error_code error;
    if (!path_.empty()) {
      std::filesystem::remove_all(path_, error);
    }
  }
  TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  std::string file(std::string_view name) const { return fmt::format("{}/{}", path_, name); }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace bowline::command
