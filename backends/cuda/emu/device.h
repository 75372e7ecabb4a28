// The CUDA built-ins that the kernels use, on the host.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>

#include "emu/grid.h"
#include "emu/half.h"
#include "emu/shared.h"

#define __global__
#define __device__
#define __host__
#define __restrict__
#define __launch_bounds__(...)
#define __noinline__
#define __shared__ static
#define threadIdx (::bowline::detail::cuda_emu::running.thread->index)
#define blockIdx (::bowline::detail::cuda_emu::running.block_index)
#define blockDim (::bowline::detail::cuda_emu::running.block_dim)
#define gridDim (::bowline::detail::cuda_emu::running.grid_dim)

namespace bowline::detail::cuda_emu {

constexpr int warpSize = static_cast<int>(kWarp);

inline void __syncthreads(Where where = Where::current()) { block_barrier(where); }
inline void __syncwarp(unsigned mask = 0xFFFFFFFF, Where where = Where::current()) {
  (void)warp_exchange(Collective::barrier, mask, 0, running.thread->lane, where);
}

template <class T>
uint64_t bits_of(T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}
template <class T>
T of_bits(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

// The lane that a shuffle of `width` lanes reads; the caller's own lane if the source is outside
// its part.
template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = warpSize,
              Where where = Where::current()) {
  const unsigned part =
      running.thread->lane / static_cast<unsigned>(width) * static_cast<unsigned>(width);
  const unsigned source = part + (static_cast<unsigned>(lane) & (static_cast<unsigned>(width) - 1));
  return of_bits<T>(warp_exchange(Collective::shuffle, mask, bits_of(value), source, where));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = warpSize,
                  Where where = Where::current()) {
  const unsigned me = running.thread->lane;
  const unsigned source = me ^ static_cast<unsigned>(lanes);
  const bool inside = source / static_cast<unsigned>(width) == me / static_cast<unsigned>(width);
  return of_bits<T>(
      warp_exchange(Collective::shuffle, mask, bits_of(value), inside ? source : me, where));
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned lanes, int width = warpSize,
                 Where where = Where::current()) {
  const unsigned me = running.thread->lane;
  const bool inside = me % static_cast<unsigned>(width) >= lanes;
  return of_bits<T>(
      warp_exchange(Collective::shuffle, mask, bits_of(value), inside ? me - lanes : me, where));
}
inline void __threadfence() {}
// Returns the old number. Blocks run one after the other.
inline unsigned atomicInc(unsigned* at, unsigned most) {
  check_waited();
  const unsigned old = *at;
  *at = old >= most ? 0 : old + 1;
  return old;
}
inline unsigned __ballot_sync(unsigned mask, int predicate, Where where = Where::current()) {
  return warp_vote(mask, predicate != 0, where);
}
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
// The bytes of y:x that the hexadecimal digits of `selector` name, from the lowest on.
inline uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t selector) {
  const uint64_t both = uint64_t{y} << 32 | x;
  uint32_t bytes = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t from = selector >> (4 * i) & 7;
    bytes |= static_cast<uint32_t>(both >> (8 * from) & 0xFF) << (8 * i);
  }
  return bytes;
}
inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t shift) {
  return static_cast<uint32_t>((uint64_t{high} << 32 | low) >> (shift % 32));
}
using ::erfcf;
using ::erff;
using ::expf;
using ::fabsf;
using ::fmaf;
using ::fmaxf;
using ::fminf;
using ::log1pf;
using ::logf;
using ::sqrtf;
using ::tanhf;

template <class T>
constexpr T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
constexpr T max(T a, T b) {
  return a < b ? b : a;
}

}  // namespace bowline::detail::cuda_emu
