#include "params/home.h"

namespace bowline::params {

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
  scratch.resize(count);
  if (count > 0) {
    BOWLINE_TRY(home.block->device().copy_out(scratch, home.block->buffer(), first));
  }
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

Result<Home> make_home(const std::shared_ptr<device::OpenDevice>& device, Bytes bytes) {
  Home home;
  if (!device) {
    home.host = std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
    return home;
  }
  BOWLINE_ASSIGN(home.block,
                 device::Block::allocate(device, bytes.size(), device::MemoryKind::device));
  if (!bytes.empty()) {
    BOWLINE_TRY(device->copy_in(home.block->buffer(), 0, bytes));
  }
  return home;
}

void install(Storage& storage, Home home) {
  storage.home = std::move(home);
  ++storage.version;
  ++storage.generation;
}

}  // namespace bowline::params
