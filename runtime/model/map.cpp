#include "model/map.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>

#include "base/boundary.h"
#include "base/memory.h"
#include "model/checksum.h"

namespace bowline::detail::model {

namespace {

constexpr uint64_t kPiece = uint64_t{16} << 20;

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

// The callback is code of the program, which may use exceptions. None may pass through the library,
// which could not keep its promises about unfinished work.
Status call(const ModelReader& reader, uint64_t first, std::span<std::byte> out) {
#ifdef __cpp_exceptions
  try {
    return reader.read(first, out);
  } catch (const std::bad_alloc&) {
    return host_memory_exhausted();
  } catch (const std::exception& e) {
    return Status(Code::bad_argument, format("The reader throws an exception: {}", e.what()));
  } catch (...) {
    return Status(Code::bad_argument, "The reader throws an exception.");
  }
#else
  return reader.read(first, out);
#endif
}

}  // namespace

Result<std::shared_ptr<MappedFile>> MappedFile::open(const std::string& path, FileSystem& files,
                                                     Access access) {
  const Descriptor fd(files.open(path.c_str(), FileSystem::OpenFor::reading), files);
  BOWLINE_REQUIRE_CODE(fd.get() >= 0, Code::io_error, "File \"{}\" cannot be opened: {}.", path,
                       error_text(errno));
  return take(fd.get(), path, files, access);
}

Result<std::shared_ptr<MappedFile>> MappedFile::open_sibling(const std::string& relative,
                                                             FileSystem& files) const {
  BOWLINE_REQUIRE_CODE(
      !path_.empty(), Code::unsupported,
      "The file has values in a second file \"{}\", which can only be found beside "
      "a path. Open the model by its path, or save it as one file.",
      relative);
  const std::string folder = folder_of(path_);
  const Descriptor at(files.open(folder.c_str(), FileSystem::OpenFor::folder), files);
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
  file->name_ = format("\"{}\"", path);
  file->path_ = std::move(path);
  file->access_ = access;
  FileStatus info;
  const bool known = files.status(fd, info) == 0;
  BOWLINE_REQUIRE_CODE(known, Code::io_error, "File {} cannot be examined: {}.", file->name_,
                       error_text(errno));
  BOWLINE_REQUIRE_CODE(info.kind != FileStatus::Kind::folder, Code::io_error,
                       "{} is a directory, not a file.", file->name_);
  BOWLINE_REQUIRE_CODE(info.kind == FileStatus::Kind::regular, Code::io_error,
                       "{} is not a regular file.", file->name_);
  BOWLINE_TRY(file->fill(fd, 0, info.size, files));
  return file;
}

Result<std::shared_ptr<MappedFile>> MappedFile::of_descriptor(int fd, uint64_t offset,
                                                              uint64_t bytes, FileSystem& files,
                                                              Access access) {
  std::shared_ptr<MappedFile> file(new MappedFile);
  file->name_ = format("descriptor {}", fd);
  file->access_ = access;
  FileStatus info;
  const bool known = files.status(fd, info) == 0;
  BOWLINE_REQUIRE_CODE(known, errno == EBADF ? Code::bad_argument : Code::io_error,
                       "File {} cannot be examined: {}.", file->name_, error_text(errno));
  BOWLINE_REQUIRE(info.kind != FileStatus::Kind::folder, "File {} is a directory, not a file.",
                  file->name_);
  BOWLINE_REQUIRE(info.kind == FileStatus::Kind::regular, "File {} is not a regular file.",
                  file->name_);
  const uint64_t size = info.size;
  // Two comparisons, because the sum of two numbers of the caller may overflow.
  BOWLINE_REQUIRE_CODE(offset <= size && bytes <= size - offset, Code::bad_file,
                       "File {} has {} bytes and ends before the end of the model ({} bytes at "
                       "offset {}).",
                       file->name_, size, bytes, offset);
  BOWLINE_TRY(file->fill(fd, offset, bytes == 0 ? size - offset : bytes, files));
  return file;
}

Status MappedFile::fill(int fd, uint64_t offset, uint64_t size, FileSystem& files) {
  if (size == 0) {
    return {};
  }
  BOWLINE_REQUIRE_CODE(size <= SIZE_MAX - mapping_alignment(), Code::out_of_memory,
                       "File {} has {} bytes, more than a program of {} bits can address.", name_,
                       size, sizeof(size_t) * 8);
  return access_ == Access::map ? map(fd, offset, size, files) : load(fd, offset, size, files);
}

Status MappedFile::map(int fd, uint64_t offset, uint64_t size, FileSystem& files) {
  static const uint64_t alignment = mapping_alignment();
  const auto before = static_cast<size_t>(offset % alignment);
  const auto length = static_cast<size_t>(before + size);
  void* data = files.map(fd, length, offset - before);
  BOWLINE_REQUIRE_CODE(data != nullptr, Code::io_error, "File {} cannot be mapped: {}.", name_,
                       error_text(errno));
  files_ = &files;
  pages_ = {static_cast<std::byte*>(data), length};
  data_ = pages_.data() + before;
  size_ = size;
  return {};
}

Status MappedFile::load(int fd, uint64_t offset, uint64_t size, FileSystem& files) {
  constexpr size_t kMost = size_t{1} << 30;  // one read takes less than 2 GiB
  std::vector<std::byte> bytes(size);
  for (std::span<std::byte> rest(bytes); !rest.empty();) {
    const uint64_t at = offset + (size - rest.size());
    const int64_t n = files.read_at(fd, rest.data(), std::min(rest.size(), kMost), at);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    BOWLINE_REQUIRE_CODE(n >= 0, Code::io_error, "File {} cannot be read: {}.", name_,
                         error_text(errno));
    BOWLINE_REQUIRE_CODE(n > 0, Code::io_error, "File {} becomes shorter while it is read.", name_);
    rest = rest.subspan(static_cast<size_t>(n));
  }
  own(std::move(bytes));
  return {};
}

void MappedFile::own(std::vector<std::byte> bytes) {
  owned_ = std::move(bytes);
  data_ = owned_.data();
  size_ = owned_.size();
}

std::shared_ptr<MappedFile> MappedFile::from_bytes(std::vector<std::byte> bytes, std::string path) {
  std::shared_ptr<MappedFile> file(new MappedFile);
  file->name_ = format("\"{}\"", path);
  file->path_ = std::move(path);
  file->own(std::move(bytes));
  return file;
}

std::shared_ptr<MappedFile> MappedFile::of_memory(std::span<const std::byte> bytes, Access access) {
  std::shared_ptr<MappedFile> file(new MappedFile);
  file->name_ = "memory";
  if (access == Access::read) {
    file->own({bytes.begin(), bytes.end()});
  } else {
    file->data_ = bytes.data();
    file->size_ = bytes.size();
  }
  return file;
}

Result<std::shared_ptr<MappedFile>> MappedFile::of_reader(ModelReader reader, Access access) {
  BOWLINE_REQUIRE(reader.read != nullptr, "The reader has no function.");
  std::shared_ptr<MappedFile> file(new MappedFile);
  file->name_ = "the reader";
  file->size_ = reader.bytes;
  file->reader_ = std::move(reader);
  if (access == Access::read) {
    std::vector<std::byte> bytes(file->size_);
    BOWLINE_TRY(file->copy(0, bytes).at("While reading all bytes of the reader."));
    file->own(std::move(bytes));
    file->reader_ = {};
  }
  return file;
}

bool MappedFile::is_in_place() const {
  return data_ != nullptr && reinterpret_cast<uintptr_t>(data_) % alignof(std::max_align_t) == 0;
}

Status MappedFile::copy(uint64_t first, std::span<std::byte> out) const {
  if (data_ != nullptr) {
    std::copy_n(data_ + first, out.size(), out.data());
    return {};
  }
  for (uint64_t at = 0; at < out.size(); at += kPiece) {
    const uint64_t count = std::min<uint64_t>(kPiece, out.size() - at);
    BOWLINE_TRY(call(reader_, first + at, out.subspan(at, count)));
  }
  return {};
}

Result<std::span<const std::byte>> MappedFile::read(uint64_t first, uint64_t count,
                                                    std::vector<std::byte>& scratch) const {
  if (data_ != nullptr) {
    return bytes().subspan(first, count);
  }
  scratch.resize(count);
  BOWLINE_TRY(copy(first, scratch));
  return std::span<const std::byte>(scratch);
}

Status MappedFile::each_piece(uint64_t first, uint64_t count, const Part& part) const {
  std::vector<std::byte> scratch;
  for (uint64_t at = 0; at < count; at += kPiece) {
    const uint64_t size = std::min(kPiece, count - at);
    BOWLINE_TRY_ASSIGN(const auto piece, read(first + at, size, scratch));
    BOWLINE_TRY(part(at, piece));
    forget(first + at, size);
  }
  return {};
}

void MappedFile::forget(uint64_t offset, uint64_t length) const {
  if (files_ == nullptr || length == 0) {
    return;
  }
  // An access to a page also maps its neighbours: on Linux, those in the same aligned 64 KiB, or
  // the first 64 KiB of the mapping. Pages that hold bytes of other ranges are read again on
  // demand.
  constexpr uint64_t kWindow = uint64_t{64} << 10;
  static const auto window = std::max(page_bytes(), kWindow);
  const auto pages = reinterpret_cast<uintptr_t>(pages_.data());
  const uint64_t from = reinterpret_cast<uintptr_t>(data_) + offset;
  const uint64_t begin = std::max<uint64_t>(pages, from / window * window);
  const uint64_t last = std::max((from + length + window - 1) / window * window, begin + window);
  const uint64_t end = std::min<uint64_t>(pages + pages_.size(), last);
  files_->forget(reinterpret_cast<void*>(begin), end - begin);
}

MappedFile::~MappedFile() {
  if (files_ != nullptr) {
    files_->unmap(pages_.data(), pages_.size());
  }
}

std::shared_ptr<const FileRange> in_memory(std::vector<std::byte> bytes, std::string name) {
  auto range = std::make_shared<FileRange>();
  range->length = bytes.size();
  range->xxh3 = checksum(bytes);
  range->file = MappedFile::from_bytes(std::move(bytes), std::move(name));
  return range;
}

Status FileRange::compare(uint64_t found) const {
  BOWLINE_REQUIRE_CODE(found == xxh3, Code::bad_file,
                       "The {} bytes at offset {} of {} do not match their checksum.", length,
                       offset, file->name());
  checked.store(true, std::memory_order_release);
  return {};
}

Status FileRange::each_piece(const MappedFile::Part& part) const {
  if (checked.load(std::memory_order_acquire)) {
    return file->each_piece(offset, length, part);
  }
  // One pass, because a callback may be slow, and may return other bytes in a second pass.
  StreamChecksum found;
  const auto add = [&](uint64_t at, std::span<const std::byte> piece) {
    found.add(piece);
    return part(at, piece);
  };
  BOWLINE_TRY(file->each_piece(offset, length, add));
  return compare(found.value());
}

Status FileRange::check() const {
  if (checked.load(std::memory_order_acquire)) {
    return {};
  }
  return each_piece([](uint64_t, std::span<const std::byte>) { return Status(); });
}

Result<std::span<const std::byte>> FileRange::read(uint64_t first, uint64_t count,
                                                   std::vector<std::byte>& scratch) const {
  // All bytes of a callback are checked when they are here, so that it reads them once.
  const bool here = file->bytes().empty() && count == length;
  if (!here) {
    BOWLINE_TRY(check());
  }
  BOWLINE_TRY_ASSIGN(auto bytes, file->read(offset + first, count, scratch));
  if (here && !checked.load(std::memory_order_acquire)) {
    BOWLINE_TRY(compare(checksum(bytes)));
  }
  if (bytes.data() != scratch.data() && !file->is_in_place()) {
    scratch.assign(bytes.begin(), bytes.end());
    bytes = scratch;
  }
  return bytes;
}

Result<std::vector<std::byte>> FileRange::copy() const {
  std::vector<std::byte> scratch;
  BOWLINE_TRY_ASSIGN(const auto bytes, read(0, length, scratch));
  return std::vector<std::byte>(bytes.begin(), bytes.end());
}

}  // namespace bowline::detail::model
