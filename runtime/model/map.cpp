#include "model/map.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "model/checksum.h"

namespace bowline::detail::model {

namespace {

class Descriptor {
 public:
  Descriptor(int fd, FileSystem& files) : fd_(fd), files_(files) {}
  ~Descriptor() {
    if (fd_ >= 0) {
      files_.close(fd_);
    }
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
  FileSystem& files_;
};

}  // namespace

Result<std::shared_ptr<MappedFile>> MappedFile::open(const std::string& path, FileSystem& files,
                                                     Access access) {
  // O_NONBLOCK: opening a pipe does not wait for its writer.
  const Descriptor fd(files.open(path.c_str(), O_RDONLY | O_NONBLOCK, 0), files);
  BOWLINE_REQUIRE_CODE(fd.get() >= 0, Code::io_error, "File \"{}\" cannot be opened: {}.", path,
                       error_text(errno));
  return take(fd.get(), path, files, access);
}

Result<std::shared_ptr<MappedFile>> MappedFile::open_sibling(const std::string& relative,
                                                             FileSystem& files) const {
  const std::string folder = folder_of(path_);
  const Descriptor at(files.open(folder.c_str(), O_RDONLY | O_DIRECTORY, 0), files);
  BOWLINE_REQUIRE_CODE(at.get() >= 0, Code::io_error, "Folder \"{}\" cannot be opened: {}.", folder,
                       error_text(errno));
  const Descriptor fd(files.open_beneath(at.get(), relative.c_str()), files);
  BOWLINE_REQUIRE_CODE(fd.get() >= 0, Code::io_error,
                       "Sibling file \"{}\" cannot be opened beneath \"{}\" (links are not "
                       "followed): {}.",
                       relative, folder, error_text(errno));
  return take(fd.get(), folder + "/" + relative, files, access_);
}

Result<std::shared_ptr<MappedFile>> MappedFile::take(int fd, std::string path, FileSystem& files,
                                                     Access access) {
  std::shared_ptr<MappedFile> file(new MappedFile);
  file->path_ = std::move(path);
  file->access_ = access;
  struct stat info {};
  const bool known = files.status(fd, info) == 0;
  BOWLINE_REQUIRE_CODE(known, Code::io_error, "File \"{}\" cannot be examined: {}.", file->path_,
                       error_text(errno));
  BOWLINE_REQUIRE_CODE(!S_ISDIR(info.st_mode), Code::io_error, "\"{}\" is a directory, not a file.",
                       file->path_);
  BOWLINE_REQUIRE_CODE(S_ISREG(info.st_mode), Code::io_error, "\"{}\" is not a regular file.",
                       file->path_);
  const auto size = static_cast<uint64_t>(info.st_size);
  if (size > 0) {
    BOWLINE_TRY(access == Access::map ? file->map(fd, size, files) : file->read(fd, size, files));
  }
  return file;
}

Status MappedFile::map(int fd, uint64_t size, FileSystem& files) {
  void* data = files.map(fd, size);
  BOWLINE_REQUIRE_CODE(data != nullptr, Code::io_error, "File \"{}\" cannot be mapped: {}.", path_,
                       error_text(errno));
  files_ = &files;
  data_ = static_cast<const std::byte*>(data);
  size_ = size;
  return {};
}

Status MappedFile::read(int fd, uint64_t size, FileSystem& files) {
  constexpr size_t kPiece = size_t{1} << 30;  // one read takes less than 2 GiB
  owned_.resize(size);
  for (std::span<std::byte> rest(owned_); !rest.empty();) {
    const ssize_t n = files.read(fd, rest.data(), std::min(rest.size(), kPiece));
    if (n < 0 && errno == EINTR) {
      continue;
    }
    BOWLINE_REQUIRE_CODE(n >= 0, Code::io_error, "File \"{}\" cannot be read: {}.", path_,
                         error_text(errno));
    BOWLINE_REQUIRE_CODE(n > 0, Code::io_error, "File \"{}\" becomes shorter while it is read.",
                         path_);
    rest = rest.subspan(static_cast<size_t>(n));
  }
  data_ = owned_.data();
  size_ = size;
  return {};
}

std::shared_ptr<MappedFile> MappedFile::from_bytes(std::vector<std::byte> bytes, std::string path) {
  std::shared_ptr<MappedFile> file(new MappedFile);
  file->path_ = std::move(path);
  file->owned_ = std::move(bytes);
  file->data_ = file->owned_.data();
  file->size_ = file->owned_.size();
  return file;
}

void MappedFile::forget(uint64_t offset, uint64_t length) const {
  if (files_ == nullptr || length == 0) {
    return;
  }
  // An access to a page also maps its neighbours: on Linux, those in the same aligned 64 KiB. Pages
  // that hold bytes of other ranges are read again on demand.
  constexpr uint64_t kWindow = uint64_t{64} << 10;
  static const auto window = std::max(static_cast<uint64_t>(sysconf(_SC_PAGESIZE)), kWindow);
  const auto data = reinterpret_cast<uintptr_t>(data_);
  const uint64_t begin = std::max<uint64_t>(data, (data + offset) / window * window);
  const uint64_t end =
      std::min<uint64_t>(data + size_, (data + offset + length + window - 1) / window * window);
  files_->forget(reinterpret_cast<void*>(begin), end - begin);
}

MappedFile::~MappedFile() {
  if (files_ != nullptr) {
    files_->unmap(const_cast<std::byte*>(data_), size_);
  }
}

std::shared_ptr<const FileRange> in_memory(std::vector<std::byte> bytes, std::string name) {
  auto range = std::make_shared<FileRange>();
  range->length = bytes.size();
  range->xxh3 = checksum(bytes);
  range->file = MappedFile::from_bytes(std::move(bytes), std::move(name));
  return range;
}

namespace {

constexpr uint64_t kPiece = uint64_t{16} << 20;

// Calls part(offset in the range, bytes) for each piece, and releases the pages of the piece
// afterwards.
template <class Part>
Status for_each_piece(const FileRange& range, const Part& part) {
  const auto all = range.file->bytes().subspan(range.offset, range.length);
  for (uint64_t at = 0; at < range.length; at += kPiece) {
    const uint64_t count = std::min(kPiece, range.length - at);
    BOWLINE_TRY(part(at, all.subspan(at, count)));
    range.file->forget(range.offset + at, count);
  }
  return {};
}

}  // namespace

Status FileRange::check() const {
  if (checked.load(std::memory_order_acquire)) {
    return {};
  }
  StreamChecksum found;
  const auto add = [&](uint64_t, std::span<const std::byte> piece) {
    found.add(piece);
    return Status{};
  };
  BOWLINE_TRY(for_each_piece(*this, add));
  BOWLINE_REQUIRE_CODE(found.value() == xxh3, Code::bad_file,
                       "The {} bytes at offset {} of \"{}\" do not match their checksum.", length,
                       offset, file->path());
  checked.store(true, std::memory_order_release);
  return {};
}

Result<std::span<const std::byte>> FileRange::bytes() const {
  BOWLINE_TRY(check());
  return file->bytes().subspan(offset, length);
}

Status FileRange::each_piece(
    const std::function<Status(uint64_t, std::span<const std::byte>)>& part) const {
  BOWLINE_TRY(check());
  return for_each_piece(*this, part);
}

}  // namespace bowline::detail::model
