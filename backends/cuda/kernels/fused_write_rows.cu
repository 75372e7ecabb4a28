//! ops(f32, f16, bf16) FusedWriteRows
// Writes the new keys and values into a KV cache, and rotates keys and queries before: one launch
// instead of four. A warp processes one head of a row.
#include <algorithm>

#include "device/begin.cuh"
#include "device/rope.cuh"
#include "device/state_rows.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::fused_write_rows_kernels {
namespace {

constexpr unsigned kThreads = 128;

// The keys or the values: rows x [rows, heads, dim], and the state y [size, heads, dim].
template <class T>
struct State {
  const T* x;
  T* y;
  Codes codes;  // (optional) the quantized state, instead of y
  uint32_t heads;
  uint32_t dim;
  uint64_t size;
  const uint32_t* count_at;  // (optional) the number of rows to write
};

template <class T>
struct Step {
  State<T> k;
  State<T> v;
  const T* q;  // null: nothing is rotated
  T* turned_q;
  uint32_t q_heads;
  uint32_t rows;
  const uint32_t* position_at;  // in the states
  const int32_t* positions;     // of the rotation
  uint64_t offset;              // of the positions
  uint32_t half;                // rotated pairs per head
  bool inverse;
  bool interleaved;
};

// Element i of a head at a position, after the rotation.
template <class T>
__device__ float turned(const Step<T>& s, const Frequencies& frequencies, const T* x,
                        uint64_t position, uint32_t i) {
  if (i >= 2 * s.half) {
    return read(x + i);
  }
  const uint32_t pair = s.interleaved ? i / 2 : i % s.half;
  const uint32_t a = s.interleaved ? 2 * pair : pair;
  const uint32_t b = s.interleaved ? a + 1 : a + s.half;
  const float2 cs = frequencies.cos_sin_of(pair, position, s.inverse);
  return i == a ? read(x + a) * cs.x - read(x + b) * cs.y : read(x + a) * cs.y + read(x + b) * cs.x;
}

// Writes a head of a row into a state. value(i) is its element i.
template <class T, class F>
__device__ void write_head(const State<T>& state, uint64_t row, uint32_t head, F&& value) {
  const uint64_t to = row * state.heads + head;
  if (state.codes.codes != nullptr) {
    for (uint32_t number = 0; number * state.codes.block < state.dim; ++number) {
      write_block(state.codes, static_cast<int64_t>(to), number, value);
    }
    return;
  }
  for (uint32_t i = threadIdx.x % kLanes; i < state.dim; i += kLanes) {
    write(state.y + to * state.dim + i, value(i));
  }
}

template <class T>
__global__ void write_kernel(Step<T> s, Frequencies frequencies, device::StepHead* head,
                             uint32_t node) {
  begin_kernel();
  const uint64_t warp = (uint64_t{blockIdx.x} * kThreads + threadIdx.x) / kLanes;
  const uint32_t heads = max(s.k.heads + s.v.heads + s.q_heads, 1u);
  const uint64_t row = warp / heads;
  uint32_t of = static_cast<uint32_t>(warp % heads);
  const uint64_t position = *s.position_at;
  const uint64_t k_count = s.k.count_at == nullptr ? s.rows : *s.k.count_at;
  const uint64_t v_count = s.v.count_at == nullptr ? s.rows : *s.v.count_at;
  const bool reports = blockIdx.x == 0 && threadIdx.x == 0;
  const bool fits = rows_fit(s.k.size, position, k_count, reports, head, node) &&
                    rows_fit(s.v.size, position, v_count, reports, head, node);
  if (row >= s.rows) {
    return;
  }
  const uint64_t angle =
      s.q == nullptr ? 0 : static_cast<uint64_t>(int64_t{s.positions[row]}) + s.offset;
  if (of < s.k.heads) {
    const T* const x = s.k.x + (row * s.k.heads + of) * s.k.dim;
    if (fits && row < k_count) {
      write_head(s.k, position + row, of, [&](uint32_t i) {
        return s.q == nullptr ? read(x + i) : turned(s, frequencies, x, angle, i);
      });
    }
    return;
  }
  of -= s.k.heads;
  if (of < s.v.heads) {
    const T* const x = s.v.x + (row * s.v.heads + of) * s.v.dim;
    if (fits && row < v_count) {
      write_head(s.v, position + row, of, [&](uint32_t i) { return read(x + i); });
    }
    return;
  }
  of -= s.v.heads;
  if (of >= s.q_heads) {
    return;
  }
  const uint64_t at = (row * s.q_heads + of) * s.k.dim;
  for (uint32_t i = threadIdx.x % kLanes; i < s.k.dim; i += kLanes) {
    write(s.turned_q + at + i, turned(s, frequencies, s.q + at, angle, i));
  }
}

template <class T>
State<T> state_of(const Launch& l, size_t i) {
  const Shape& rows = l.in_shape(2 + i);
  State<T> s = {};
  s.x = l.in_as<T>(2 + i);
  s.codes = codes_of(l, i);
  s.y = l.is_encoded(i) ? nullptr : l.out_as<T>(i);
  s.heads = static_cast<uint32_t>(l.in_shape(i)[1]);
  s.dim = static_cast<uint32_t>(l.in_shape(i)[2]);
  s.size = static_cast<uint64_t>(l.in_shape(i)[0]);
  s.count_at = l.count(2 + i, rows.rank() - 3);
  return s;
}

int64_t rotated(const FusedWriteRowsAttributes& t, const Shape& k) {
  return t.rotary_dims() == 0 ? k.back() : t.rotary_dims();
}

template <class T>
void write_rows(Launch& l) {
  const auto& t = l.attributes<FusedWriteRowsAttributes>();
  Step<T> s = {};
  s.k = state_of<T>(l, 0);
  s.v = state_of<T>(l, 1);
  s.rows = static_cast<uint32_t>(l.in_shape(3)[0]);
  s.position_at = l.step(step::fused_write_rows::position);
  Frequencies frequencies = {};
  if (t.rope()) {
    s.q = l.in_as<T>(4);
    s.turned_q = l.out_as<T>(2);
    s.q_heads = static_cast<uint32_t>(l.in_shape(4)[2]);
    s.positions = l.in_i32(5);
    s.offset = static_cast<uint64_t>(t.position_offset());
    s.half = static_cast<uint32_t>(rotated(t, l.in_shape(2)) / 2);
    s.inverse = t.inverse();
    s.interleaved = t.interleaved();
    const Attributes rope = Attributes::of(rope_of(t));
    frequencies = frequencies_of(rope.as<RopeAttributes>(), 0, static_cast<int>(s.half),
                                 rotated(t, l.in_shape(2)));
  }
  // Without rows, one block still checks the position.
  const uint64_t warps = uint64_t{s.rows} * (s.k.heads + s.v.heads + s.q_heads);
  l.launch("write rows", write_kernel<T>, std::max(1u, blocks_for(warps * kLanes, kThreads)),
           kThreads, s, frequencies, l.head(), l.node());
}

const char* refusal(const NodeView& v) {
  const auto& t = v.attributes<FusedWriteRowsAttributes>();
  return t.rope() && rotated(t, v.in(2)) > 2 * kPairs
             ? "At most 512 elements of a head are rotated with the write of a cache."
             : nullptr;
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(fused_write_rows, .run = write_rows<T>, .refusal = refusal,
                          .encoded = 0b11);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::fused_write_rows_kernels
