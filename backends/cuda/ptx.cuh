// PTX instructions for tensor cores and asynchronous copies (PTX ISA, "Warp-level matrix
// instructions" and "Asynchronous copy"). emu/tensor_core.h emulates them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "platform.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// The GPUs for which this code is compiled, by Traits::code: 75, or 80 and newer. A kernel that is
// never launched on some of them is empty there.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr bool kFor75 = true;
constexpr bool kFor80 = false;
#else
constexpr bool kFor75 = false;
constexpr bool kFor80 = true;
#endif
// Blackwell and newer.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
constexpr bool kFor100 = true;
#else
constexpr bool kFor100 = false;
#endif
// Whether tensor cores multiply elements of T there (Traits::multiplies).
template <class T>
constexpr bool kMultiplies = kFor80 || std::is_same_v<T, __half>;

// The dynamic shared memory of a block, in units of 16 bytes. Launch::launch_shared sets its size.
class Packs {
 public:
  __device__ explicit Packs(uint4* at) : at_(at) {}
  __device__ Packs from(int pack) const { return Packs(at_ + pack); }
  __device__ uint4 load(int pack) const { return at_[pack]; }
  __device__ void store(int pack, uint4 value) const { at_[pack] = value; }
  // Words of 4 bytes.
  __device__ uint32_t load_word(int word) const {
    return reinterpret_cast<const uint32_t*>(at_)[word];
  }
  __device__ void store_word(int word, uint32_t value) const {
    reinterpret_cast<uint32_t*>(at_)[word] = value;
  }
  __device__ uint32_t address(int pack) const {
    return static_cast<uint32_t>(__cvta_generic_to_shared(at_ + pack));
  }

 private:
  uint4* at_;
};
__device__ inline Packs dynamic_shared() {
  extern __shared__ uint4 dynamic_memory[];
  return Packs(dynamic_memory);
}

// Brings the line of an address of global memory to the L2 cache.
__device__ inline void prefetch(const void* at) {
  asm volatile("prefetch.global.L2 [%0];" : : "l"(at));
}

// Hides from the compiler how the value came about, so that it cannot keep what it derived from the
// value before.
__device__ inline void make_opaque(uint4& pack) {
  asm volatile("" : "+r"(pack.x), "+r"(pack.y), "+r"(pack.z), "+r"(pack.w));
}
template <class T>
__device__ inline void make_opaque(T*& address) {
  asm volatile("" : "+l"(address));
}

// Loads 4 or 2 matrices of 8 x 8 16-bit elements, by a warp. A row of a matrix is a pack: lane
// 8 i + r gives the pack of row r of matrix i. (With 2 matrices, the packs of lanes 16 and more are
// not read, but must be valid.) to[i] gets elements 2t and 2t + 1 of row g of matrix i;
// load_transposed: of column g.
__device__ inline void load_matrices(uint32_t (&to)[4], const Packs& from, int row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from.address(row)));
}
__device__ inline void load_matrices(uint32_t (&to)[2], const Packs& from, int row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(to[0]), "=r"(to[1])
               : "r"(from.address(row)));
}
__device__ inline void load_transposed(uint32_t (&to)[4], const Packs& from, int row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from.address(row)));
}
__device__ inline void load_transposed(uint32_t (&to)[2], const Packs& from, int row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(to[0]), "=r"(to[1])
               : "r"(from.address(row)));
}

// Copies the first `bytes` (0 to 16) of 16 bytes of global memory to a pack, and fills the rest
// with zeros. `from` is a multiple of 16; it is not read if `bytes` is 0. The pack may be
// used after wait_copies of this thread, by other threads after a barrier that follows it. On sm_75
// the copy is complete at once.
__device__ inline void copy_async(const Packs& to, int pack, const void* from, int bytes) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(to.address(pack)), "l"(__cvta_generic_to_global(from)), "r"(bytes));
#else
  const auto* const words = static_cast<const uint32_t*>(from);
  const auto* const halves = static_cast<const unsigned short*>(from);
  uint4 value = {0, 0, 0, 0};
  if (bytes == 16) {
    value = *static_cast<const uint4*>(from);
  } else if (bytes > 0) {
    const auto word = [&](int i) -> uint32_t {
      return bytes >= 4 * i + 4 ? words[i] : bytes >= 4 * i + 2 ? halves[2 * i] : 0;
    };
    value = {word(0), word(1), word(2), word(3)};
  }
  to.store(pack, value);
#endif
}
// Ends a group of copies of this thread.
__device__ inline void commit_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Waits until at most kPending groups of this thread, the newest, are incomplete.
template <int kPending>
__device__ void wait_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#endif
}

// An f32 rounded to TF32, which keeps the upper 10 bits of the fraction: to nearest, ties away from
// zero. From sm_80 on.
__device__ inline uint32_t to_tf32(uint32_t f32) {
  uint32_t y = 0;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(__uint_as_float(f32)));
#endif
  return y;
}

// sums += a b, by a warp. T is __half, __nv_bfloat16, or float for TF32; device/tensor_core.cuh has
// the layouts.
template <class T>
__device__ void multiply_add(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, float>) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else if constexpr (std::is_same_v<T, __half>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
#else
  if constexpr (std::is_same_v<T, __half>) {
    for (int half = 0; half < 2; ++half) {
      asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
          "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
          : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
          : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(b[half]));
    }
  } else {
    __trap();  // sm_75 has no bf16 and TF32
  }
#endif
}

// Adds to a counter in device memory, as a release of the device: what happened before, in this
// thread or before a barrier of its block, is visible to whoever acquires the counter afterwards.
__device__ inline void add_release(uint32_t* counter, uint32_t value) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;"
               :
               : "l"(__cvta_generic_to_global(counter)), "r"(value)
               : "memory");
}
// Waits until a counter in device memory has reached `target`, and acquires it. The counter may
// wrap around.
__device__ inline void wait_acquire(const uint32_t* counter, uint32_t target) {
  uint32_t now;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                 : "=r"(now)
                 : "l"(__cvta_generic_to_global(counter))
                 : "memory");
  } while (static_cast<int32_t>(now - target) < 0);
}

// Waits until the launch before has ended and what it wrote is visible, if this launch may start
// earlier (device/begin.cuh).
__device__ inline void wait_for_prerequisites() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Lets the next launch start, if it may start early, once all blocks of this one have called it or
// have ended.
__device__ inline void launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Only the emulation records these.
__device__ inline void exchange_read(const void*) {}
__device__ inline void exchange_write(const void*) {}

// 2^x, with a relative error of 2^-22. Results below 2^-126 are 0.
__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1 / x, with a relative error of 2^-23.
__device__ inline float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The product as 64 bits, in one instruction: the compiler may widen a factor ahead of a loop, and
// then multiplies 64 bits by 64.
__device__ inline int64_t multiply_wide(int a, int b) {
  int64_t product;
  asm("mul.wide.s32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
  return product;
}

// The same value, of which the compiler knows nothing.
__device__ inline int opaque(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
