// Decoding with a cache, compared with the recomputed whole text, in f32 on the CPU.
//
// The results have the same bits where the same kernels run. Two kernels sum in another order
// during decoding:
//   Linear     a product of one row alternates between four vectors of partial sums; 2 to 64 rows
//              use one vector (compute/dots-inl.h); more rows add element by element
//              (compute/gemm-inl.h): differences of 1e-7 to 4e-7 of the largest result, for 32 to
//              1024 columns
//   Attention  one query sums along the head in vectors; several add element by element
//              (compute/attention.cpp): 7e-8
// A common order would cost the product of one row its vectors, which dominates decoding.
#include <numeric>

#include "generate/decoder_model.h"
#include "ties/seed_models.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

using Ids = std::vector<int32_t>;

constexpr int64_t kTokens = 150;  // more than two blocks of keys
constexpr int64_t kVocabulary = 300;

class Recomputation : public testing::Test {
 protected:
  void SetUp() override {
    for (int32_t i = 0; i < kTokens; ++i) {
      text_.push_back((i * 37 + i * i) % 300);
    }
    ASSERT_OK(model_.resize("cache.*", kTokens).status());
    ASSERT_OK(model_.to(cpu_));
  }

  // Recomputes the logits [n, vocabulary] of the first n tokens.
  Floats anew(int64_t n) {
    Session s = must(
        Session::create(model_, cpu_, "forward", std::vector<BoundDim>{{"batch", 1}, {"seq", n}}));
    Ids ids(text_.begin(), text_.begin() + n);
    Floats out(static_cast<size_t>(n * kVocabulary));
    const Tensor in = tensor("tokens", {1, n}, ids);
    const Tensor to = tensor("logits", {1, n, kVocabulary}, out);
    must(s.run({&in, 1}, {&to, 1}));
    return out;
  }
  static Floats last(const Floats& logits) { return {logits.end() - kVocabulary, logits.end()}; }

  // Logits after each token, decoded with the cache.
  std::vector<Floats> decoded() {
    Session s = must(
        Session::create(model_, cpu_, "decode", std::vector<BoundDim>{{"kv_length", kTokens}}));
    std::vector<Floats> out;
    for (int32_t i = 0; i < kTokens; ++i) {
      Ids id = {text_[static_cast<size_t>(i)]}, at = {i};
      Floats& row = out.emplace_back(kVocabulary);
      const Tensor in[] = {tensor("tokens", {1, 1}, id), tensor("positions", {1}, at)};
      const Tensor to = tensor("logits", {1, kVocabulary}, row);
      must(s.run(in, {&to, 1}, std::vector<StepScalar>{{"position", i}, {"kv_length", i + 1}}));
    }
    return out;
  }

  // The contents of the caches after reading the text in parts.
  Floats cached(std::span<const int64_t> pieces) {
    Session s = must(Session::create(
        model_, cpu_, "prefill", std::vector<BoundDim>{{"kv_length", kTokens}, {"rows", kTokens}}));
    int64_t first = 0;
    for (const int64_t rows : pieces) {
      Ids ids(text_.begin() + first, text_.begin() + first + rows), at(ids.size());
      std::iota(at.begin(), at.end(), static_cast<int32_t>(first));
      const Tensor in[] = {tensor("tokens", {1, rows}, ids), tensor("positions", {rows}, at)};
      must(
          s.run(in, {}, std::vector<StepScalar>{{"position", first}, {"kv_length", first + rows}}));
      first += rows;
    }
    Floats out;
    for (int layer = 0; layer < shape_.layers; ++layer) {
      for (const char* name : {"cache.{}.k", "cache.{}.v"}) {
        const Floats rows = values(model_, format(name, layer));
        out.insert(out.end(), rows.begin(), rows.end());
      }
    }
    return out;
  }

  DecoderShape shape_;
  Model model_ = decoder_model(shape_);
  Device cpu_ = open_test_device("cpu");
  Ids text_;
};

float largest(const Floats& x) {
  return std::abs(*std::ranges::max_element(x, {}, [](float v) { return std::abs(v); }));
}

float difference(const Floats& a, const Floats& b) {
  float out = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    out = std::max(out, std::abs(a[i] - b[i]));
  }
  return out;
}

// The last logits of each recomputed text with enough rows for one kernel have the same bits.
TEST_F(Recomputation, ALongerTextGivesTheSameBits) {
  const Floats all = anew(kTokens);
  for (const int64_t n : {65, 66, 128, 149}) {
    const Floats some = anew(n);
    EXPECT_EQ(some, Floats(all.begin(), all.begin() + n * kVocabulary)) << n;
  }
}

TEST_F(Recomputation, APromptInPiecesGivesTheSameBits) {
  const Floats whole = cached(std::vector<int64_t>{kTokens});
  EXPECT_EQ(cached(std::vector<int64_t>{75, 75}), whole);
  EXPECT_EQ(cached(std::vector<int64_t>{2, 62, 3, 83}), whole);
}

// Sums of 8 to 150 values in other orders, through three layers: the measured difference is 3.4e-6
// of the largest logit.
TEST_F(Recomputation, DecodingIsCloseToIt) {
  const std::vector<Floats> rows = decoded();
  EXPECT_EQ(rows[0], anew(1)) << "one row, one query: the same kernels";
  const Floats all = anew(kTokens);
  float worst = 0;
  for (size_t i = 1; i < rows.size(); ++i) {
    const Floats right(all.begin() + static_cast<ptrdiff_t>(i) * kVocabulary,
                       all.begin() + static_cast<ptrdiff_t>(i + 1) * kVocabulary);
    worst = std::max(worst, difference(rows[i], right) / largest(right));
    EXPECT_EQ(std::ranges::max_element(rows[i]) - rows[i].begin(),
              std::ranges::max_element(right) - right.begin())
        << i;
  }
  EXPECT_LT(worst, 1e-5f);
}

}  // namespace
}  // namespace bowline::test
