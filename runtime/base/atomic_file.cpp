#include "base/atomic_file.h"

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/boundary.h"

namespace bowline {
namespace {

// A suffix that users do not choose: "folder/out" is written as "folder/.out.bowline-write".
constexpr std::string_view kSuffix = ".bowline-write";

std::string temporary_of(const std::string& path) {
  const size_t name = path.find_last_of(kPathSeparators) + 1;  // npos + 1 is 0
  return format("{}.{}{}", path.substr(0, name), path.substr(name), kSuffix);
}

}  // namespace

std::string error_text(int error) { return std::generic_category().message(error); }

std::string folder_of(const std::string& path) {
  const size_t slash = path.find_last_of(kPathSeparators);
  if (slash == std::string::npos) {
    return ".";
  }
  // "C:" without a separator is not the root of a Windows drive.
  const bool is_root = slash == 0 || (kPathSeparators.size() > 1 && path[slash - 1] == ':');
  return path.substr(0, slash + (is_root ? 1 : 0));
}

void make_folders(const std::string& path, FileSystem& files) {
  FileStatus status;
  if (files.status(path.c_str(), status) == 0) {
    return;
  }
  if (const std::string above = folder_of(path); above.size() < path.size()) {
    make_folders(above, files);
  }
  files.make_folder(path.c_str());
}

std::string target_of_temporary(const std::string& temporary) {
  const size_t name = temporary.find_last_of(kPathSeparators) + 1;
  if (temporary.size() < name + 1 + kSuffix.size() || temporary[name] != '.' ||
      !temporary.ends_with(kSuffix)) {
    return "";
  }
  return temporary.substr(0, name) +
         temporary.substr(name + 1, temporary.size() - name - 1 - kSuffix.size());
}

AtomicFile::AtomicFile(const std::string& path, FileSystem& files)
    : files_(files), path_(path), temporary_(temporary_of(path)) {}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) {
    files_.unlink(temporary_.c_str());
    files_.close(fd_);
  }
}

Status AtomicFile::failed(std::string_view what) const {
  return Status(Code::io_error, format("File \"{}\" cannot be written: {} fails: {}.", path_, what,
                                       error_text(errno)));
}

Result<std::unique_ptr<AtomicFile>> AtomicFile::create(const std::string& path, uint64_t bytes,
                                                       FileSystem& files) {
  std::unique_ptr<AtomicFile> file(new AtomicFile(path, files));
  BOWLINE_TRY(file->open());
  BOWLINE_TRY(file->prepare(bytes));
  return file;
}

// The lock keeps other writers out. While a writer waits at open(), the first one may rename the
// file. Then the name and the descriptor differ, and the writer opens the file again.
Status AtomicFile::open() {
  for (int attempt = 0; attempt < 10; ++attempt) {
    const int fd = files_.open(temporary_.c_str(), FileSystem::OpenFor::writing);
    if (fd < 0) {
      return failed("opening a temporary file");
    }
    if (files_.lock(fd) != 0) {
      const Status status = failed("the lock of the temporary file");
      files_.close(fd);
      return status;
    }
    FileStatus opened, named;
    if (files_.status(fd, opened) == 0 && files_.status(temporary_.c_str(), named) == 0 &&
        opened.number == named.number && opened.volume == named.volume) {
      if (opened.kind != FileStatus::Kind::regular) {
        files_.close(fd);
        return Status(Code::io_error,
                      format("File \"{}\" cannot be written: its temporary file \"{}\" is not a "
                             "regular file.",
                             path_, temporary_));
      }
      fd_ = fd;
      return {};
    }
    files_.close(fd);
  }
  return Status(
      Code::io_error,
      format("File \"{}\" cannot be written: other processes keep replacing its temporary file.",
             path_));
}

Status AtomicFile::prepare(uint64_t bytes) {
  if (files_.truncate(fd_, 0) != 0) {
    return failed("truncating the temporary file");
  }
  FileStatus old;
  if (files_.status(path_.c_str(), old) == 0) {
    BOWLINE_REQUIRE_CODE(old.kind == FileStatus::Kind::regular, Code::io_error,
                         "\"{}\" is not a regular file.", path_);
    if (files_.set_mode(fd_, old.mode) != 0) {
      return failed("setting the mode");
    }
  } else if (errno != ENOENT) {
    return failed("examining the file");
  }
  uint64_t free = 0;
  if (files_.free_bytes(fd_, free) != 0) {
    return failed("asking for free space");
  }
  BOWLINE_REQUIRE_CODE(free >= bytes, Code::io_error,
                       "File \"{}\" needs {} bytes, but only {} are free in its folder.", path_,
                       bytes, free);
  return {};
}

Status AtomicFile::write(std::span<const std::byte> bytes) {
  constexpr size_t kPiece = size_t{1} << 30;  // one write takes less than 2 GiB
  while (!bytes.empty()) {
    const int64_t n = files_.write(fd_, bytes.data(), std::min(bytes.size(), kPiece));
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      errno = n == 0 ? ENOSPC : errno;
      return failed("a write");
    }
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

Status AtomicFile::commit() {
  if (files_.sync(fd_) != 0) {
    return failed("fsync");
  }
  const int folder = files_.open(folder_of(path_).c_str(), FileSystem::OpenFor::folder);
  if (folder < 0) {
    return failed("opening the folder");
  }
  Status status;
  if (files_.rename(temporary_.c_str(), path_.c_str()) != 0) {
    // Only Windows refuses to replace an open file.
    status = failed(errno == EBUSY ? "replacing a file that is open or mapped into memory (see "
                                     "OpenOptions::memory_map)"
                                   : "rename");
  } else {
    files_.close(fd_);
    fd_ = -1;
    if (files_.sync(folder) != 0) {
      status = failed("fsync of the folder");
    }
  }
  files_.close(folder);
  return status;
}

Status probe_file(const std::string& path, uint64_t bytes) {
  return guarded([&] { return AtomicFile::create(path, bytes, real_file_system()).status(); });
}

}  // namespace bowline
