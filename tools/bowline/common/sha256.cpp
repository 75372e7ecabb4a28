#include "common/sha256.h"

#include <sha2.h>

#include <cerrno>
#include <cstring>

#include "base/status.h"

namespace bowline::command {

Result<std::string> sha256_of_file(const std::string& path) {
  char text[SHA256_DIGEST_STRING_LENGTH];
  BOWLINE_REQUIRE_CODE(SHA256File(path.c_str(), text) != nullptr, Code::bad_file,
                       "\"{}\" cannot be read: {}.", path, std::strerror(errno));
  return std::string(text);
}

}  // namespace bowline::command
