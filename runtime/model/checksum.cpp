#include "model/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace bowline::detail::model {

struct StreamHash::State {
  XXH3_state_t xxh;
};

uint64_t checksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

struct StreamChecksum::State {
  XXH3_state_t xxh;
};

StreamChecksum::StreamChecksum() : state_(std::make_unique<State>()) {
  XXH3_64bits_reset(&state_->xxh);
}
StreamChecksum::~StreamChecksum() = default;

void StreamChecksum::add(std::span<const std::byte> bytes) {
  XXH3_64bits_update(&state_->xxh, bytes.data(), bytes.size());
}

uint64_t StreamChecksum::value() const { return XXH3_64bits_digest(&state_->xxh); }

StreamHash::StreamHash() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->xxh); }
StreamHash::~StreamHash() = default;

void StreamHash::add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size());
}

Hash128 StreamHash::value() const {
  const XXH128_hash_t h = XXH3_128bits_digest(&state_->xxh);
  return {h.low64, h.high64};
}

}  // namespace bowline::detail::model
