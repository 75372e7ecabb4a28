// Attention for a single query with 8-bit keys or values and a scale per row. The output equals the
// formula over the dequantized values, with quantized keys, values or both. Nothing outside of the
// operands is read.
#include <cmath>
#include <random>

#include "compute/attention.h"
#include "kernels/instruction_sets.h"

namespace bowline::detail::cpu {
namespace {

constexpr size_t kHeads = 3;
constexpr size_t kKeys = 131;

// Quantized rows, and their dequantized values.
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

  double at(size_t row, size_t i) { return static_cast<float*>(numbers_)[row * dim_ + i]; }

 private:
  EdgeOf<int8_t> codes_;
  EdgeOf<float> scales_;
  EdgeOf<std::byte> zeros_;
  EdgeOf<float> numbers_;
  size_t dim_;
  Codes coded_;
};

constexpr float kScale = 0.5f;

// o [kHeads][dim], then lse [kHeads].
std::vector<double> by_formula(const std::vector<float>& q, CodedRows& k, CodedRows& v,
                               size_t dim) {
  std::vector<double> out(kHeads * dim + kHeads);
  for (size_t head = 0; head < kHeads; ++head) {
    double sum = 0;
    for (size_t j = 0; j < kKeys; ++j) {
      double score = 0;
      for (size_t i = 0; i < dim; ++i) {
        score += kScale * q[head * dim + i] * k.at(j, i);
      }
      sum += std::exp(score);
      for (size_t i = 0; i < dim; ++i) {
        out[head * dim + i] += std::exp(score) * v.at(j, i);
      }
    }
    for (size_t i = 0; i < dim; ++i) {
      out[head * dim + i] /= sum;
    }
    out[kHeads * dim + head] = std::log(sum);
  }
  return out;
}

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
      s.scale = kScale;
      s.encoded = coded_k || coded_v;
      std::vector<float> o(kHeads * dim), lse(kHeads);
      std::vector<float> scratch(attention_scratch_bytes<float>(s, threads) / sizeof(float));
      attention<float>(threads, s, {q.data(), {0, dim, dim}}, k.input(coded_k), v.input(coded_v),
                       {o.data(), {0, dim, dim}}, lse.data(), 1, scratch.data());
      o.insert(o.end(), lse.begin(), lse.end());
      return o;
    };
    const std::vector<double> expected = by_formula(q, k, v, dim);
    for (const auto& [coded_k, coded_v] :
         {std::pair(false, false), {true, true}, {true, false}, {false, true}}) {
      const std::vector<float> got = attend(coded_k, coded_v);
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(got[i], expected[i], 2e-5) << "number " << i << " of heads of " << dim;
      }
    }
  }
}

BOWLINE_ON_ALL_INSTRUCTION_SETS(AttentionCodes);

}  // namespace
}  // namespace bowline::detail::cpu
