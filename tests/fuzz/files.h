// Files of a fuzz target, for readers that take a path.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>

namespace bowline::test {

// A file in memory, with a path.
class MemoryFile {
 public:
  MemoryFile() : file_(memfd_create("input", 0)) {}
  ~MemoryFile() { close(file_); }
  MemoryFile(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }
  bool write(std::span<const std::byte> bytes) const {
    return ::write(file_, bytes.data(), bytes.size()) == std::ssize(bytes);
  }

 private:
  int file_;
};

// A folder for this process.
class Folder {
 public:
  Folder() {
    // In memory if possible: some file systems wait for the disk when a file is rewritten.
    const std::filesystem::path memory = "/dev/shm";
    const bool is_there = std::filesystem::is_directory(memory);
    std::string made =
        ((is_there ? memory : std::filesystem::temp_directory_path()) / "bowline_fuzz_XXXXXX")
            .string();
    if (mkdtemp(made.data()) == nullptr) {
      __builtin_trap();
    }
    path_ = made;
  }
  ~Folder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  Folder(const Folder&) = delete;
  std::string path(const std::string& name = "") const {
    return name.empty() ? path_ : path_ + "/" + name;
  }
  void write(const std::string& name, std::span<const std::byte> bytes) const {
    std::ofstream file(path(name), std::ios::binary);
    if (!file.write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes))) {
      __builtin_trap();
    }
  }

 private:
  std::string path_;
};

}  // namespace bowline::test
