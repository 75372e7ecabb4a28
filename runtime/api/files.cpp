// Writes files of a program in the same way as model files.
#include "base/atomic_file.h"
#include "base/boundary.h"
#include "bowline.h"

namespace bowline {

Status write_file(const std::string& path, std::span<const std::span<const std::byte>> pieces) {
  return guarded([&]() -> Status {
    uint64_t bytes = 0;
    for (const std::span<const std::byte> piece : pieces) {
      bytes += piece.size();
    }
    BOWLINE_TRY_ASSIGN(const auto file, AtomicFile::create(path, bytes, real_file_system()));
    for (const std::span<const std::byte> piece : pieces) {
      BOWLINE_TRY(file->write(piece));
    }
    return file->commit();
  });
}

}  // namespace bowline
