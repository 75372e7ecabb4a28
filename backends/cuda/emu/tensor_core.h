// Dynamic shared memory, asynchronous copies and the matrix instructions of a warp, on the host.
// ptx.cuh describes them, device/tensor_core.cuh the registers.
//
// Besides the errors of emu/grid.h, these errors end the grid:
//   - an access outside the dynamic shared memory of the launch
//   - an access to memory that an asynchronous copy has not filled yet
//   - an asynchronous copy from an address that is not a multiple of 16 bytes
//   - a matrix instruction that not all 32 lanes of the warp execute
#pragma once

#include <cmath>
#include <type_traits>

#include "emu/grid.h"
#include "emu/half.h"
#include "emu/types.h"

namespace bowline::detail::cuda_emu {

// Bank conflicts: the additional passes that the accesses to dynamic shared memory need, because
// lanes access different words of one bank. Counting takes time and is off by default. The n-th
// execution of a line by each lane of a warp counts as one access of the warp. A GPU processes an
// access in phases of 128 bytes: 8 consecutive lanes of 16 bytes, or 32 lanes of 4 bytes.
void count_bank_conflicts(bool on);  // also sets the count to 0
uint64_t bank_conflicts();

constexpr bool kFor75 = true;
constexpr bool kFor80 = true;
constexpr bool kFor100 = true;
template <class T>
constexpr bool kMultiplies = true;

class Packs {
 public:
  Packs from(int pack) const { return Packs(first_ + pack); }
  uint4 load(int pack, Where where = Where::current()) const;
  void store(int pack, uint4 value, Where where = Where::current()) const;
  uint32_t load_word(int word, Where where = Where::current()) const;
  void store_word(int word, uint32_t value, Where where = Where::current()) const;
  int first() const { return first_; }

 private:
  friend Packs dynamic_shared();
  explicit Packs(int first) : first_(first) {}
  int first_;
};
inline Packs dynamic_shared() { return Packs(0); }

inline void prefetch(const void*) {}
inline void make_opaque(uint4&) {}
template <class T>
void make_opaque(T*&) {}

void load_matrices(uint32_t (&to)[4], const Packs& from, int row, Where where = Where::current());
void load_matrices(uint32_t (&to)[2], const Packs& from, int row, Where where = Where::current());
void load_transposed(uint32_t (&to)[4], const Packs& from, int row, Where where = Where::current());
void load_transposed(uint32_t (&to)[2], const Packs& from, int row, Where where = Where::current());

void copy_async(const Packs& to, int pack, const void* from, int bytes,
                Where where = Where::current());
void commit_copies();
void wait_copies(unsigned pending);
template <int kPending>
void wait_copies() {
  wait_copies(static_cast<unsigned>(kPending));
}

// An f32 rounded to TF32, which keeps the upper 10 bits of the fraction: to nearest, ties away from
// zero.
inline uint32_t to_tf32(uint32_t f32) {
  constexpr uint32_t kInfinity = 0x7F800000;
  constexpr uint32_t kCutOff = 0x1FFF;
  const bool is_nan = (f32 & 0x7FFFFFFF) > kInfinity;
  return is_nan ? f32 | 0x00400000 : (f32 + (kCutOff + 1) / 2) & ~kCutOff;
}

void multiply_add_tf32(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                       Where where);
void multiply_add_f16(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                      Where where);
void multiply_add_bf16(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                       Where where);
template <class T>
void multiply_add(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                  Where where = Where::current()) {
  if constexpr (std::is_same_v<T, float>) {
    multiply_add_tf32(sums, a, b, where);
  } else if constexpr (std::is_same_v<T, __half>) {
    multiply_add_f16(sums, a, b, where);
  } else {
    multiply_add_bf16(sums, a, b, where);
  }
}

inline float power_of_two(float x) { return std::exp2(x); }
inline float reciprocal(float x) { return 1 / x; }
inline int64_t multiply_wide(int a, int b) { return int64_t{a} * b; }
inline int opaque(int x) { return x; }

}  // namespace bowline::detail::cuda_emu
