// The fixed parts of a model file: header, trailer, alignment. schemas/model.fbs documents the
// layout.
#pragma once

#include <array>
#include <cstring>
#include <span>

#include "base/checked.h"

namespace bowline::detail::model {

constexpr std::array<char, 8> kMagic = {'B', 'O', 'W', 'L', 'I', 'N', 'E', '1'};
constexpr std::array<char, 8> kTrailerMagic = {'B', 'W', 'L', 'N', 'T', 'A', 'I', 'L'};
constexpr uint32_t kFormatMajor = 1;
constexpr uint64_t kHeaderBytes = 64;
constexpr uint64_t kTrailerBytes = 32;
constexpr uint64_t kPageBytes = 4096;  // the data start is a multiple of it
constexpr uint64_t kRangeAlignment = 64;
constexpr uint64_t kMaxFlatBuffer = 0x7FFFFFFE;  // offsets in a FlatBuffer have 31 bits
constexpr uint64_t kMinTableBytes = 8;  // the offset of its vtable, and the offset to the table
constexpr uint32_t kMaxDepth = 64;
// The most bytes of a storage that save() keeps in memory at a time.
constexpr uint64_t kRunBytes = uint64_t{8} << 20;

// Header and trailer are copied without conversion: host and file are little-endian.
struct Header {
  std::array<char, 8> magic = kMagic;
  uint32_t format_major = kFormatMajor;
  uint32_t zero = 0;
  uint64_t flatbuffer_offset = kHeaderBytes;
  uint64_t flatbuffer_length = 0;
  uint64_t data_start = 0;
  uint64_t file_length = 0;
  std::array<uint64_t, 2> zeros = {};
};
static_assert(sizeof(Header) == kHeaderBytes);

struct Trailer {
  std::array<char, 8> magic = kTrailerMagic;
  uint64_t hash_low = 0;
  uint64_t hash_high = 0;
  uint64_t zero = 0;
};
static_assert(sizeof(Trailer) == kTrailerBytes);

template <class T>
T read_as(std::span<const std::byte> bytes, uint64_t offset) {
  T out;
  std::memcpy(&out, bytes.data() + offset, sizeof(T));
  return out;
}

}  // namespace bowline::detail::model
