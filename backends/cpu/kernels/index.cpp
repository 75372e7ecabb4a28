//! ops(f32, f16, bf16) Embedding EmbeddingGrad
// y[i] = table[ids[i]]; dtable[r] = sum of dy[i] with ids[i] == r, in increasing order of i.
#include <algorithm>
#include <cstring>

#include "compute/elementwise.h"
#include "wide.h"

namespace bowline::detail::cpu::index_kernels {
namespace {

// `copy` writes row ids[i] of the table to row i of y.
template <class T, class Copy>
void copy_rows(const Launch& l, const Copy& copy) {
  const int64_t rows = (*l.in[0].shape)[0];
  const int64_t n = (*l.in[0].shape)[1];
  const int32_t* ids = l.in[1].i32();
  T* y = l.out[0].as<T>();
  const int64_t count = l.in[1].elements();
  for (int64_t i = 0; i < count; ++i) {
    if (ids[i] < 0 || ids[i] >= rows) {
      l.bad_index(ids[i]);
    }
  }
  parallel_rows(l.threads, count, n, [&](int64_t i) {
    if (ids[i] < 0 || ids[i] >= rows) {
      std::fill_n(y + i * n, n, T{});
    } else {
      copy(ids[i], y + i * n);
    }
  });
}

void store_floats(const float* from, size_t n, float* to) { std::copy_n(from, n, to); }
template <class T>
void store_floats(const float* from, size_t n, T* to) {
  narrow(n, from, to);
}

template <class T>
void run_embedding(const Launch& l) {
  const auto n = static_cast<size_t>((*l.in[0].shape)[1]);
  if (!l.is_encoded(0)) {
    const T* const table = l.in[0].as<const T>();
    copy_rows<T>(
        l, [=](int32_t id, T* to) { std::copy_n(table + static_cast<size_t>(id) * n, n, to); });
    return;
  }
  const Codes codes = l.codes(0);
  copy_rows<T>(l, [&](int32_t id, T* to) {
    constexpr size_t kAtOnce = 512;
    float some[kAtOnce];
    for (size_t i = 0; i < n; i += kAtOnce) {
      const size_t count = std::min(kAtOnce, n - i);
      decode(codes, static_cast<size_t>(id), i, count, some);
      store_floats(some, count, to + i);
    }
  });
}

// Each task owns a range of columns of every row, so that positions are added in order.
void run_embedding_grad(const Launch& l) {
  const int64_t rows = (*l.out[0].shape)[0];
  const int64_t n = (*l.out[0].shape)[1];
  const int32_t* ids = l.in[0].i32();
  const float* dy = l.in[1].f32();
  float* d = l.out[0].f32();
  const int64_t count = l.in[0].elements();
  parallel_blocks(l.threads, n, 32, [&](int64_t begin, int64_t end) {
    for (int64_t r = 0; r < rows; ++r) {
      std::fill(d + r * n + begin, d + r * n + end, 0.0f);
    }
    for (int64_t i = 0; i < count; ++i) {
      if (ids[i] < 0 || ids[i] >= rows) {
        continue;
      }
      float* row = d + ids[i] * n;
      const float* from = dy + i * n;
      for (int64_t c = begin; c < end; ++c) {
        row[c] += from[c];
      }
    }
  });
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(embedding, .run = run_embedding<T>, .encoded = 0b1);
BOWLINE_CPU_WIDE_KERNELS(embedding_grad, run_embedding_grad, no_workspace);

}  // namespace bowline::detail::cpu::index_kernels
