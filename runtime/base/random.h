// Counter-based random numbers: the bits depend on (key, counter) alone, on every device alike.
//
// Source  Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", 2011:
//         Philox4x32-10.
#pragma once

#include <array>
#include <cstdint>

namespace bowline {

using RandomBlock = std::array<uint32_t, 4>;

// Ten rounds over the 128-bit counter.
constexpr RandomBlock philox(RandomBlock counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// Dropout: element i of a tensor keeps its value if word i % 4 of
//   philox({i / 4, stream, iteration, step counter}, seed)
// is at least this threshold.
constexpr uint32_t dropout_threshold(double rate) {
  const double t = rate * 4294967296.0;
  return t >= 4294967295.0 ? UINT32_MAX : static_cast<uint32_t>(t);
}

}  // namespace bowline
