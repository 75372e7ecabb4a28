#include "base/file_system.h"

#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <fcntl.h>
#include <io.h>
#include <windows.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

namespace bowline {
namespace {

// Readers, writers and a rename may use a file at the same time, as on other systems.
constexpr DWORD kShared = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;

struct ErrorPair {
  DWORD windows;
  int posix;
};

constexpr ErrorPair kErrors[] = {
    {ERROR_FILE_NOT_FOUND, ENOENT},
    {ERROR_PATH_NOT_FOUND, ENOENT},
    {ERROR_INVALID_NAME, ENOENT},
    {ERROR_BAD_NETPATH, ENOENT},
    {ERROR_BAD_NET_NAME, ENOENT},
    {ERROR_DIRECTORY, ENOTDIR},
    {ERROR_ACCESS_DENIED, EACCES},
    {ERROR_SHARING_VIOLATION, EACCES},
    {ERROR_USER_MAPPED_FILE, EACCES},
    {ERROR_WRITE_PROTECT, EROFS},
    {ERROR_LOCK_VIOLATION, EAGAIN},
    {ERROR_ALREADY_EXISTS, EEXIST},
    {ERROR_FILE_EXISTS, EEXIST},
    {ERROR_INVALID_HANDLE, EBADF},
    {ERROR_DISK_FULL, ENOSPC},
    {ERROR_HANDLE_DISK_FULL, ENOSPC},
    {ERROR_NOT_ENOUGH_MEMORY, ENOMEM},
    {ERROR_OUTOFMEMORY, ENOMEM},
    {ERROR_COMMITMENT_LIMIT, ENOMEM},
    {ERROR_TOO_MANY_OPEN_FILES, EMFILE},
    {ERROR_FILENAME_EXCED_RANGE, ENAMETOOLONG},
    {ERROR_DIR_NOT_EMPTY, ENOTEMPTY},
    {ERROR_INVALID_PARAMETER, EINVAL},
    {ERROR_NOT_SUPPORTED, ENOTSUP},
};

// Sets errno from GetLastError(). Returns -1.
int failed() {
  const DWORD error = GetLastError();
  const auto* const found = std::ranges::find(kErrors, error, &ErrorPair::windows);
  errno = found == std::end(kErrors) ? EIO : found->posix;
  return -1;
}

int result_of(BOOL done) { return done != 0 ? 0 : failed(); }

// Paths are UTF-8; those of Windows are UTF-16. Returns an empty text if `path` is not UTF-8.
std::wstring wide(const char* path) {
  const int length = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, nullptr, 0);
  if (length <= 1) {
    SetLastError(ERROR_FILE_NOT_FOUND);
    return {};
  }
  std::wstring out(static_cast<size_t>(length), L'\0');
  (void)MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, out.data(), length);
  out.pop_back();  // the terminating zero
  return out;
}

HANDLE handle_of(int fd) { return reinterpret_cast<HANDLE>(_get_osfhandle(fd)); }

// Makes a descriptor of the handle, and closes the handle if that fails.
int descriptor_of(HANDLE handle, int flags) {
  if (handle == INVALID_HANDLE_VALUE) {
    return failed();
  }
  const int fd = _open_osfhandle(reinterpret_cast<intptr_t>(handle), flags | _O_BINARY);
  if (fd < 0) {
    (void)CloseHandle(handle);
  }
  return fd;
}

// A folder needs FILE_FLAG_BACKUP_SEMANTICS.
HANDLE open_to_read(const std::wstring& path, DWORD flags) {
  return path.empty() ? INVALID_HANDLE_VALUE
                      : CreateFileW(path.c_str(), GENERIC_READ, kShared, nullptr, OPEN_EXISTING,
                                    flags, nullptr);
}

bool is_folder(HANDLE handle) {
  BY_HANDLE_FILE_INFORMATION info{};
  return GetFileInformationByHandle(handle, &info) != 0 &&
         (info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) != 0;
}

bool is_link(HANDLE handle) {
  BY_HANDLE_FILE_INFORMATION info{};
  return GetFileInformationByHandle(handle, &info) == 0 ||
         (info.dwFileAttributes & FILE_ATTRIBUTE_REPARSE_POINT) != 0;
}

int refuse_link(HANDLE handle) {
  (void)CloseHandle(handle);
  errno = ELOOP;
  return -1;
}

int fill(HANDLE handle, FileStatus& out) {
  BY_HANDLE_FILE_INFORMATION info{};
  if (GetFileType(handle) != FILE_TYPE_DISK) {
    out = {};  // a pipe or a terminal
    return handle == INVALID_HANDLE_VALUE ? failed() : 0;
  }
  if (GetFileInformationByHandle(handle, &info) == 0) {
    return failed();
  }
  out.kind = (info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) != 0 ? FileStatus::Kind::folder
                                                                     : FileStatus::Kind::regular;
  out.size = uint64_t{info.nFileSizeHigh} << 32 | info.nFileSizeLow;
  out.volume = info.dwVolumeSerialNumber;
  out.number = uint64_t{info.nFileIndexHigh} << 32 | info.nFileIndexLow;
  return 0;
}

std::wstring path_of(HANDLE handle) {
  std::wstring path(MAX_PATH, L'\0');
  DWORD length = GetFinalPathNameByHandleW(handle, path.data(), static_cast<DWORD>(path.size()), 0);
  if (length >= path.size()) {
    path.resize(length);
    length = GetFinalPathNameByHandleW(handle, path.data(), static_cast<DWORD>(path.size()), 0);
  }
  path.resize(std::min<size_t>(length, path.size()));
  return path;
}

}  // namespace

int FileSystem::open(const char* path, OpenFor use) {
  const std::wstring name = wide(path);
  if (name.empty()) {
    return failed();
  }
  if (use != OpenFor::writing) {
    const HANDLE handle = open_to_read(name, FILE_FLAG_BACKUP_SEMANTICS);
    if (use == OpenFor::folder && handle != INVALID_HANDLE_VALUE && !is_folder(handle)) {
      (void)CloseHandle(handle);
      errno = ENOTDIR;
      return -1;
    }
    return descriptor_of(handle, _O_RDONLY);
  }
  const HANDLE handle =
      CreateFileW(name.c_str(), GENERIC_READ | GENERIC_WRITE, kShared, nullptr, OPEN_ALWAYS,
                  FILE_ATTRIBUTE_NORMAL | FILE_FLAG_OPEN_REPARSE_POINT, nullptr);
  return handle != INVALID_HANDLE_VALUE && is_link(handle) ? refuse_link(handle)
                                                           : descriptor_of(handle, _O_RDWR);
}

int FileSystem::open_beneath(int folder, const char* path) { return open_in_steps(folder, path); }

// The handles of the folders stay open until the file is open, and without FILE_SHARE_DELETE. So
// nobody can replace one of them by a link in the meantime.
int FileSystem::open_in_steps(int folder, const char* path) {
  constexpr DWORD kFlags = FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_OPEN_REPARSE_POINT;
  constexpr size_t kMostFolders = 64;
  HANDLE opened[kMostFolders];
  size_t count = 0;
  std::wstring at = path_of(handle_of(folder));
  const std::wstring rest = wide(path);
  int fd = -1;
  errno = ENOENT;
  for (size_t begin = 0; !at.empty() && !rest.empty() && count < kMostFolders;) {
    const size_t end = std::min(rest.find_first_of(L"/\\", begin), rest.size());
    at += L'\\' + rest.substr(begin, end - begin);
    const bool is_last = end == rest.size();
    const HANDLE handle = CreateFileW(at.c_str(), GENERIC_READ,
                                      is_last ? kShared : FILE_SHARE_READ | FILE_SHARE_WRITE,
                                      nullptr, OPEN_EXISTING, kFlags, nullptr);
    if (handle == INVALID_HANDLE_VALUE) {
      fd = failed();
      break;
    }
    if (is_link(handle)) {
      fd = refuse_link(handle);
      break;
    }
    if (is_last) {
      fd = descriptor_of(handle, _O_RDONLY);
      break;
    }
    opened[count++] = handle;
    begin = end + 1;
  }
  const int error = errno;
  while (count > 0) {
    (void)CloseHandle(opened[--count]);
  }
  errno = error;
  return fd;
}

int FileSystem::status(int fd, FileStatus& out) { return fill(handle_of(fd), out); }

int FileSystem::status(const char* path, FileStatus& out) {
  const std::wstring name = wide(path);
  // No access to the contents: others may hold the file in a way that shares none.
  const HANDLE handle = name.empty()
                            ? INVALID_HANDLE_VALUE
                            : CreateFileW(name.c_str(), FILE_READ_ATTRIBUTES, kShared, nullptr,
                                          OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, nullptr);
  if (handle == INVALID_HANDLE_VALUE) {
    return failed();
  }
  const int result = fill(handle, out);
  const int error = errno;
  (void)CloseHandle(handle);
  errno = error;
  return result;
}

int FileSystem::free_bytes(int fd, uint64_t& out) {
  std::wstring folder = path_of(handle_of(fd));
  folder.resize(folder.find_last_of(L'\\') + 1);
  ULARGE_INTEGER free{};
  if (GetDiskFreeSpaceExW(folder.c_str(), &free, nullptr, nullptr) == 0) {
    return failed();
  }
  out = free.QuadPart;
  return 0;
}

// Other programs cannot read or write what is locked. So the lock is on a byte that no file has.
int FileSystem::lock(int fd) {
  OVERLAPPED at{};
  at.OffsetHigh = 0x7fffffff;
  return result_of(
      LockFileEx(handle_of(fd), LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &at));
}

// A new file has the access rules of its folder.
int FileSystem::set_mode(int, uint32_t) { return 0; }

int FileSystem::truncate(int fd, uint64_t size) {
  FILE_END_OF_FILE_INFO info{};
  info.EndOfFile.QuadPart = static_cast<LONGLONG>(size);
  return result_of(
      SetFileInformationByHandle(handle_of(fd), FileEndOfFileInfo, &info, sizeof info));
}

int64_t FileSystem::read(int fd, void* data, size_t size) {
  DWORD done = 0;
  const auto most = static_cast<DWORD>(std::min<size_t>(size, 1u << 30));
  if (ReadFile(handle_of(fd), data, most, &done, nullptr) == 0) {
    return GetLastError() == ERROR_HANDLE_EOF || GetLastError() == ERROR_BROKEN_PIPE ? 0 : failed();
  }
  return done;
}

// ReadFile() moves the position, also if it is told where to read.
int64_t FileSystem::read_at(int fd, void* data, size_t size, uint64_t offset) {
  const HANDLE handle = handle_of(fd);
  LARGE_INTEGER before{}, none{};
  const bool is_known = SetFilePointerEx(handle, none, &before, FILE_CURRENT) != 0;
  OVERLAPPED at{};
  at.Offset = static_cast<DWORD>(offset);
  at.OffsetHigh = static_cast<DWORD>(offset >> 32);
  DWORD done = 0;
  const auto most = static_cast<DWORD>(std::min<size_t>(size, 1u << 30));
  int64_t result = 0;
  if (ReadFile(handle, data, most, &done, &at) != 0) {
    result = done;
  } else if (GetLastError() != ERROR_HANDLE_EOF) {
    result = failed();
  }
  if (is_known) {
    (void)SetFilePointerEx(handle, before, nullptr, FILE_BEGIN);
  }
  return result;
}

int64_t FileSystem::write(int fd, const void* data, size_t size) {
  DWORD done = 0;
  const auto most = static_cast<DWORD>(std::min<size_t>(size, 1u << 30));
  return WriteFile(handle_of(fd), data, most, &done, nullptr) != 0 ? int64_t{done} : failed();
}

// A folder cannot be flushed. rename() returns after its change is on the disk.
int FileSystem::sync(int fd) {
  const HANDLE handle = handle_of(fd);
  return is_folder(handle) ? 0 : result_of(FlushFileBuffers(handle));
}

int FileSystem::close(int fd) { return _close(fd); }

int FileSystem::rename(const char* from, const char* to) {
  const std::wstring source = wide(from), target = wide(to);
  if (source.empty() || target.empty()) {
    return failed();
  }
  if (MoveFileExW(source.c_str(), target.c_str(),
                  MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH) != 0) {
    return 0;
  }
  failed();
  const DWORD attributes = GetFileAttributesW(target.c_str());
  const bool is_file = attributes != INVALID_FILE_ATTRIBUTES &&
                       (attributes & (FILE_ATTRIBUTE_DIRECTORY | FILE_ATTRIBUTE_READONLY)) == 0;
  errno = errno == EACCES && is_file ? EBUSY : errno;
  return -1;
}

int FileSystem::unlink(const char* path) {
  const std::wstring name = wide(path);
  return name.empty() ? failed() : result_of(DeleteFileW(name.c_str()));
}

int FileSystem::make_folder(const char* path) {
  const std::wstring name = wide(path);
  return name.empty() ? failed() : result_of(CreateDirectoryW(name.c_str(), nullptr));
}

void* FileSystem::map(int fd, size_t size, uint64_t offset) {
  const HANDLE mapping = CreateFileMappingW(handle_of(fd), nullptr, PAGE_READONLY, 0, 0, nullptr);
  if (mapping == nullptr) {
    failed();
    return nullptr;
  }
  void* const data = MapViewOfFile(mapping, FILE_MAP_READ, static_cast<DWORD>(offset >> 32),
                                   static_cast<DWORD>(offset), size);
  if (data == nullptr) {
    failed();
  }
  (void)CloseHandle(mapping);  // the view keeps it
  return data;
}

void FileSystem::unmap(void* data, size_t) { (void)UnmapViewOfFile(data); }

// Removes the pages from the working set, though none is locked.
int FileSystem::forget(void* data, size_t size) {
  (void)VirtualUnlock(data, size);
  return 0;
}

FileSystem& real_file_system() {
  static FileSystem system;
  return system;
}

}  // namespace bowline
