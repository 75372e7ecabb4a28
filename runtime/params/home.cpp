#include "params/home.h"

#include <cmath>
#include <cstring>

#include "base/memory.h"
#include "core/element_types.h"

namespace bowline::detail::params {

Status require_host_memory(uint64_t bytes) {
  BOWLINE_REQUIRE_CODE(bytes <= total_memory(), Code::out_of_memory,
                       "{} bytes are more than the memory of the host.", bytes);
  return {};
}

namespace {

// Calls part(block, offset in the block, offset in the run, bytes) for each block that holds a part
// of the run.
template <class Part>
Status for_each_part(const Home& home, uint64_t first, uint64_t count, const Part& part) {
  if (home.block) {
    return part(*home.block, first, 0, count);
  }
  uint64_t begin = 0;
  for (const std::shared_ptr<device::Block>& shard : home.shards) {
    const uint64_t from = std::max(first, begin);
    const uint64_t to = std::min(first + count, begin + shard->bytes());
    if (from < to) {
      BOWLINE_TRY(part(*shard, from - begin, from - first, to - from));
    }
    begin += shard->bytes();
  }
  return {};
}

}  // namespace

Result<Bytes> read_run(const Storage& storage, uint64_t first, uint64_t count,
                       std::vector<std::byte>& scratch) {
  const Home& home = storage.home;
  BOWLINE_REQUIRE(home.valid(), "The storage has no values. Call materialize() or load() first.");
  if (home.file) {
    if (!home.file->file->is_in_place()) {
      BOWLINE_TRY(require_host_memory(count));
    }
    return home.file->read(first, count, scratch);
  }
  if (home.host) {
    return Bytes(*home.host).subspan(first, count);
  }
  BOWLINE_TRY(require_host_memory(count));
  scratch.resize(count);
  if (home.source) {
    BOWLINE_TRY((*home.source)(first, scratch));
    return Bytes(scratch);
  }
  const auto read = [&](const device::Block& block, uint64_t at, uint64_t from, uint64_t bytes) {
    return block.read(at, std::span(scratch).subspan(from, bytes));
  };
  BOWLINE_TRY(for_each_part(home, first, count, read));
  return Bytes(scratch);
}

Status write_run(const Home& home, uint64_t first, Bytes run) {
  return for_each_part(home, first, run.size(),
                       [&](const device::Block& block, uint64_t at, uint64_t from, uint64_t bytes) {
                         return block.write(at, run.subspan(from, bytes));
                       });
}

Result<Bytes> read_all(const Storage& storage, std::vector<std::byte>& scratch) {
  return read_run(storage, 0, storage.bytes(), scratch);
}

Result<std::vector<float>> decoded(const Storage& storage) {
  const auto elements = static_cast<uint64_t>(storage.shape.elements());
  BOWLINE_TRY(require_host_memory(elements * sizeof(float)));
  std::vector<std::byte> scratch;
  BOWLINE_TRY_ASSIGN(const Bytes bytes, read_all(storage, scratch));
  std::vector<float> out(elements);
  storage.encoding.decode(bytes, storage.dtype, storage.shape, {0, storage.shape.elements()}, out);
  return out;
}

void copy_codes(const Storage& storage, Bytes from, uint64_t first, uint64_t count,
                std::span<std::byte> to, const Shape& to_shape) {
  const Encoding& encoding = storage.encoding;
  const CodePlace source = encoding.place(storage.dtype, storage.shape, first);
  const CodePlace begin = encoding.place(storage.dtype, to_shape, 0);
  const CodePlace end = encoding.place(storage.dtype, to_shape, count);
  for (const auto plane : {&CodePlace::codes, &CodePlace::scales, &CodePlace::zeros}) {
    // If quantized values and scales are interleaved, one plane spans all bytes and contains the
    // others.
    const uint64_t last = std::min<uint64_t>(end.*plane, to.size());
    if (begin.*plane < last) {
      std::memcpy(to.data() + begin.*plane, from.data() + source.*plane, last - begin.*plane);
    }
  }
}

Result<std::vector<std::byte>> read_bytes(const Storage& storage) {
  std::vector<std::byte> scratch;
  BOWLINE_TRY_ASSIGN(const Bytes bytes, read_all(storage, scratch));
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
  BOWLINE_TRY_ASSIGN(home.block, device::Block::allocate(device, bytes.size()));
  BOWLINE_TRY(home.block->write(0, bytes));
  return home;
}

std::vector<uint64_t> shard_bytes(const Storage& storage, size_t devices) {
  const uint64_t rows = storage.shape.rank() == 0 || !storage.encoding.is_plain()
                            ? 0
                            : static_cast<uint64_t>(storage.shape[0]);
  if (rows == 0) {
    return {storage.bytes()};
  }
  std::vector<uint64_t> out;
  for (size_t i = 0; i < std::min<uint64_t>(devices, rows); ++i) {
    const uint64_t own = rows / devices + (i < rows % devices ? 1 : 0);
    out.push_back(own * (storage.bytes() / rows));
  }
  return out;
}

Result<Home> make_shards(std::span<const std::shared_ptr<device::OpenDevice>> devices,
                         const Storage& storage, Bytes bytes) {
  Home home;
  uint64_t first = 0;
  for (const uint64_t count : shard_bytes(storage, devices.size())) {
    BOWLINE_TRY_ASSIGN(const Home part,
                       make_home(devices[home.shards.size()], bytes.subspan(first, count)));
    home.shards.push_back(part.block);
    first += count;
  }
  return home;
}

Result<Home> make_home_like(const Storage& storage, Bytes bytes) {
  const Home& old = storage.home;
  if (old.shards.empty()) {
    return make_home(old.block ? old.block->device_handle() : nullptr, bytes);
  }
  std::vector<std::shared_ptr<device::OpenDevice>> devices;
  for (const std::shared_ptr<device::Block>& shard : old.shards) {
    devices.push_back(shard->device_handle());
  }
  return make_shards(devices, storage, bytes);
}

void install(Storage& storage, Home home) {
  storage.home = std::move(home);
  ++storage.version;
  ++storage.generation;
}

}  // namespace bowline::detail::params
