// Checksums of a model file: XXH3, 64 bits for each range and 128 bits for the whole file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace bowline::detail::model {

uint64_t checksum(std::span<const std::byte> bytes);

struct Hash128 {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const Hash128&) const = default;
};

// checksum() of a stream.
class StreamChecksum {
 public:
  StreamChecksum();
  ~StreamChecksum();
  StreamChecksum(const StreamChecksum&) = delete;
  StreamChecksum& operator=(const StreamChecksum&) = delete;
  void add(std::span<const std::byte> bytes);
  uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The 128-bit hash of a stream.
class StreamHash {
 public:
  StreamHash();
  ~StreamHash();
  StreamHash(const StreamHash&) = delete;
  StreamHash& operator=(const StreamHash&) = delete;
  void add(std::span<const std::byte> bytes);
  Hash128 value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bowline::detail::model
