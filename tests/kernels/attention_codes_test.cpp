// One query and keys or values that are bytes with a scale for each row: as attention over what they stand for, whether one or both are
// codes; and nothing behind them is read.
#include <cmath>
#include <random>

#include "compute/attention.h"
#include "kernels/instruction_sets.h"

namespace bowline::cpu {
namespace {

constexpr size_t kHeads = 3;
constexpr size_t kKeys = 131;

// Rows of codes, and of what they stand for.
class CodedRows {
 public:
  CodedRows(size_t dim, uint32_t seed)
      : codes_(kKeys * dim), scales_(kKeys), zeros_(0), numbers_(kKeys * dim), dim_(dim) {
    std::mt19937 bits(seed);
    for (size_t row = 0; row < kKeys; ++row) {
      scales_[row] = static_cast<float>(bits() % 100) / 5000;
      for (size_t i = row * dim; i < (row + 1) * dim; ++i) {
        codes_[i] = static_cast<int8_t>(static_cast<int>(bits() % 255) - 127);
        numbers_[i] = scales_[row] * static_cast<float>(codes_[i]);
      }
    }
    CodeLayout& l = coded_.layout;
    l.columns = l.block = l.row_bytes = l.block_bytes = dim;
    l.scale_row = l.scale_block = sizeof(float);
    coded_.codes = reinterpret_cast<const std::byte*>(static_cast<int8_t*>(codes_));
    coded_.scales = reinterpret_cast<const std::byte*>(static_cast<float*>(scales_));
    coded_.zeros = zeros_;
  }

  AttentionInput<float> input(bool coded) {
    return coded ? AttentionInput<float>{nullptr, {0, 0, dim_}, &coded_}
                 : AttentionInput<float>{numbers_, {0, 0, dim_}};
  }

 private:
  EdgeOf<int8_t> codes_;
  EdgeOf<float> scales_;
  EdgeOf<std::byte> zeros_;
  EdgeOf<float> numbers_;
  size_t dim_;
  Codes coded_;
};

using AttentionCodes = OnInstructionSet;

TEST_P(AttentionCodes, AreWhatTheyStandFor) {
  Threads threads(2);
  for (const size_t dim : {1, 3, 16, 17, 64, 83}) {
    CodedRows k(dim, 1), v(dim, 2);
    std::vector<float> q(kHeads * dim);
    std::mt19937 bits(3);
    for (float& x : q) {
      x = static_cast<float>(bits() % 200) / 100 - 1;
    }
    const auto attend = [&](bool coded_k, bool coded_v) {
      AttentionShape s;
      s.batch = s.kv_heads = s.queries = 1;
      s.heads = kHeads;
      s.keys = kKeys;
      s.dim = dim;
      s.scale = 0.5f;
      s.encoded = coded_k || coded_v;
      std::vector<float> o(kHeads * dim), lse(kHeads);
      std::vector<float> scratch(attention_scratch_bytes<float>(s, threads) / sizeof(float));
      attention<float>(threads, s, {q.data(), {0, dim, dim}}, k.input(coded_k), v.input(coded_v),
                       {o.data(), {0, dim, dim}}, lse.data(), 1, scratch.data());
      o.insert(o.end(), lse.begin(), lse.end());
      return o;
    };
    const std::vector<float> expected = attend(false, false);
    for (const auto& [coded_k, coded_v] : {std::pair(true, true), {true, false}, {false, true}}) {
      const std::vector<float> got = attend(coded_k, coded_v);
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(got[i], expected[i], 2e-5) << "number " << i << " of heads of " << dim;
      }
    }
  }
}

BOWLINE_ON_ALL_INSTRUCTION_SETS(AttentionCodes);

}  // namespace
}  // namespace bowline::cpu
