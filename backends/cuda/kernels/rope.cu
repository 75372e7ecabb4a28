//! ops(f32, f16, bf16) Rope
// Rotates pairs of elements of each head by position * frequency.
#include <algorithm>

#include "device/begin.cuh"
#include "device/elements.cuh"
#include "device/rope.cuh"
#include "device/storage.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::rope_kernels {
namespace {

constexpr int kHeads = 4;  // heads that share the angle in a thread

template <class T>
struct Rotation {
  const T* x;
  T* y;
  const int32_t* given;  // positions, or null; per sequence if per_sequence
  bool per_sequence;
  uint64_t threads;
  uint32_t dim;        // elements per head
  uint32_t heads;      // per position
  uint32_t positions;  // per sequence
  uint32_t half;       // rotated pairs per head
  uint32_t first;      // first pair of this launch
  uint32_t pairs;      // number of pairs in this launch
  uint32_t copied;     // elements per head that this launch copies
  uint64_t offset;     // position of the first element
  bool inverse;
  bool interleaved;
};

// A thread rotates one pair, or copies one element, of up to kHeads heads of a position.
template <class T>
__global__ void rope_kernel(Rotation<T> r, Frequencies frequencies) {
  begin_kernel();
  const uint64_t thread = uint64_t{blockIdx.x} * kElementThreads + threadIdx.x;
  if (thread >= r.threads) {
    return;
  }
  const uint32_t taken = r.pairs + r.copied;
  const uint32_t j = static_cast<uint32_t>(thread % taken);
  const uint32_t head_groups = (r.heads + kHeads - 1) / kHeads;
  const uint64_t group = thread / taken;
  const uint64_t row = group / head_groups;
  const uint32_t head = static_cast<uint32_t>(group % head_groups) * kHeads;
  const uint32_t end = min(head + kHeads, r.heads);
  const uint64_t start = (row * r.heads + head) * r.dim;
  if (j >= r.pairs) {
    const uint64_t at = start + 2 * r.half + (j - r.pairs);
    for (uint32_t h = head; h < end; ++h) {
      const uint64_t step = (h - head) * uint64_t{r.dim};
      write(r.y + at + step, read(r.x + at + step));
    }
    return;
  }
  uint64_t position = row % r.positions;
  if (r.given != nullptr) {
    position = static_cast<uint64_t>(int64_t{r.given[r.per_sequence ? row : position]});
  }
  position += r.offset;
  const float2 cs = frequencies.cos_sin_of(j, position, r.inverse);
  const uint32_t pair = r.first + j;
  const uint64_t at = start + (r.interleaved ? 2 * pair : pair);
  const uint64_t other = r.interleaved ? at + 1 : at + r.half;
  for (uint32_t h = head; h < end; ++h) {
    const uint64_t step = (h - head) * uint64_t{r.dim};
    const float a = read(r.x + at + step);
    const float b = read(r.x + other + step);
    write(r.y + at + step, a * cs.x - b * cs.y);
    write(r.y + other + step, a * cs.y + b * cs.x);
  }
}

// One launch for heads of up to 512 elements, otherwise one launch per 512 elements.
template <class T>
void rope(Launch& l) {
  const auto& attributes = l.attributes<RopeAttributes>();
  const Shape& x = l.in_shape(0);
  const int64_t dims = attributes.rotary_dims() == 0 ? x.back() : attributes.rotary_dims();
  Rotation<T> r{};
  r.x = l.in_as<T>(0);
  r.y = l.out_as<T>(0);
  r.given = l.has_input(1) ? l.in_i32(1) : nullptr;
  r.per_sequence = l.has_input(1) && l.in_shape(1).rank() == 2;
  r.dim = static_cast<uint32_t>(x.back());
  r.heads = static_cast<uint32_t>(x[2]);
  r.positions = static_cast<uint32_t>(x[1]);
  r.half = static_cast<uint32_t>(dims / 2);
  r.offset = static_cast<uint64_t>(attributes.position_offset());
  r.inverse = attributes.inverse();
  r.interleaved = attributes.interleaved();
  const uint64_t head_groups = blocks_for(r.heads, kHeads);
  const auto rows = static_cast<uint64_t>(x[0] * x[1]);
  for (int64_t first = 0; first == 0 || first < dims / 2; first += kPairs) {
    r.first = static_cast<uint32_t>(first);
    r.pairs = static_cast<uint32_t>(std::min<int64_t>(kPairs, dims / 2 - first));
    r.copied = first == 0 ? static_cast<uint32_t>(x.back() - dims) : 0;
    r.threads = rows * head_groups * (r.pairs + r.copied);
    l.launch("rope", rope_kernel<T>, blocks_for(r.threads, kElementThreads), kElementThreads, r,
             frequencies_of(attributes, first, static_cast<int>(r.pairs), dims));
  }
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(rope, .run = rope<T>);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::rope_kernels
