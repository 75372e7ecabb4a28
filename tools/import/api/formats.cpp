#include "api/formats.h"

#include <filesystem>
#include <fstream>

#include "base/boundary.h"
#include "base/escape.h"
#include "base/status.h"

namespace bowline {
namespace import {

bool begins_with(const std::string& path, std::string_view magic) {
  std::string begin(magic.size(), '\0');
  std::ifstream file(path, std::ios::binary);
  return file.read(begin.data(), static_cast<std::streamsize>(begin.size())) && begin == magic;
}

Status check_path(const std::string& path) {
  BOWLINE_REQUIRE(!path.empty(), "The path of the model is empty.");
  BOWLINE_REQUIRE(path.find('\0') == std::string::npos, "The path \"{}\" contains a NUL character.",
                  escaped(path));
  std::error_code error;
  const bool is_there = std::filesystem::exists(path, error);
  BOWLINE_REQUIRE_CODE(is_there, Code::bad_file, "\"{}\" cannot be read: {}.", escaped(path),
                       error ? error.message() : "it does not exist");
  // Opening a pipe would wait for another program.
  const bool is_plain =
      std::filesystem::is_regular_file(path, error) || std::filesystem::is_directory(path, error);
  BOWLINE_REQUIRE_CODE(is_plain, Code::bad_file, "\"{}\" is neither a file nor a folder.",
                       escaped(path));
  return {};
}

}  // namespace import

Result<ImportFormat> import_format(const std::string& path) {
  return guarded([&]() -> Result<ImportFormat> {
    BOWLINE_TRY(import::check_path(path));
    std::error_code error;
    if (std::filesystem::is_directory(path, error)) {
      return ImportFormat::hugging_face;
    }
    const std::string name = escaped(path);
    BOWLINE_REQUIRE_CODE(!import::begins_with(path, "BOWLINE1"), Code::bad_file,
                         "\"{}\" is already a Bowline model file. Open it with Model::open(). "
                         "'bowline inspect {}' shows its content.",
                         name, name);
    const bool is_gguf = import::begins_with(path, "GGUF") || path.ends_with(".gguf");
    return is_gguf ? ImportFormat::gguf : ImportFormat::onnx;
  });
}

}  // namespace bowline
