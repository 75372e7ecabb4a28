//! ops(f32, f16, bf16) Embedding EmbeddingGrad
// y[i] = table[ids[i]]; dtable[r] = sum of dy[i] with ids[i] == r, in the order of i.
#include <algorithm>
#include <cstring>

#include "compute/elementwise.h"
#include "wide.h"

namespace bowline::cpu {
namespace {

// T has the bytes of an element.
template <class T>
void run_embedding(const Launch& l) {
  const int64_t rows = (*l.in[0].shape)[0];
  const int64_t n = (*l.in[0].shape)[1];
  const int32_t* ids = l.in[1].i32();
  const T* table = l.in[0].as<const T>();
  T* y = l.out[0].as<T>();
  const int64_t count = l.in[1].elements();
  for (int64_t i = 0; i < count; ++i) {
    if (ids[i] < 0 || ids[i] >= rows) {
      l.bad_index(ids[i]);
    }
  }
  parallel_blocks(l.threads, count, std::max<int64_t>(1, 16384 / std::max<int64_t>(1, n)),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; ++i) {
                      if (ids[i] < 0 || ids[i] >= rows) {
                        std::fill_n(y + i * n, n, T{0});
                      } else {
                        std::copy_n(table + ids[i] * n, n, y + i * n);
                      }
                    }
                  });
}

// Each task owns a range of columns of every row, so that the order of the sum is that of the positions.
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

extern const Kernel kernel_embedding, kernel_embedding_f16, kernel_embedding_bf16;
const Kernel kernel_embedding{.run = run_embedding<uint32_t>};
const Kernel kernel_embedding_f16{.run = run_embedding<uint16_t>};
const Kernel kernel_embedding_bf16{.run = run_embedding<uint16_t>};
BOWLINE_CPU_WIDE_KERNELS(embedding_grad, run_embedding_grad, no_workspace);

}  // namespace bowline::cpu
