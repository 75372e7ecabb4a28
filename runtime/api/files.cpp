// Files that a program writes as the library writes its own.
#include "core/boundary.h"
#include "model/atomic_file.h"

namespace bowline {

Status write_file(const std::string& path, std::span<const std::span<const std::byte>> pieces) {
  return guarded([&]() -> Status {
    uint64_t bytes = 0;
    for (const std::span<const std::byte> piece : pieces) {
      bytes += piece.size();
    }
    BOWLINE_TRY_ASSIGN(const auto file,
                       model::AtomicFile::create(path, bytes, model::real_file_system()));
    for (const std::span<const std::byte> piece : pieces) {
      BOWLINE_TRY(file->write(piece));
    }
    return file->commit();
  });
}

Status probe_file(const std::string& path, uint64_t bytes) {
  return guarded(
      [&] { return model::AtomicFile::create(path, bytes, model::real_file_system()).status(); });
}

std::string target_of_temporary(const std::string& path) {
  return guarded([&] { return model::AtomicFile::target_of(path); });
}

}  // namespace bowline
