#include "model/map.h"

#include <fcntl.h>

#include <cerrno>
#include <system_error>

#include "model/checksum.h"

namespace bowline::model {

std::string error_text(int error) { return std::generic_category().message(error); }

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) {
    return ".";
  }
  return slash == 0 ? "/" : path.substr(0, slash);
}

Result<std::shared_ptr<MappedFile>> MappedFile::open(const std::string& path, FileSystem& files) {
  // O_NONBLOCK: opening a pipe does not wait for its writer.
  const int fd = files.open(path.c_str(), O_RDONLY | O_NONBLOCK, 0);
  BOWLINE_REQUIRE_CODE(fd >= 0, Code::io_error, "File \"{}\" cannot be opened: {}.", path,
                       error_text(errno));
  return map(fd, path, files);
}

Result<std::shared_ptr<MappedFile>> MappedFile::open_sibling(const std::string& relative,
                                                             FileSystem& files) const {
  const std::string folder = folder_of(path_);
  const int folder_fd = files.open(folder.c_str(), O_RDONLY | O_DIRECTORY, 0);
  BOWLINE_REQUIRE_CODE(folder_fd >= 0, Code::io_error, "Folder \"{}\" cannot be opened: {}.",
                       folder, error_text(errno));
  const int fd = files.open_beneath(folder_fd, relative.c_str());
  const int error = errno;
  files.close(folder_fd);
  BOWLINE_REQUIRE_CODE(fd >= 0, Code::io_error,
                       "Sibling file \"{}\" cannot be opened beneath \"{}\" (links are not "
                       "followed): {}.",
                       relative, folder, error_text(error));
  return map(fd, folder + "/" + relative, files);
}

Result<std::shared_ptr<MappedFile>> MappedFile::map(int fd, std::string path, FileSystem& files) {
  std::shared_ptr<MappedFile> file(new MappedFile);
  file->path_ = std::move(path);
  struct stat info {};
  const bool known = files.status(fd, info) == 0;
  int error = errno;
  const bool regular = known && S_ISREG(info.st_mode);
  void* data = nullptr;
  if (regular && info.st_size > 0) {
    data = files.map(fd, static_cast<size_t>(info.st_size));
    error = errno;
  }
  files.close(fd);
  BOWLINE_REQUIRE_CODE(known, Code::io_error, "File \"{}\" cannot be examined: {}.", file->path_,
                       error_text(error));
  BOWLINE_REQUIRE_CODE(regular, Code::io_error, "\"{}\" is not a regular file.", file->path_);
  BOWLINE_REQUIRE_CODE(info.st_size == 0 || data != nullptr, Code::io_error,
                       "File \"{}\" cannot be mapped: {}.", file->path_, error_text(error));
  if (data != nullptr) {
    file->files_ = &files;
    file->data_ = static_cast<const std::byte*>(data);
    file->size_ = static_cast<size_t>(info.st_size);
  }
  return file;
}

std::shared_ptr<MappedFile> MappedFile::from_bytes(std::vector<std::byte> bytes, std::string path) {
  std::shared_ptr<MappedFile> file(new MappedFile);
  file->path_ = std::move(path);
  file->owned_ = std::move(bytes);
  file->data_ = file->owned_.data();
  file->size_ = file->owned_.size();
  return file;
}

MappedFile::~MappedFile() {
  if (files_ != nullptr) {
    files_->unmap(const_cast<std::byte*>(data_), size_);
  }
}

Result<std::span<const std::byte>> FileRange::bytes() const {
  const auto all = file->bytes().subspan(offset, length);
  if (!checked.load(std::memory_order_acquire)) {
    BOWLINE_REQUIRE_CODE(checksum(all) == xxh3, Code::bad_file,
                         "The {} bytes at offset {} of \"{}\" do not match their checksum.", length,
                         offset, file->path());
    checked.store(true, std::memory_order_release);
  }
  return all;
}

}  // namespace bowline::model
