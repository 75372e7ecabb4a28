#include "export/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/atomic_file.h"
#include "base/status.h"

namespace bowline::command {
namespace {

namespace fs = std::filesystem;

// True if the folder may be replaced: it is empty, or it is an earlier export. An export contains
// the file `weights`, no other weights, and only regular files.
bool is_export(const fs::path& folder, std::string_view weights) {
  std::error_code error;
  bool found = fs::is_empty(folder, error);
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const fs::path name = at->path().filename();
    const bool is_weights = name == weights;
    if (!fs::is_regular_file(at->symlink_status(error)) ||
        (!is_weights && name.extension() == ".safetensors")) {
      return false;
    }
    found = found || is_weights;
  }
  return !error && found;
}

Status check_replaced(const std::string& path, std::string_view weights, bool replace) {
  std::error_code error;
  const fs::file_status there = fs::symlink_status(path, error);
  if (!fs::exists(there)) {
    return {};
  }
  BOWLINE_REQUIRE(replace, "\"{}\" exists already; --force replaces it.", path);
  BOWLINE_REQUIRE(
      fs::is_regular_file(there) || (fs::is_directory(there) && is_export(path, weights)),
      "\"{}\" is not replaced: --force replaces only a file, or a folder that has {} and no other "
      "weights.",
      path, weights);
  return {};
}

// Removes the content of a folder: the rest of a killed export, or a replaced folder.
bool remove_content(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    fs::remove_all(at->path(), error);
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

// Writes the entries of a folder to disk.
bool sync_folder(const std::string& path) {
  const Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return folder.get() >= 0 && fsync(folder.get()) == 0;
}

bool rename_with(const std::string& from, const std::string& to, unsigned int how) {
  return renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), how) == 0;
}

// True if errno says that the file system does not support this kind of rename.
bool has_no_such_rename() { return errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP; }

bool is_folder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(fs::symlink_status(path, error));
}

bool plain_rename(const std::string& from, const std::string& to) {
  return std::rename(from.c_str(), to.c_str()) == 0;
}

// Exchanges `from` and `to`. If the file system cannot do this in one step, a file replaces a file.
// A folder at `to` is first renamed, and renamed back if `from` cannot be moved.
bool change_places(const std::string& from, const std::string& to) {
  if (rename_with(from, to, RENAME_EXCHANGE)) {
    return true;
  }
  if (!has_no_such_rename()) {
    return false;
  }
  if (!is_folder(from) && !is_folder(to)) {
    return plain_rename(from, to);
  }
  const std::string aside =
      folder_of(to) + "/." + fs::path(to).filename().string() + ".bowline_replaced";
  std::error_code error;
  fs::remove_all(aside, error);
  if (!plain_rename(to, aside)) {
    return false;
  }
  if (!plain_rename(from, to)) {
    const int why = errno;
    plain_rename(aside, to);
    errno = why;
    return false;
  }
  fs::remove_all(aside, error);
  return true;
}

// Renames `from` to a path that does not exist yet.
bool move_to_new(const std::string& from, const std::string& to) {
  if (rename_with(from, to, RENAME_NOREPLACE)) {
    return true;
  }
  std::error_code error;
  if (!has_no_such_rename() || fs::exists(fs::symlink_status(to, error))) {
    return false;
  }
  return plain_rename(from, to);
}

}  // namespace

Result<Output> Output::begin(const std::string& given, std::string_view weights, bool replace,
                             uint64_t bytes) {
  const std::string path = given.size() > 1 && given.ends_with('/')
                               ? given.substr(0, given.find_last_not_of('/') + 1)
                               : given;
  BOWLINE_TRY(check_replaced(path, weights, replace));
  const std::string name = fs::path(path).filename().string();
  BOWLINE_REQUIRE(!name.empty() && name != "." && name != "..",
                  "\"{}\" does not end with the name of a file or folder to write.", given);
  const std::string folder = folder_of(path) + "/." + name + ".bowline_export";
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
                       "\"{}\" cannot be written: another process is writing it.", path);
  Output out(path, folder, replace, std::move(lock));
  if (!remove_content(folder)) {
    return failed("emptying the folder");
  }
  BOWLINE_TRY(check_room(folder, path, bytes));
  return out;
}

Output::~Output() {
  if (!folder_.empty() && lock_.get() >= 0) {
    std::error_code error;
    remove_content(folder_);
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
  return write_all(file_.get(), bytes) ? Status()
                                       : failed(fmt::format("a write to its file \"{}\"", name_));
}

Status Output::close() {
  if (fsync(file_.get()) != 0 || ::close(file_.release()) != 0) {
    return failed(fmt::format("fsync of its file \"{}\"", name_));
  }
  return {};
}

Status Output::add(const std::string& name, std::span<const std::byte> bytes) {
  BOWLINE_TRY(open(name));
  BOWLINE_TRY(write(bytes));
  return close();
}

Status Output::rename_to_path(const std::string& from) {
  std::error_code error;
  const bool replaces = replace_ && fs::exists(fs::symlink_status(path_, error));
  if (!(replaces ? change_places(from, path_) : move_to_new(from, path_))) {
    return failed("rename");
  }
  return sync_folder(folder_of(path_)) ? Status() : failed("fsync of the folder");
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
  } else if (!fs::is_directory(there)) {  // folder_ is now the replaced file
    fs::remove(folder_, error);
    folder_.clear();
  }
  return {};
}

Status Output::commit_file(const std::string& name) { return rename_to_path(folder_ + "/" + name); }

}  // namespace bowline::command
