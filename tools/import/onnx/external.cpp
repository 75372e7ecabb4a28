#include "onnx/external.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>

#include "base/escape.h"
#include "base/status.h"
#include "onnx.pb.h"

namespace bowline::onnx {
namespace {

struct Place {
  std::string location;
  uint64_t offset = 0;
  std::optional<uint64_t> length;
};

Result<uint64_t> number(const std::string& key, const std::string& text) {
  uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  BOWLINE_REQUIRE_CODE(error == std::errc() && stop == end, Code::bad_file,
                       "The {} of the external data is \"{}\", not a number.", key, escaped(text));
  return value;
}

Result<Place> place_of(const file::TensorProto& tensor) {
  Place out;
  for (const auto& entry : tensor.external_data()) {
    if (entry.key() == "location") {
      out.location = entry.value();
    } else if (entry.key() == "offset") {
      BOWLINE_TRY_ASSIGN(out.offset, number(entry.key(), entry.value()));
    } else if (entry.key() == "length") {
      BOWLINE_TRY_ASSIGN(out.length, number(entry.key(), entry.value()));
    }
  }
  return out;
}

// Splits a location into path components. Errors  bad_file: the path may leave the model's folder.
Result<std::vector<std::string>> steps_of(const std::string& location) {
  const auto refused = [&](const char* why) {
    return Status(Code::bad_file, fmt::format("The location \"{}\" of the external data {}.",
                                              escaped(location), why));
  };
  if (location.empty() || location.front() == '/' || location.find('\0') != std::string::npos) {
    return refused("is not a path relative to the folder of the model");
  }
  std::vector<std::string> steps;
  for (size_t at = 0; at <= location.size();) {
    const size_t slash = std::min(location.find('/', at), location.size());
    const std::string step = location.substr(at, slash - at);
    if (step == "..") {
      return refused("leaves the folder of the model");
    }
    if (!step.empty() && step != ".") {
      steps.push_back(step);
    }
    at = slash + 1;
  }
  if (steps.empty()) {
    return refused("does not name a file");
  }
  return steps;
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) {
      ::close(fd_);
    }
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  void take(int fd) {
    if (fd_ >= 0) {
      ::close(fd_);
    }
    fd_ = fd;
  }

 private:
  int fd_;
};

// Opens each path component without following links, so that no link can leave the folder.
Status open_below(Descriptor& at, const std::vector<std::string>& steps,
                  const std::string& location) {
  for (size_t i = 0; i < steps.size(); ++i) {
    const int kind = i + 1 < steps.size() ? O_DIRECTORY : O_NONBLOCK;
    at.take(::openat(at.get(), steps[i].c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | kind));
    BOWLINE_REQUIRE_CODE(at.get() >= 0, Code::bad_file,
                         "External data \"{}\" cannot be opened below the folder of the model.",
                         escaped(location));
  }
  return {};
}

}  // namespace

Result<std::vector<std::byte>> external_bytes(const file::TensorProto& tensor,
                                              const std::string& folder, uint64_t bytes) {
  BOWLINE_TRY_ASSIGN(const Place place, place_of(tensor));
  BOWLINE_TRY_ASSIGN(const std::vector<std::string> steps, steps_of(place.location));
  BOWLINE_REQUIRE_CODE(!place.length || *place.length == bytes, Code::bad_file,
                       "The external data has {} bytes, but its shape needs {}.", *place.length,
                       bytes);
  Descriptor at(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECTORY));
  BOWLINE_REQUIRE_CODE(at.get() >= 0, Code::bad_file, "Folder \"{}\" cannot be opened.",
                       escaped(folder));
  BOWLINE_TRY(open_below(at, steps, place.location));
  struct stat info {};
  const bool regular = ::fstat(at.get(), &info) == 0 && S_ISREG(info.st_mode);
  BOWLINE_REQUIRE_CODE(regular, Code::bad_file, "External data \"{}\" is not a regular file.",
                       escaped(place.location));
  const auto size = static_cast<uint64_t>(info.st_size);
  BOWLINE_REQUIRE_CODE(
      place.offset <= size && bytes <= size - place.offset, Code::bad_file,
      "External data \"{}\" has {} bytes. The tensor needs {} bytes from offset {}.",
      escaped(place.location), size, bytes, place.offset);
  std::vector<std::byte> out(bytes);
  for (uint64_t done = 0; done < bytes;) {
    const ssize_t got =
        ::pread(at.get(), out.data() + done, bytes - done, static_cast<off_t>(place.offset + done));
    BOWLINE_REQUIRE_CODE(got > 0, Code::io_error, "External data \"{}\" cannot be read.",
                         escaped(place.location));
    done += static_cast<uint64_t>(got);
  }
  return out;
}

}  // namespace bowline::onnx
