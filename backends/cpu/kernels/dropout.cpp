//! ops(f32, f16, bf16) Dropout
// Dropout: y = x / (1 - rate) if word i % 4 of philox({i / 4, stream, iteration, counter}, seed) is
// at least the threshold, else 0. Without training, y = x.
#include <cstring>

#include "base/float16.h"
#include "base/random.h"
#include "kernel.h"

namespace bowline::detail::cpu::dropout_kernels {
namespace {

float scaled(float x, float scale) { return x * scale; }
template <class T>
T scaled(T x, float scale) {
  return from_f32<T>(to_f32(x) * scale);
}

template <class T>
void run(const Launch& l) {
  const auto& t = l.attributes<DropoutAttributes>();
  const T* x = l.in[0].as<const T>();
  T* y = l.out[0].as<T>();
  const int64_t n = l.out[0].elements();
  const bool off = l.step(step::dropout::training) == 0;
  const uint32_t threshold = dropout_threshold(static_cast<double>(t.rate()));
  const float scale = 1.0f / (1.0f - t.rate());
  const uint32_t counter = l.step(step::dropout::counter);
  const uint64_t seed = l.step(step::dropout::seed);
  const std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed),
                                       static_cast<uint32_t>(seed >> 32)};
  parallel_blocks(l.threads, n, 4096, [&](int64_t begin, int64_t end) {
    if (off) {
      if (x != y) {
        std::memcpy(y + begin, x + begin, static_cast<size_t>(end - begin) * sizeof(T));
      }
      return;
    }
    for (int64_t i = begin; i < end; i += 4) {
      const RandomBlock words =
          philox({static_cast<uint32_t>(i / 4), t.stream(), l.iteration, counter}, key);
      for (int64_t j = i; j < i + 4 && j < end; ++j) {
        y[j] = words[static_cast<size_t>(j - i)] >= threshold ? scaled(x[j], scale) : T{};
      }
    }
  });
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(dropout, .run = run<T>);

}  // namespace bowline::detail::cpu::dropout_kernels
