#include "params/home.h"

#include <unistd.h>

#include <cmath>
#include <cstring>

#include "core/element_types.h"

namespace bowline::params {

Status require_host_memory(uint64_t bytes) {
  const auto pages = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES));
  BOWLINE_REQUIRE_CODE(bytes <= pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)),
                       Code::out_of_memory, "{} bytes are more than the host has.", bytes);
  return {};
}

Result<Bytes> read_run(const Storage& storage, uint64_t first, uint64_t count,
                       std::vector<std::byte>& scratch) {
  const Home& home = storage.home;
  BOWLINE_REQUIRE(home.valid(), "The storage has no bytes; materialize() or load() gives it some.");
  if (home.file) {
    BOWLINE_ASSIGN(const Bytes all, home.file->bytes());
    return all.subspan(first, count);
  }
  if (home.host) {
    return Bytes(*home.host).subspan(first, count);
  }
  BOWLINE_TRY(require_host_memory(count));
  scratch.resize(count);
  BOWLINE_TRY(home.block->read(first, scratch));
  return Bytes(scratch);
}

Result<Bytes> read_all(const Storage& storage, std::vector<std::byte>& scratch) {
  return read_run(storage, 0, storage.bytes(), scratch);
}

Result<std::vector<std::byte>> read_bytes(const Storage& storage) {
  std::vector<std::byte> scratch;
  BOWLINE_ASSIGN(const Bytes bytes, read_all(storage, scratch));
  if (bytes.data() == scratch.data()) {
    return scratch;
  }
  return std::vector<std::byte>(bytes.begin(), bytes.end());
}

bool all_finite(Bytes bytes, DType dtype) {
  return !is_float(dtype) || with_type(dtype, [&]<class T>() {
    for (size_t i = 0; i + sizeof(T) <= bytes.size(); i += sizeof(T)) {
      T value{};
      std::memcpy(&value, bytes.data() + i, sizeof(value));
      if constexpr (Float<T>) {
        if (!std::isfinite(to_f32(value))) {
          return false;
        }
      }
    }
    return true;
  });
}

Result<Home> make_home(const std::shared_ptr<device::OpenDevice>& device, Bytes bytes) {
  Home home;
  if (!device) {
    home.host = std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
    return home;
  }
  BOWLINE_ASSIGN(home.block,
                 device::Block::allocate(device, bytes.size(), device::MemoryKind::device));
  BOWLINE_TRY(home.block->write(0, bytes));
  return home;
}

void install(Storage& storage, Home home) {
  storage.home = std::move(home);
  ++storage.version;
  ++storage.generation;
}

}  // namespace bowline::params
