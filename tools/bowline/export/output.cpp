#include "export/output.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "common/require.h"

namespace bowline::command {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWeights = "model.safetensors";

// Whether all that lies in a folder are files, the weights among them: what an export wrote, and not a home.
bool is_export(const fs::path& folder) {
  std::error_code error;
  bool weights = false;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (!fs::is_regular_file(at->symlink_status(error))) {
      return false;
    }
    weights = weights || at->path().filename() == kWeights;
  }
  return !error && weights;
}

Status check_replaced(const std::string& path, bool replace) {
  std::error_code error;
  const fs::file_status there = fs::symlink_status(path, error);
  if (!fs::exists(there)) {
    return {};
  }
  BOWLINE_REQUIRE(replace, "\"{}\" is there already; --force replaces it.", path);
  BOWLINE_REQUIRE(fs::is_regular_file(there) || (fs::is_directory(there) && is_export(path)),
                  "\"{}\" is not replaced: it is neither a file nor a folder of files with a {}.",
                  path, kWeights);
  return {};
}

// Files of a killed export.
bool remove_files(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    fs::remove(at->path(), error);
  }
  return !error;
}

Status check_room(const std::string& folder, const std::string& path, uint64_t bytes) {
  struct statvfs space {};
  if (statvfs(folder.c_str(), &space) == 0) {
    const uint64_t free = uint64_t{space.f_bavail} * space.f_frsize;
    BOWLINE_REQUIRE_CODE(free >= bytes, Code::io_error,
                         "\"{}\" takes {} bytes, but only {} are free in its folder.", path, bytes,
                         free);
  }
  return {};
}

// Of a folder.
bool sync_folder(const std::string& path) {
  const Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return folder.get() >= 0 && fsync(folder.get()) == 0;
}

std::string parent_of(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

}  // namespace

Result<Output> Output::begin(const std::string& given, bool replace, uint64_t bytes) {
  const std::string path = given.size() > 1 && given.ends_with('/')
                               ? given.substr(0, given.find_last_not_of('/') + 1)
                               : given;
  BOWLINE_TRY(check_replaced(path, replace));
  const std::string name = fs::path(path).filename().string();
  BOWLINE_REQUIRE(!name.empty() && name != "." && name != "..", "\"{}\" names nothing new.", given);
  const std::string folder = parent_of(path) + "/." + name + ".bowline_export";
  const auto failed = [&](std::string_view what) {
    return Status(Code::io_error, fmt::format("\"{}\" cannot be written: {} \"{}\" fails: {}.",
                                              path, what, folder, std::strerror(errno)));
  };
  if (mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) {
    return failed("making the folder");
  }
  Descriptor lock(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (lock.get() < 0) {
    return failed("opening the folder");
  }
  BOWLINE_REQUIRE_CODE(flock(lock.get(), LOCK_EX | LOCK_NB) == 0, Code::io_error,
                       "\"{}\" cannot be written: another process writes it now.", path);
  Output out(path, folder, replace, std::move(lock));
  if (!remove_files(folder)) {
    return failed("emptying the folder");
  }
  BOWLINE_TRY(check_room(folder, path, bytes));
  return out;
}

Output::~Output() {
  if (!folder_.empty() && lock_.get() >= 0) {
    std::error_code error;
    remove_files(folder_);
    fs::remove(folder_, error);
  }
}

Status Output::failed(std::string_view what) const {
  return {Code::io_error, fmt::format("\"{}\" cannot be written: {} fails: {}.", path_, what,
                                      std::strerror(errno))};
}

Status Output::open(const std::string& name) {
  name_ = name;
  const std::string path = folder_ + "/" + name;
  file_ =
      Descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
  return file_.get() >= 0 ? Status() : failed(fmt::format("opening its file \"{}\"", name));
}

Status Output::write(std::span<const std::byte> bytes) {
  constexpr size_t kPiece = size_t{1} << 30;  // one write takes less than 2 GiB
  while (!bytes.empty()) {
    const ssize_t n = ::write(file_.get(), bytes.data(), std::min(bytes.size(), kPiece));
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      errno = n == 0 ? ENOSPC : errno;
      return failed(fmt::format("a write to its file \"{}\"", name_));
    }
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

Status Output::close() {
  if (fsync(file_.get()) != 0 || ::close(file_.release()) != 0) {
    return failed(fmt::format("fsync of its file \"{}\"", name_));
  }
  return {};
}

Status Output::rename_to_path(const std::string& from) {
  std::error_code error;
  const bool exchange = replace_ && fs::exists(fs::symlink_status(path_, error));
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, path_.c_str(),
                exchange ? RENAME_EXCHANGE : RENAME_NOREPLACE) != 0) {
    return failed("rename");
  }
  return sync_folder(parent_of(path_)) ? Status() : failed("fsync of the folder");
}

Status Output::commit() {
  if (!sync_folder(folder_)) {
    return failed("fsync of the folder");
  }
  std::error_code error;
  const fs::file_status there = fs::symlink_status(path_, error);
  BOWLINE_TRY(rename_to_path(folder_));
  if (!fs::exists(there)) {
    folder_.clear();
  } else if (!fs::is_directory(there)) {  // a file lies where the folder did
    fs::remove(folder_, error);
    folder_.clear();
  }
  return {};
}

Status Output::commit_file(const std::string& name) { return rename_to_path(folder_ + "/" + name); }

}  // namespace bowline::command
