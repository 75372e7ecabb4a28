#include "common/sha256.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>

namespace bowline::command {
namespace {

constexpr size_t kBlock = 64;

// The first 32 bits of the fractional part of a root of the n-th prime.
struct Constants {
  std::array<uint32_t, 64> k;
  std::array<uint32_t, 8> h;
  Constants() {
    size_t found = 0;
    for (uint32_t p = 2; found < k.size(); ++p) {
      bool prime = true;
      for (uint32_t d = 2; d * d <= p; ++d) {
        prime = prime && p % d != 0;
      }
      if (!prime) {
        continue;
      }
      k[found] = fraction(std::cbrt(static_cast<long double>(p)));
      if (found < h.size()) {
        h[found] = fraction(std::sqrt(static_cast<long double>(p)));
      }
      ++found;
    }
  }
  static uint32_t fraction(long double x) {
    return static_cast<uint32_t>(static_cast<uint64_t>((x - std::floor(x)) * 4294967296.0L));
  }
};

class Sha256 {
 public:
  void block(const unsigned char* bytes) {
    std::array<uint32_t, 64> w;
    for (size_t i = 0; i < 16; ++i) {
      w[i] = uint32_t{bytes[4 * i]} << 24 | uint32_t{bytes[4 * i + 1]} << 16 |
             uint32_t{bytes[4 * i + 2]} << 8 | bytes[4 * i + 3];
    }
    for (size_t i = 16; i < 64; ++i) {
      const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
      const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    auto [a, b, c, d, e, f, g, h] = state_;
    for (size_t i = 0; i < 64; ++i) {
      const uint32_t t1 = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                          ((e & f) ^ (~e & g)) + constants_.k[i] + w[i];
      const uint32_t t2 =
          (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      h = g;
      g = f;
      f = e;
      e = d + t1;
      d = c;
      c = b;
      b = a;
      a = t1 + t2;
    }
    const std::array<uint32_t, 8> add = {a, b, c, d, e, f, g, h};
    for (size_t i = 0; i < 8; ++i) {
      state_[i] += add[i];
    }
  }

  // Pads the rest of a message of `total` bytes.
  void finish(const unsigned char* rest, size_t length, uint64_t total) {
    std::array<unsigned char, 2 * kBlock> tail = {};
    std::copy_n(rest, length, tail.begin());  // `rest` may be null where `length` is 0
    tail[length] = 0x80;
    const size_t end = length + 9 <= kBlock ? kBlock : 2 * kBlock;
    for (size_t i = 0; i < 8; ++i) {
      tail[end - 1 - i] = static_cast<unsigned char>(total * 8 >> (8 * i));
    }
    for (size_t at = 0; at < end; at += kBlock) {
      block(tail.data() + at);
    }
  }

  std::string text() const {
    std::string out;
    for (const uint32_t word : state_) {
      out += fmt::format("{:08x}", word);
    }
    return out;
  }

 private:
  Constants constants_;
  std::array<uint32_t, 8> state_ = constants_.h;
};

}  // namespace

Result<std::string> sha256_of_file(const std::string& path) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  Sha256 hash;
  std::array<unsigned char, kBlock * 1024> part;
  uint64_t total = 0;
  for (;;) {
    const size_t n = file ? std::fread(part.data(), 1, part.size(), file.get()) : 0;
    if (!file || std::ferror(file.get()) != 0) {
      return Status(Code::bad_file,
                    fmt::format("\"{}\" cannot be read: {}.", path, std::strerror(errno)));
    }
    total += n;
    const size_t whole = n / kBlock * kBlock;
    for (size_t at = 0; at < whole; at += kBlock) {
      hash.block(part.data() + at);
    }
    if (n < part.size()) {
      hash.finish(part.data() + whole, n - whole, total);
      return hash.text();
    }
  }
}

}  // namespace bowline::command
