#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/escape.h"
#include "base/file_system.h"
#include "base/parse.h"
#include "base/status.h"
#include "onnx.pb.h"
#include "onnx/numbers.h"

namespace bowline::onnx {
namespace {

struct Place {
  std::string location;
  std::optional<uint64_t> offset = 0, length;
};

Result<Place> place_of(const file::TensorProto& tensor) {
  Place out;
  for (const auto& entry : tensor.external_data()) {
    if (entry.key() == "location") {
      out.location = entry.value();
    } else if (entry.key() == "offset" || entry.key() == "length") {
      const std::optional<uint64_t> number = number_in<uint64_t>(entry.value());
      BOWLINE_REQUIRE_CODE(number, Code::bad_file,
                           "The {} of the external data is \"{}\", not a number.", entry.key(),
                           escaped(entry.value()));
      (entry.key() == "offset" ? out.offset : out.length) = number;
    }
  }
  return out;
}

// Returns the path without empty components and ".". Errors  bad_file: it may leave the folder of
// the model.
Result<std::string> path_of(const std::string& location) {
  const auto refused = [&](const char* why) {
    return Status(Code::bad_file, fmt::format("The location \"{}\" of the external data {}.",
                                              escaped(location), why));
  };
  if (location.empty() || location.front() == '/' || location.find('\0') != std::string::npos) {
    return refused("is not a path relative to the folder of the model");
  }
  std::string path;
  for (const std::filesystem::path& step : std::filesystem::path(location)) {
    if (step == "..") {
      return refused("leaves the folder of the model");
    }
    if (!step.empty() && step != ".") {
      path += (path.empty() ? "" : "/") + step.string();
    }
  }
  if (path.empty()) {
    return refused("does not name a file");
  }
  return path;
}

// A descriptor that is closed at the end.
struct Descriptor {
  int fd;
  ~Descriptor() { ::close(fd); }
};

}  // namespace

Result<std::vector<std::byte>> external_bytes(const file::TensorProto& tensor,
                                              const std::string& folder, uint64_t bytes) {
  BOWLINE_TRY_ASSIGN(const Place place, place_of(tensor));
  BOWLINE_TRY_ASSIGN(const std::string path, path_of(place.location));
  BOWLINE_REQUIRE_CODE(!place.length || *place.length == bytes, Code::bad_file,
                       "The external data has {} bytes, but its shape needs {}.", *place.length,
                       bytes);
  const Descriptor at{
      ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECTORY)};
  BOWLINE_REQUIRE_CODE(at.fd >= 0, Code::bad_file, "Folder \"{}\" cannot be opened.",
                       escaped(folder));
  const Descriptor file{real_file_system().open_beneath(at.fd, path.c_str())};
  BOWLINE_REQUIRE_CODE(file.fd >= 0, Code::bad_file,
                       "External data \"{}\" cannot be opened below the folder of the model.",
                       escaped(place.location));
  struct stat info {};
  const bool regular = ::fstat(file.fd, &info) == 0 && S_ISREG(info.st_mode);
  BOWLINE_REQUIRE_CODE(regular, Code::bad_file, "External data \"{}\" is not a regular file.",
                       escaped(place.location));
  const auto size = static_cast<uint64_t>(info.st_size);
  BOWLINE_REQUIRE_CODE(
      *place.offset <= size && bytes <= size - *place.offset, Code::bad_file,
      "External data \"{}\" has {} bytes. The tensor needs {} bytes from offset {}.",
      escaped(place.location), size, bytes, *place.offset);
  std::vector<std::byte> out(bytes);
  for (uint64_t done = 0; done < bytes;) {
    const ssize_t got =
        ::pread(file.fd, out.data() + done, bytes - done, static_cast<off_t>(*place.offset + done));
    BOWLINE_REQUIRE_CODE(got > 0, Code::io_error, "External data \"{}\" cannot be read.",
                         escaped(place.location));
    done += static_cast<uint64_t>(got);
  }
  return out;
}

}  // namespace bowline::onnx
