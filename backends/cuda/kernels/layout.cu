//! ops(any) Copy Fill Transpose Slice SliceGrad Concat Split BroadcastTo Expand WriteRows MaskTail
// Operators that only move elements. A thread moves one element, or 16 bytes if the alignment
// allows it. Transposes move tiles through shared memory.
#include <algorithm>

#include "base/float16.h"
#include "core/element_types.h"
#include "core/moves.h"
#include "device/begin.cuh"
#include "device/codes.cuh"
#include "device/rows.cuh"
#include "device/state_rows.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::layout_kernels {
namespace {

constexpr unsigned kCopyThreads = 256;
constexpr unsigned kTile = 32;
constexpr unsigned kTileRows = kCopyThreads / kTile;  // rows that a block moves at once
constexpr int64_t kSmallestTiled = 16;

__device__ uint64_t thread_of_grid() { return uint64_t{blockIdx.x} * kCopyThreads + threadIdx.x; }

// The 16 bytes that a thread moves at once.
struct alignas(16) Wide {
  uint32_t words[4];
};

// y[i . strides 1] = x[i . strides 0] for up to kTogether moves, such as the parts of a Concat.
constexpr unsigned kTogether = 4;
template <class T>
struct Moves {
  const T* x[kTogether];
  T* y[kTogether];
  uint64_t n[kTogether];
  Loops<2> loops[kTogether];
};

template <class T>
__global__ void strided_kernel(Moves<T> moves) {
  begin_kernel();
  const unsigned move = blockIdx.y;
  const uint64_t i = thread_of_grid();
  if (i < moves.n[move]) {
    int64_t at[2];
    moves.loops[move].offsets(i, at);
    moves.y[move][at[1]] = moves.x[move][at[0]];
  }
}

// One matrix per element of `batch`: `rows` rows that are contiguous in y, `columns` columns that
// are contiguous in x.
struct Tiles {
  Loops<2> batch;
  uint64_t rows, columns;
  int64_t x_stride, y_stride;  // to the next element of a row in x, of a column in y
};

template <class T>
__global__ void transpose_kernel(const T* x, T* y, Tiles t) {
  begin_kernel();
  __shared__ Shared<T[kTile][kTile + 1]> tile;
  const uint64_t row_tiles = (t.rows + kTile - 1) / kTile;
  const uint64_t column_tiles = (t.columns + kTile - 1) / kTile;
  const uint64_t block = blockIdx.x;
  const uint64_t row0 = block % row_tiles * kTile;
  const uint64_t column0 = block / row_tiles % column_tiles * kTile;
  int64_t at[2];
  t.batch.offsets(block / row_tiles / column_tiles, at);
  const unsigned fast = threadIdx.x % kTile;
  for (unsigned slow = threadIdx.x / kTile; slow < kTile; slow += kTileRows) {
    if (row0 + slow < t.rows && column0 + fast < t.columns) {
      tile[slow][fast] = x[at[0] + static_cast<int64_t>(row0 + slow) * t.x_stride +
                           static_cast<int64_t>(column0 + fast)];
    }
  }
  __syncthreads();
  for (unsigned slow = threadIdx.x / kTile; slow < kTile; slow += kTileRows) {
    if (row0 + fast < t.rows && column0 + slow < t.columns) {
      y[at[1] + static_cast<int64_t>(column0 + slow) * t.y_stride +
        static_cast<int64_t>(row0 + fast)] = tile[fast][slow];
    }
  }
}

// dx = rows of `whole` elements. Elements [start, start + part) come from dy; the others are 0.
template <class T>
__global__ void pad_kernel(const T* dy, T* dx, uint64_t n, uint64_t whole, uint64_t part,
                           uint64_t start) {
  begin_kernel();
  const uint64_t i = thread_of_grid();
  if (i < n) {
    const uint64_t row = i / whole;
    const uint64_t at = i % whole;
    dx[i] = at >= start && at - start < part ? dy[row * part + (at - start)] : T{};
  }
}

// Layout of rows of `inner` elements in a state of `size` rows.
struct Rows {
  uint64_t rows, size, inner;
};

// Writes one element of the rows per thread to y.
template <class T>
__global__ void write_rows_kernel(const T* rows, T* y, const uint32_t* position_at,
                                  const uint32_t* count_at, device::StepHead* head, uint32_t node,
                                  uint64_t n, Rows r) {
  begin_kernel();
  const uint64_t position = *position_at;
  const uint64_t count = count_at != nullptr ? *count_at : r.rows;
  const uint64_t i = thread_of_grid();
  if (!rows_fit(r.size, position, count, thread_of_grid() == 0, head, node)) {
    return;
  }
  const uint64_t row = i / r.inner;
  if (i < n && row % r.rows < count) {
    y[(row / r.rows * r.size + position + row % r.rows) * r.inner + i % r.inner] = rows[i];
  }
}

// The same for a quantized state (Encoding::takes_rows), in which a row of the state consists of
// `inner` quantized rows. One warp per block of a row, `n` blocks in total.
template <class T>
__global__ void write_codes_kernel(const T* rows, Codes y, const uint32_t* position_at,
                                   const uint32_t* count_at, device::StepHead* head, uint32_t node,
                                   uint64_t n, uint64_t in_a_row, Rows r) {
  begin_kernel();
  const uint64_t position = *position_at;
  const uint64_t count = count_at != nullptr ? *count_at : r.rows;
  if (!rows_fit(r.size, position, count, thread_of_grid() == 0, head, node)) {
    return;
  }
  const uint64_t block = thread_of_grid() / kLanes;
  const uint64_t from = block / in_a_row;
  const uint64_t row = from / r.inner;
  if (block >= n || row % r.rows >= count) {  // a whole warp
    return;
  }
  const T* const x = rows + from * static_cast<uint64_t>(y.columns);
  const auto to = static_cast<int64_t>((row / r.rows * r.size + position + row % r.rows) * r.inner +
                                       from % r.inner);
  write_block(y, to, static_cast<uint32_t>(block % in_a_row),
              [&](uint32_t column) { return read(x + column); });
}

// y = x up to the current size, and fill behind it.
template <class T>
__global__ void mask_tail_kernel(const T* x, T* y, const uint32_t* count_at, uint64_t n,
                                 uint64_t size, uint64_t inner, T fill) {
  begin_kernel();
  const uint64_t i = thread_of_grid();
  if (i < n) {
    const uint64_t count = count_at != nullptr ? *count_at : size;
    y[i] = i / inner % size < count ? x[i] : fill;
  }
}

template <class T>
__global__ void fill_kernel(T* y, uint64_t n, T value, bool four) {
  begin_kernel();
  for_elements(
      n, four, [&](uint64_t i) { y[i] = value; },
      [&](uint64_t i) {
        if constexpr (sizeof(T) == 4) {
          const float f = __uint_as_float(value);
          store4(reinterpret_cast<float*>(y + i), make_float4(f, f, f, f));
        }
      });
}

// Expresses the copy as matrix transposes if its fastest axes differ and are long. Returns false
// otherwise.
bool is_tiled(const Loops<2>& loops, Tiles* out) {
  const int last = loops.rank - 1;
  int across = -1;
  for (int axis = 0; axis < last; ++axis) {
    across = loops.strides[0][axis] == 1 ? axis : across;
  }
  if (across < 0 || loops.strides[1][last] != 1 || loops.strides[0][last] == 0 ||
      loops.sizes[last] < kSmallestTiled || loops.sizes[across] < kSmallestTiled) {
    return false;
  }
  out->rows = loops.sizes[last];
  out->x_stride = loops.strides[0][last];
  out->columns = loops.sizes[across];
  out->y_stride = loops.strides[1][across];
  for (int axis = 0; axis < last; ++axis) {
    if (axis != across) {
      out->batch.add(loops.sizes[axis], {loops.strides[0][axis], loops.strides[1][axis]});
    }
  }
  return true;
}

// Returns true if `many` elements can be moved at once; `loops` then counts groups of `many`
// elements.
bool takes(uint32_t many, const void* x, const void* y, Loops<2>* loops) {
  const int last = loops->rank - 1;
  if (!aligned16(x, y) || loops->strides[0][last] != 1 || loops->strides[1][last] != 1 ||
      loops->sizes[last] % many != 0) {
    return false;
  }
  for (int axis = 0; axis < last; ++axis) {
    if (loops->strides[0][axis] % many != 0 || loops->strides[1][axis] % many != 0) {
      return false;
    }
  }
  loops->sizes[last] /= many;
  for (int axis = 0; axis < last; ++axis) {
    loops->strides[0][axis] /= many;
    loops->strides[1][axis] /= many;
  }
  return true;
}

// Moves that wait for a launch.
template <class T>
class Waiting {
 public:
  void add(Launch& l, const T* x, T* y, const Loops<2>& loops) {
    moves_.x[count_] = x;
    moves_.y[count_] = y;
    moves_.n[count_] = loops.elements();
    moves_.loops[count_] = loops;
    most_ = std::max(most_, loops.elements());
    if (++count_ == kTogether) {
      launch(l);
    }
  }
  void launch(Launch& l) {
    l.launch("strided copies", strided_kernel<T>, dim3(blocks_for(most_, kCopyThreads), count_),
             kCopyThreads, moves_);
    count_ = 0;
    most_ = 0;
  }

 private:
  Moves<T> moves_{};
  unsigned count_ = 0;
  uint64_t most_ = 0;
};

template <class T>
struct WaitingMoves {
  Waiting<T> elements;
  Waiting<Wide> packs;
};

// y[i . strides 1] = x[i . strides 0], with `loops` in the order of y.
template <class T>
void strided(Launch& l, const T* x, T* y, Loops<2> loops, WaitingMoves<T>& waiting) {
  const uint64_t n = loops.elements();
  if (n == 0) {
    return;
  }
  if (loops.is_run()) {
    l.copy(y, x, n * sizeof(T));
    return;
  }
  Tiles tiles;
  if (is_tiled(loops, &tiles)) {
    const uint64_t per_matrix =
        (tiles.rows + kTile - 1) / kTile * ((tiles.columns + kTile - 1) / kTile);
    l.launch("transpose", transpose_kernel<T>, blocks_for(tiles.batch.elements() * per_matrix, 1),
             kCopyThreads, x, y, tiles);
  } else if (takes(sizeof(Wide) / sizeof(T), x, y, &loops)) {
    waiting.packs.add(l, reinterpret_cast<const Wide*>(x), reinterpret_cast<Wide*>(y), loops);
  } else {
    waiting.elements.add(l, x, y, loops);
  }
}

// Calls move.operator()<T>() with an integer type of the element size.
template <class F>
void with_elements(const Launch& l, F&& move) {
  with_bits(size_of(l.type()), move);
}

void move(Launch& l) {
  with_elements(l, [&]<class T>() {
    WaitingMoves<T> waiting;
    for_each_move(l.record(), [&](const Move& m) {
      strided(l, l.in_as<T>(m.input) + m.first_x, l.out_as<T>(m.output) + m.first_y, m.loops,
              waiting);
    });
    waiting.packs.launch(l);
    waiting.elements.launch(l);
  });
}

void slice_grad(Launch& l) {
  const auto& attributes = l.attributes<SliceGradAttributes>();
  const Shape& dx = l.out_shape(0);
  const int axis = positive_axis(attributes.axis(), dx.rank());
  const auto n = static_cast<uint64_t>(dx.elements());
  const auto inner = static_cast<uint64_t>(strides_of(dx)[static_cast<size_t>(axis)]);
  const uint64_t whole = static_cast<uint64_t>(dx[axis]) * inner;
  const uint64_t part = static_cast<uint64_t>(l.in_shape(0)[axis]) * inner;
  const uint64_t start = static_cast<uint64_t>(attributes.start()) * inner;
  with_elements(l, [&]<class T>() {
    constexpr uint64_t kMany = sizeof(Wide) / sizeof(T);
    if (aligned16(l.in(0), l.out(0)) && whole % kMany == 0 && part % kMany == 0 &&
        start % kMany == 0) {
      l.launch("pad", pad_kernel<Wide>, blocks_for(n / kMany, kCopyThreads), kCopyThreads,
               l.in_as<Wide>(0), l.out_as<Wide>(0), n / kMany, whole / kMany, part / kMany,
               start / kMany);
    } else {
      l.launch("pad", pad_kernel<T>, blocks_for(n, kCopyThreads), kCopyThreads, l.in_as<T>(0),
               l.out_as<T>(0), n, whole, part, start);
    }
  });
}

template <class T>
void write_rows_of(Launch& l) {
  const Shape& state = l.in_shape(0);
  const Shape& rows = l.in_shape(1);
  const int axis = positive_axis(l.attributes<WriteRowsAttributes>().axis(), state.rank());
  const auto n = static_cast<uint64_t>(rows.elements());
  const auto inner = static_cast<uint64_t>(state.elements(axis + 1, state.rank()));
  // One block checks the position even if there is nothing to write.
  l.launch("write rows", write_rows_kernel<T>, std::max(1u, blocks_for(n, kCopyThreads)),
           kCopyThreads, l.in_as<T>(1), l.out_as<T>(0), l.step(step::write_rows::position),
           l.count(1, axis), l.head(), l.node(), n,
           Rows{static_cast<uint64_t>(rows[axis]), static_cast<uint64_t>(state[axis]),
                std::max<uint64_t>(inner, 1)});
}

template <class T>
void write_codes(Launch& l) {
  const Shape& state = l.in_shape(0);
  const Shape& rows = l.in_shape(1);
  const int axis = positive_axis(l.attributes<WriteRowsAttributes>().axis(), state.rank());
  const Codes codes = codes_of(l, 0);
  const auto in_a_row =
      std::max<uint64_t>(blocks_for(static_cast<uint64_t>(rows.back()), codes.block), 1);
  const uint64_t n = static_cast<uint64_t>(rows.rows()) * in_a_row;
  l.launch("write quantized rows", write_codes_kernel<T>,
           std::max(1u, blocks_for(n, kCopyThreads / kLanes)), kCopyThreads, l.in_as<T>(1), codes,
           l.step(step::write_rows::position), l.count(1, axis), l.head(), l.node(), n, in_a_row,
           Rows{static_cast<uint64_t>(rows[axis]), static_cast<uint64_t>(state[axis]),
                std::max<uint64_t>(
                    static_cast<uint64_t>(state.elements(axis + 1, state.rank() - 1)), 1)});
}

void write_rows(Launch& l) {
  if (!l.is_encoded(0)) {
    with_elements(l, [&]<class T>() { write_rows_of<T>(l); });
  } else if (l.type() == DType::f32) {
    write_codes<float>(l);
  } else if (l.type() == DType::f16) {
    write_codes<__half>(l);
  } else {
    write_codes<__nv_bfloat16>(l);
  }
}

template <class T>
void mask_tail_of(Launch& l) {
  const auto& t = l.attributes<MaskTailAttributes>();
  const Shape& x = l.in_shape(0);
  const int axis = positive_axis(t.axis(), x.rank());
  const auto n = static_cast<uint64_t>(x.elements());
  l.launch("mask tail", mask_tail_kernel<T>, blocks_for(n, kCopyThreads), kCopyThreads,
           l.in_as<T>(0), l.out_as<T>(0), l.count(0, axis), n, static_cast<uint64_t>(x[axis]),
           static_cast<uint64_t>(x.elements(axis + 1, x.rank())),
           static_cast<T>(stored_bits(l.type(), t.fill())));
}

void mask_tail(Launch& l) {
  with_elements(l, [&]<class T>() { mask_tail_of<T>(l); });
}

void copy(Launch& l) { l.copy(l.out(0), l.in(0), l.out_operand(0).bytes()); }

void fill(Launch& l) {
  const auto n = static_cast<uint64_t>(l.out_shape(0).elements());
  const uint64_t bits = stored_bits(l.type(), l.attributes<FillAttributes>().value());
  with_elements(l, [&]<class T>() {
    T* const y = l.out_as<T>(0);
    l.launch("fill", fill_kernel<T>, element_blocks(n), kElementThreads, y, n, static_cast<T>(bits),
             sizeof(T) == 4 && aligned16(y));
  });
}

}  // namespace

BOWLINE_KERNEL(transpose, .run = move);
BOWLINE_KERNEL(slice, .run = move);
BOWLINE_KERNEL(slice_grad, .run = slice_grad);
BOWLINE_KERNEL(concat, .run = move);
BOWLINE_KERNEL(split, .run = move);
BOWLINE_KERNEL(broadcast_to, .run = move);
BOWLINE_KERNEL(expand, .run = move);
BOWLINE_KERNEL(copy, .run = copy);
BOWLINE_KERNEL(mask_tail, .run = mask_tail);
BOWLINE_KERNEL(write_rows, .run = write_rows, .encoded = 0b1);
BOWLINE_KERNEL(fill, .run = fill);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::layout_kernels
