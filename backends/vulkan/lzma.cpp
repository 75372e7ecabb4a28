#include "lzma.h"

#include <algorithm>
#include <array>
#include <vector>

namespace bowline::detail::vulkan {
namespace {

constexpr uint32_t kPositions = 1u << kLzmaPosition;
constexpr uint32_t kStates = 12;
constexpr uint32_t kLeastMatch = 2;
constexpr uint32_t kFirstSlotWithAlignment = 14;

// The probability that a bit is 0, in 2048ths.
using Probability = uint16_t;
constexpr Probability kEven = 1024;

template <size_t N>
struct Probabilities : std::array<Probability, N> {
  Probabilities() { this->fill(kEven); }
};

// Range decoder: reads bits with the probabilities that the encoder had, and adapts them.
class Bits {
 public:
  explicit Bits(std::span<const uint8_t> packed) : packed_(packed) {
    for (int i = 0; i < 5; ++i) {  // the first byte is 0
      code_ = (code_ << 8) | next();
    }
  }
  // True after a read behind the end.
  bool is_short() const { return is_short_; }

  uint32_t bit(Probability& p) {
    normalize();
    const uint32_t bound = (range_ >> 11) * p;
    if (code_ < bound) {
      range_ = bound;
      p = static_cast<Probability>(p + ((2048u - p) >> 5));
      return 0;
    }
    range_ -= bound;
    code_ -= bound;
    p = static_cast<Probability>(p - (p >> 5));
    return 1;
  }
  // Reads `count` bits of equal probability, high ones first.
  uint32_t even(uint32_t count) {
    uint32_t value = 0;
    for (uint32_t i = 0; i < count; ++i) {
      normalize();
      range_ >>= 1;
      const bool one = code_ >= range_;
      code_ -= one ? range_ : 0;
      value = (value << 1) | (one ? 1 : 0);
    }
    return value;
  }
  // Reads `count` bits, high ones first. The probability of a bit depends on those before it.
  uint32_t tree(Probability* p, uint32_t count) {
    uint32_t node = 1;
    for (uint32_t i = 0; i < count; ++i) {
      node = (node << 1) | bit(p[node]);
    }
    return node - (1u << count);
  }
  // As tree(), low bits first.
  uint32_t reversed(Probability* p, uint32_t count) {
    uint32_t node = 1, value = 0;
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t one = bit(p[node]);
      node = (node << 1) | one;
      value |= one << i;
    }
    return value;
  }

 private:
  uint32_t next() {
    is_short_ = is_short_ || at_ == packed_.size();
    return is_short_ ? 0 : packed_[at_++];
  }
  void normalize() {
    if (range_ < (1u << 24)) {
      range_ <<= 8;
      code_ = (code_ << 8) | next();
    }
  }

  std::span<const uint8_t> packed_;
  size_t at_ = 0;
  uint32_t range_ = UINT32_MAX;
  uint32_t code_ = 0;
  bool is_short_ = false;
};

// The length of a match, less kLeastMatch.
class Length {
 public:
  uint32_t read(Bits& bits, uint32_t position) {
    return bits.bit(is_long_) == 0      ? bits.tree(&low_[8 * position], 3)
           : bits.bit(is_longest_) == 0 ? 8 + bits.tree(&mid_[8 * position], 3)
                                        : 16 + bits.tree(high_.data(), 8);
  }

 private:
  Probability is_long_ = kEven, is_longest_ = kEven;
  Probabilities<8 * kPositions> low_, mid_;
  Probabilities<256> high_;
};

class Decoder {
 public:
  Decoder(std::span<const uint8_t> packed, std::span<uint8_t> out)
      : bits_(packed),
        out_(out),
        literals_(size_t{0x300} << (kLzmaLiteralContext + kLzmaLiteralPosition), kEven) {}

  bool run() {
    while (at_ < out_.size() && !bits_.is_short()) {
      const uint32_t position = static_cast<uint32_t>(at_) % kPositions;
      const size_t context = state_ * kPositions + position;
      if (bits_.bit(is_match_[context]) == 0) {
        literal();
        continue;
      }
      uint32_t length = 0;
      if (bits_.bit(is_repeated_[state_]) == 0) {
        length = kLeastMatch + match_length_.read(bits_, position);
        std::ranges::copy_backward(distances_.begin(), distances_.end() - 1, distances_.end());
        distances_[0] = distance(length);
        state_ = state_ < 7 ? 7 : 10;
      } else if (!repeat()) {
        if (bits_.bit(is_long_repeat_[context]) == 0) {
          length = 1;
          state_ = state_ < 7 ? 9 : 11;
        }
      }
      if (length == 0) {
        length = kLeastMatch + repeat_length_.read(bits_, position);
        state_ = state_ < 7 ? 8 : 11;
      }
      if (distances_[0] >= at_) {
        return false;
      }
      for (const size_t end = std::min(out_.size(), at_ + length); at_ < end; ++at_) {
        out_[at_] = out_[at_ - distances_[0] - 1];
      }
    }
    return at_ == out_.size() && !bits_.is_short();
  }

 private:
  void literal() {
    const uint32_t before = at_ == 0 ? 0 : out_[at_ - 1];
    const uint32_t low = static_cast<uint32_t>(at_) & ((1u << kLzmaLiteralPosition) - 1);
    const uint32_t context = (low << kLzmaLiteralContext) + (before >> (8 - kLzmaLiteralContext));
    Probability* const p = &literals_[size_t{0x300} * context];
    uint32_t node = 1;
    // After a match, the literal differs from the byte that would continue the match. Their first
    // bits may be equal, so that byte selects the probabilities until a bit differs.
    if (state_ >= 7) {
      uint32_t expected = out_[at_ - distances_[0] - 1];
      while (node < 0x100) {
        const uint32_t wanted = (expected >> 7) & 1;
        expected <<= 1;
        const uint32_t one = bits_.bit(p[((1 + wanted) << 8) + node]);
        node = (node << 1) | one;
        if (one != wanted) {
          break;
        }
      }
    }
    while (node < 0x100) {
      node = (node << 1) | bits_.bit(p[node]);
    }
    out_[at_++] = static_cast<uint8_t>(node);
    state_ = state_ < 4 ? 0 : state_ < 10 ? state_ - 3 : state_ - 6;
  }

  // Moves a distance of the last four to the front. Returns false if it was there already.
  bool repeat() {
    uint32_t i = 0;
    while (i < 3 && bits_.bit(is_later_[i * kStates + state_]) == 1) {
      ++i;
    }
    std::rotate(distances_.begin(), distances_.begin() + i, distances_.begin() + i + 1);
    return i != 0;
  }

  // The distance of a match, less 1.
  uint32_t distance(uint32_t length) {
    const uint32_t context = std::min(length - kLeastMatch, 3u);
    const uint32_t slot = bits_.tree(&slots_[64 * context], 6);
    if (slot < 4) {
      return slot;
    }
    const uint32_t low_bits = (slot >> 1) - 1;
    const uint32_t high = (2 | (slot & 1)) << low_bits;
    if (slot < kFirstSlotWithAlignment) {
      return high + bits_.reversed(&near_[high - slot], low_bits);
    }
    const uint32_t middle = bits_.even(low_bits - 4) << 4;
    return high + middle + bits_.reversed(aligned_.data(), 4);
  }

  Bits bits_;
  std::span<uint8_t> out_;
  size_t at_ = 0;
  uint32_t state_ = 0;                   // what the last steps were
  std::array<uint32_t, 4> distances_{};  // the last four, each less 1
  std::vector<Probability> literals_;
  Probabilities<kStates * kPositions> is_match_, is_long_repeat_;
  Probabilities<kStates> is_repeated_;
  Probabilities<3 * kStates> is_later_;
  Probabilities<4 * 64> slots_;
  Probabilities<115> near_;
  Probabilities<16> aligned_;
  Length match_length_, repeat_length_;
};

}  // namespace

bool decode_lzma(std::span<const uint8_t> packed, std::span<uint8_t> out) {
  return Decoder(packed, out).run();
}

}  // namespace bowline::detail::vulkan
