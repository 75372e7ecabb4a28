//! ops(f32, f16, bf16) Embedding EmbeddingGrad Dropout
// Table rows selected by id, their gradient in a fixed order, and dropout.
#include <algorithm>

#include "base/random.h"
#include "device/codes.cuh"
#include "device/rows.cuh"
#include "device/storage.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::tokens_kernels {
namespace {

constexpr unsigned kAllLanes = 0xFFFFFFFF;
constexpr unsigned kWarpsPerBlock = 4;
constexpr unsigned kColumns = 4;  // per lane

// Four elements of the result per thread. An out-of-range id gives zeros. T has the size of an
// element.
template <class T>
__global__ void embedding_kernel(const T* table, const int32_t* ids, T* y, device::StepHead* head,
                                 uint32_t node, uint64_t n, int64_t rows, uint64_t width) {
  for_elements(n, [&](uint64_t i) {
    const int32_t id = ids[i / width];
    const uint64_t column = i % width;
    const bool good = id >= 0 && id < rows;
    if (!good && column == 0) {
      bad_index(head, node, id);
    }
    y[i] = good ? table[static_cast<uint64_t>(id) * width + column] : T{0};
  });
}

// The same for a quantized table. T is the dtype of y.
template <class T>
__global__ void encoded_embedding_kernel(Codes table, const int32_t* ids, T* y,
                                         device::StepHead* head, uint32_t node, uint64_t n,
                                         int64_t rows, uint64_t width) {
  for_elements(n, [&](uint64_t i) {
    const int32_t id = ids[i / width];
    const auto column = static_cast<uint32_t>(i % width);
    const bool good = id >= 0 && id < rows;
    if (!good && column == 0) {
      bad_index(head, node, id);
    }
    write(y + i, good ? decode(table, id, column) : 0.0f);
  });
}

template <class T>
void embedding(Launch& l) {
  const Shape& table = l.in_shape(0);
  const uint64_t n = static_cast<uint64_t>(l.out_shape(0).elements());
  if (l.is_encoded(0)) {
    l.launch("embedding", encoded_embedding_kernel<T>, element_blocks(n), kElementThreads,
             codes_of(l, 0), l.in_i32(1), l.out_as<T>(0), l.head(), l.node(), n, table[0],
             static_cast<uint64_t>(table[1]));
    return;
  }
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>;
  l.launch("embedding", embedding_kernel<Bits>, element_blocks(n), kElementThreads,
           l.in_as<Bits>(0), l.in_i32(1), l.out_as<Bits>(0), l.head(), l.node(), n, table[0],
           static_cast<uint64_t>(table[1]));
}

// The lanes of ids [first, first + 32) below `end` that equal `row`.
__device__ unsigned matches(const int32_t* ids, uint64_t first, uint64_t end, int32_t row,
                            unsigned lane) {
  const uint64_t at = first + lane;
  return __ballot_sync(kAllLanes, at < end && ids[at] == row);
}

// A warp owns up to 128 columns of a table row, and adds the rows of dy with its id, in their
// order. With OverRows, there is a warp per table row. Otherwise, there is a warp per id: the table
// starts as zeros, and the first warp with an id value does the work.
template <bool OverRows, class T>
__global__ void embedding_grad_kernel(const int32_t* ids, const T* dy, T* dtable, uint64_t count,
                                      int64_t rows, uint64_t width, uint64_t tiles,
                                      uint64_t warps) {
  const unsigned lane = threadIdx.x % kLanes;
  const uint64_t warp = uint64_t{blockIdx.x} * kWarpsPerBlock + threadIdx.x / kLanes;
  if (warp >= warps) {  // a whole warp
    return;
  }
  const uint64_t number = warp / tiles;
  const int32_t row = OverRows ? static_cast<int32_t>(number) : ids[number];
  if (row < 0 || row >= rows) {
    return;
  }
  uint64_t first = 0;
  if (!OverRows) {
    for (; first + kLanes <= number; first += kLanes) {
      if (matches(ids, first, number, row, lane) != 0) {
        return;  // an earlier warp does it
      }
    }
    if (matches(ids, first, number, row, lane) != 0) {
      return;
    }
  }
  const uint64_t column = warp % tiles * kLanes * kColumns + lane;
  float sum[kColumns] = {};
  for (; first < count; first += kLanes) {
    unsigned found = matches(ids, first, count, row, lane);
    for (unsigned bit = 0; found != 0; ++bit, found >>= 1) {
      if ((found & 1) == 0) {
        continue;
      }
      const T* const from = dy + (first + bit) * width;
      for (unsigned c = 0; c < kColumns; ++c) {
        const uint64_t at = column + c * kLanes;
        sum[c] += at < width ? read(from + at) : 0;
      }
    }
  }
  for (unsigned c = 0; c < kColumns; ++c) {
    const uint64_t at = column + c * kLanes;
    if (at < width) {
      write(dtable + static_cast<uint64_t>(row) * width + at, sum[c]);
    }
  }
}

template <class T>
void embedding_grad(Launch& l) {
  const Shape& table = l.out_shape(0);
  const auto count = static_cast<uint64_t>(l.in_shape(0).elements());
  const auto width = static_cast<uint64_t>(table[1]);
  const uint64_t tiles = (width + kLanes * kColumns - 1) / (kLanes * kColumns);
  const bool over_rows = static_cast<uint64_t>(table[0]) <= count;
  const uint64_t warps = (over_rows ? static_cast<uint64_t>(table[0]) : count) * tiles;
  if (!over_rows) {
    l.zero(l.out(0), static_cast<uint64_t>(table.elements()) * sizeof(T));
  }
  l.launch("embedding_grad",
           over_rows ? embedding_grad_kernel<true, T> : embedding_grad_kernel<false, T>,
           blocks_for(warps, kWarpsPerBlock), kWarpsPerBlock * kLanes, l.in_i32(0), l.in_as<T>(1),
           l.out_as<T>(0), count, table[0], width, tiles, warps);
}

struct Words {
  uint32_t at[4];
};

// base/random.h: Philox4x32-10.
__device__ Words philox_words(uint32_t block, uint32_t stream, uint32_t iteration, uint32_t counter,
                              uint32_t key0, uint32_t key1) {
  Words c = {{block, stream, iteration, counter}};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c.at[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * c.at[2];
    c = {{static_cast<uint32_t>(p1 >> 32) ^ c.at[1] ^ key0, static_cast<uint32_t>(p1),
          static_cast<uint32_t>(p0 >> 32) ^ c.at[3] ^ key1, static_cast<uint32_t>(p0)}};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return c;
}

// A thread draws the random words of its four elements.
template <class T>
__global__ void dropout_kernel(const T* x, T* y, const uint32_t* training_at,
                               const uint64_t* seed_at, const uint32_t* counter_at, uint64_t n,
                               uint32_t stream, uint32_t iteration, uint32_t threshold,
                               float scale) {
  const uint64_t block = uint64_t{blockIdx.x} * kElementThreads + threadIdx.x;
  const bool training = *training_at != 0;
  const uint64_t seed = *seed_at;
  const Words words = philox_words(static_cast<uint32_t>(block), stream, iteration, *counter_at,
                                   static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  for (uint64_t i = 4 * block; i < n && i < 4 * block + 4; ++i) {
    const float v = read(x + i);
    write(y + i, !training ? v : words.at[i % 4] >= threshold ? v * scale : 0);
  }
}

template <class T>
void dropout(Launch& l) {
  const auto& attributes = l.attributes<DropoutAttributes>();
  const uint64_t n = static_cast<uint64_t>(l.out_shape(0).elements());
  const auto rate = static_cast<double>(attributes.rate());
  l.launch("dropout", dropout_kernel<T>, element_blocks(n), kElementThreads, l.in_as<T>(0),
           l.out_as<T>(0), l.step(step::dropout::training), l.step(step::dropout::seed),
           l.step(step::dropout::counter), n, attributes.stream(), l.iteration(),
           dropout_threshold(rate), static_cast<float>(1 / (1 - rate)));
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(embedding, .run = embedding<T>, .encoded = 0b1);
BOWLINE_KERNELS_OF_FLOATS(embedding_grad, .run = embedding_grad<T>);
BOWLINE_KERNELS_OF_FLOATS(dropout, .run = dropout<T>);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::tokens_kernels
