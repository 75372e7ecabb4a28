//! ops(f32, f16, bf16) Embedding Dropout
// Table rows selected by id, and dropout.
#include <algorithm>

#include "base/random.h"
#include "device/begin.cuh"
#include "device/codes.cuh"
#include "device/elements.cuh"
#include "device/storage.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::tokens_kernels {
namespace {

// Four elements of the result per thread, loaded at once; neighbours in a warp are neighbours in
// memory. An out-of-range id gives zeros. T has the size of an element, or of 16 bytes of elements.
template <class T>
__global__ void embedding_kernel(const T* table, const int32_t* ids, T* y, device::StepHead* head,
                                 uint32_t node, uint64_t n, int64_t rows, uint32_t width) {
  begin_kernel();
  const uint64_t first = uint64_t{blockIdx.x} * (kElementThreads * kElementsEach) + threadIdx.x;
  uint32_t columns[kElementsEach];
  int32_t of_elements[kElementsEach];
  T elements[kElementsEach];
  BOWLINE_UNROLL
  for (unsigned k = 0; k < kElementsEach; ++k) {
    const uint64_t i = min(first + k * kElementThreads, n - 1);
    // A 32-bit division is several times cheaper.
    const uint64_t row = i <= UINT32_MAX ? static_cast<uint32_t>(i) / width : i / width;
    columns[k] = static_cast<uint32_t>(i - row * width);
    of_elements[k] = ids[row];
  }
  BOWLINE_UNROLL
  for (unsigned k = 0; k < kElementsEach; ++k) {
    const int32_t id = of_elements[k];
    elements[k] =
        id >= 0 && id < rows ? table[static_cast<uint64_t>(id) * width + columns[k]] : T{};
  }
  BOWLINE_UNROLL
  for (unsigned k = 0; k < kElementsEach; ++k) {
    const uint64_t i = first + k * kElementThreads;
    const int32_t id = of_elements[k];
    if (i < n) {
      y[i] = elements[k];
      if (columns[k] == 0 && (id < 0 || id >= rows)) {
        bad_index(head, node, id);
      }
    }
  }
}

// The same for a quantized table. T is the dtype of y.
template <class T>
__global__ void encoded_embedding_kernel(Codes table, const int32_t* ids, T* y,
                                         device::StepHead* head, uint32_t node, uint64_t n,
                                         int64_t rows, uint64_t width) {
  begin_kernel();
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
  const auto copy = [&]<class Bits>(uint64_t many) {
    l.launch("embedding", embedding_kernel<Bits>, element_blocks(n / many), kElementThreads,
             l.in_as<Bits>(0), l.in_i32(1), l.out_as<Bits>(0), l.head(), l.node(), n / many,
             table[0], static_cast<uint32_t>(static_cast<uint64_t>(table[1]) / many));
  };
  if (table[1] % kPack<T> == 0 && aligned16(l.in(0), l.out(0))) {
    copy.template operator()<uint4>(kPack<T>);
  } else {
    copy.template operator()<std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>>(1);
  }
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
                               uint32_t stream, uint32_t iteration, uint32_t threshold, float scale,
                               bool packs) {
  begin_kernel();
  const uint64_t block = uint64_t{blockIdx.x} * kElementThreads + threadIdx.x;
  const bool training = *training_at != 0;
  const uint64_t seed = *seed_at;
  const Words words = philox_words(static_cast<uint32_t>(block), stream, iteration, *counter_at,
                                   static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  const auto kept = [&](float v, uint64_t i) {
    return !training ? v : words.at[i % 4] >= threshold ? v * scale : 0.0f;
  };
  for_elements(
      n, packs, [&](uint64_t i) { write(y + i, kept(read(x + i), i)); },
      [&](uint64_t i) {
        float v[4];
        read_some(x + i, v);
        for (unsigned k = 0; k < 4; ++k) {
          v[k] = kept(v[k], k);
        }
        write_some(y + i, v);
      });
}

template <class T>
void dropout(Launch& l) {
  const auto& attributes = l.attributes<DropoutAttributes>();
  const uint64_t n = static_cast<uint64_t>(l.out_shape(0).elements());
  const auto rate = static_cast<double>(attributes.rate());
  l.launch("dropout", dropout_kernel<T>, element_blocks(n), kElementThreads, l.in_as<T>(0),
           l.out_as<T>(0), l.step(step::dropout::training), l.step(step::dropout::seed),
           l.step(step::dropout::counter), n, attributes.stream(), l.iteration(),
           dropout_threshold(rate), static_cast<float>(1 / (1 - rate)),
           aligned16(l.in(0), l.out(0)));
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(embedding, .run = embedding<T>, .encoded = 0b1);
BOWLINE_KERNELS_OF_FLOATS(dropout, .run = dropout<T>);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::tokens_kernels
