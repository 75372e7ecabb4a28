//! ops(any) Pad Tile
//! ops(f32, f16, bf16) PadGrad
// Pads with elements of the tensor or with a constant, four elements of y per thread. Tile pads
// with wrap. The gradient has one thread per element of dx.
#include "base/float16.h"
#include "core/element_types.h"
#include "core/padding.h"
#include "device/begin.cuh"
#include "device/elements.cuh"
#include "device/storage.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::pad_kernels {
namespace {

// Passed to kernels by value.
struct Pads {
  int rank = 0;
  PadMode mode = PadMode::constant;
  PaddedAxis axes[kMaxRank];
};

Pads pads_of(const Padding& padding, PadMode mode) {
  Pads out;
  out.rank = padding.rank;
  out.mode = mode;
  for (size_t a = 0; a < static_cast<size_t>(padding.rank); ++a) {
    out.axes[a] = padding.axes[a];
  }
  return out;
}

template <class T>
__global__ void pad_kernel(const T* x, T* y, uint64_t n, Pads p, T value) {
  begin_kernel();
  for_elements(n, [&](uint64_t i) {
    auto rest = static_cast<int64_t>(i);
    int64_t from = 0;
    int64_t stride = 1;
    bool there = true;
    for (int a = p.rank - 1; a >= 0; --a) {
      const PaddedAxis& axis = p.axes[a];
      const int64_t element = taken(axis, p.mode, rest % axis.whole);
      there = there && element >= 0;
      from += (axis.crop + element) * stride;
      stride *= axis.source;
      rest /= axis.whole;
    }
    y[i] = there ? x[from] : value;
  });
}

void launch_pad(Launch& l, const Padding& padding, PadMode mode, float value) {
  const auto n = static_cast<uint64_t>(l.out_shape(0).elements());
  with_bits(size_of(l.type()), [&]<class T>() {
    l.launch("pad", pad_kernel<T>, element_blocks(n), kElementThreads, l.in_as<T>(0),
             l.out_as<T>(0), n, pads_of(padding, mode),
             static_cast<T>(stored_bits(l.type(), value)));
  });
}

void pad(Launch& l) {
  const auto& t = l.attributes<PadAttributes>();
  launch_pad(l, padding_of(l.in_shape(0), *t.begin(), *t.end()), t.mode(), t.value());
}

void tile(Launch& l) { launch_pad(l, padding_of(l.in_shape(0), l.out_shape(0)), PadMode::wrap, 0); }

template <class T>
__global__ void pad_grad_kernel(const T* dy, T* dx, uint64_t n, Pads p) {
  begin_kernel();
  const uint64_t i = uint64_t{blockIdx.x} * kElementThreads + threadIdx.x;
  if (i >= n) {
    return;
  }
  // Takers are computed again for each term, because an array of them would be in local memory.
  const auto for_axes = [&](auto&& f) {
    auto rest = static_cast<int64_t>(i);
    for (int a = p.rank - 1; a >= 0; --a) {
      f(p.axes[a], takers_of(p.axes[a], p.mode, rest % p.axes[a].source));
      rest /= p.axes[a].source;
    }
  };
  int64_t terms = 1;
  for_axes([&](const PaddedAxis&, const Takers& t) { terms *= t.count; });
  float sum = 0;
  for (int64_t k = 0; k < terms; ++k) {
    int64_t left = k;
    int64_t at = 0;
    int64_t stride = 1;
    for_axes([&](const PaddedAxis& axis, const Takers& t) {
      at += t.at(left % t.count) * stride;
      left /= t.count;
      stride *= axis.whole;
    });
    sum += read(dy + at);
  }
  write(dx + i, sum);
}

template <class T>
void pad_grad(Launch& l) {
  const auto& t = l.attributes<PadAttributes>();
  const auto n = static_cast<uint64_t>(l.out_shape(0).elements());
  l.launch("pad gradient", pad_grad_kernel<T>, blocks_for(n, kElementThreads), kElementThreads,
           l.in_as<T>(0), l.out_as<T>(0), n,
           pads_of(padding_of(l.out_shape(0), *t.begin(), *t.end()), t.mode()));
}

}  // namespace

BOWLINE_KERNEL(pad, .run = pad);
BOWLINE_KERNEL(tile, .run = tile);
BOWLINE_KERNELS_OF_FLOATS(pad_grad, .run = pad_grad<T>);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::pad_kernels
