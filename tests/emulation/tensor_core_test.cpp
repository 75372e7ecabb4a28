// The matrix instructions, asynchronous copies and dynamic shared memory of the emulation: a
// correct kernel multiplies, and each wrong one is rejected or counted.
#include "device/tensor_core.cuh"

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "device/begin.cuh"
#include "run.h"

namespace bowline::detail::cuda_emu {
namespace {

constexpr unsigned kTile = 16 * 1024;  // bytes of shared memory

std::string run_tile(unsigned threads, const std::function<void()>& kernel) {
  return run(1, threads, kernel, kTile);
}
void expect_tile_error(unsigned threads, const std::function<void()>& kernel,
                       const std::string& part) {
  expect_error(threads, kernel, part, kTile);
}

// The operands a[16][16] and b[16][8] of small integers, of which every product is exact.
template <class T>
struct Operands {
  alignas(16) T a[16][16];
  alignas(16) T b[16][8];          // [k][n]
  alignas(16) T b_along_k[8][16];  // [n][k]
  float product[16][8];

  Operands() {
    for (int k = 0; k < 16; ++k) {
      for (int m = 0; m < 16; ++m) {
        write(&a[m][k], static_cast<float>((m * 7 + k * 3) % 17 - 8));
      }
      for (int n = 0; n < 8; ++n) {
        write(&b[k][n], static_cast<float>((n * 5 + k * 11) % 13 - 6));
        b_along_k[n][k] = b[k][n];
      }
    }
    for (int m = 0; m < 16; ++m) {
      for (int n = 0; n < 8; ++n) {
        product[m][n] = 1;  // the sums begin at 1
        for (int k = 0; k < 16; ++k) {
          product[m][n] += read(&a[m][k]) * read(&b[k][n]);
        }
      }
    }
  }
};

enum class Fault { none, order_of_a, transposed };

// Copies the operands to shared memory, in rows of 2 packs (a and b_along_k) or 1 pack (b), and
// multiplies. Lane 8 i + r loads row r of matrix i.
template <class T>
__global__ void multiply_kernel(const Operands<T>& o, bool along_k, Fault fault,
                                float (&y)[16][8]) {
  const Packs a = dynamic_shared();
  const Packs b = a.from(32);
  const int lane = static_cast<int>(threadIdx.x);
  copy_async(a, lane, &o.a[lane / 2][lane % 2 * 8], 16);
  if (lane < 16) {
    copy_async(b, lane, along_k ? &o.b_along_k[lane / 2][lane % 2 * 8] : &o.b[lane][0], 16);
  }
  commit_copies();
  wait_copies<0>();
  __syncwarp();
  uint32_t of_a[4];
  load_matrices(of_a, a, 2 * (lane % 16) + lane / 16);
  uint32_t of_b[2];
  if (along_k == (fault != Fault::transposed)) {
    load_matrices(of_b, b, along_k ? 2 * (lane % 8) + lane / 8 % 2 : lane % 16);
  } else {
    load_transposed(of_b, b, along_k ? 2 * (lane % 8) + lane / 8 % 2 : lane % 16);
  }
  if (fault == Fault::order_of_a) {
    std::swap(of_a[1], of_a[2]);
  }
  float sums[4] = {1, 1, 1, 1};
  multiply_add<T>(sums, of_a, of_b);
  for (int i = 0; i < 4; ++i) {
    y[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2] = sums[i];
  }
}

template <class T>
float largest_error(bool along_k, Fault fault) {
  const Operands<T> o;
  float y[16][8] = {};
  EXPECT_EQ(run_tile(32, [&] { multiply_kernel<T>(o, along_k, fault, y); }), "");
  float largest = 0;
  for (int m = 0; m < 16; ++m) {
    for (int n = 0; n < 8; ++n) {
      largest = std::max(largest, std::fabs(y[m][n] - o.product[m][n]));
    }
  }
  return largest;
}

TEST(TensorCore, AFragmentProductIsTheScalarProduct) {
  for (const bool along_k : {false, true}) {
    EXPECT_EQ(largest_error<__half>(along_k, Fault::none), 0);
    EXPECT_EQ(largest_error<__nv_bfloat16>(along_k, Fault::none), 0);
  }
}

TEST(TensorCore, AWrongOrderOfFragmentsGivesAnotherProduct) {
  EXPECT_GT(largest_error<__half>(true, Fault::order_of_a), 1);
  EXPECT_GT(largest_error<__half>(true, Fault::transposed), 1);
  EXPECT_GT(largest_error<__nv_bfloat16>(false, Fault::transposed), 1);
}

// To nearest, ties away from zero. Only NaN stays NaN.
TEST(TensorCore, AnF32IsRoundedToTf32) {
  const auto rounded = [](float x) {
    return std::bit_cast<float>(to_tf32(std::bit_cast<uint32_t>(x)));
  };
  const float ulp = 0x1p-10f;  // of TF32 at 1
  EXPECT_EQ(rounded(1), 1);
  EXPECT_EQ(rounded(1 + 0x1p-11f), 1 + ulp);
  EXPECT_EQ(rounded(1 + 0x1p-11f - 0x1p-23f), 1);
  EXPECT_EQ(rounded(-1 - 0x1p-11f), -1 - ulp);
  EXPECT_EQ(rounded(1 + 3 * 0x1p-11f), 1 + 2 * ulp);
  EXPECT_EQ(rounded(2 - 0x1p-23f), 2);
  EXPECT_EQ(std::bit_cast<uint32_t>(rounded(-0.0f)), 0x80000000);
  EXPECT_EQ(rounded(std::numeric_limits<float>::infinity()), INFINITY);
  EXPECT_TRUE(std::isnan(rounded(std::bit_cast<float>(0x7F800001))));
  EXPECT_TRUE(std::isnan(rounded(std::bit_cast<float>(0xFFFFFFFF))));
}

// The layout of the registers, and that the matrix instruction ignores the lower bits of an f32.
TEST(TensorCore, AFragmentProductOfTf32IsTheScalarProduct) {
  const auto of_a = [](unsigned m, unsigned k) { return static_cast<float>((m * 7 + k * 3) % 17); };
  const auto of_b = [](unsigned k, unsigned n) {
    return static_cast<float>((n * 5 + k * 11) % 13);
  };
  constexpr uint32_t kIgnored = 0x1FFF;
  float y[16][8] = {};
  EXPECT_EQ(run_tile(32,
                     [&] {
                       const unsigned g = threadIdx.x / 4, t = threadIdx.x % 4;
                       uint32_t a[4], b[2];
                       for (unsigned i = 0; i < 4; ++i) {
                         a[i] =
                             std::bit_cast<uint32_t>(of_a(g + i % 2 * 8, t + i / 2 * 4)) | kIgnored;
                       }
                       for (unsigned i = 0; i < 2; ++i) {
                         b[i] = std::bit_cast<uint32_t>(of_b(t + 4 * i, g)) | kIgnored;
                       }
                       float sums[4] = {1, 1, 1, 1};
                       multiply_add<float>(sums, a, b);
                       for (unsigned i = 0; i < 4; ++i) {
                         y[g + i / 2 * 8][2 * t + i % 2] = sums[i];
                       }
                     }),
            "");
  for (unsigned m = 0; m < 16; ++m) {
    for (unsigned n = 0; n < 8; ++n) {
      float right = 1;
      for (unsigned k = 0; k < 8; ++k) {
        right += of_a(m, k) * of_b(k, n);
      }
      EXPECT_EQ(y[m][n], right) << m << ", " << n;
    }
  }
}

TEST(TensorCore, ALaneThatSkipsAMatrixInstructionIsFound) {
  expect_tile_error(
      32,
      [] {
        if (threadIdx.x != 3) {
          float sums[4] = {};
          multiply_add<__half>(sums, {0, 0, 0, 0}, {0, 0});
        }
      },
      "names lane 3 of warp 0, which has ended");
  expect_tile_error(
      40,
      [] {
        uint32_t to[2];
        dynamic_shared().store(static_cast<int>(threadIdx.x), uint4{});
        __syncthreads();
        load_matrices(to, dynamic_shared(), static_cast<int>(threadIdx.x));
      },
      "which does not exist");
}

// Copies 64 packs and reads the pack of the neighbour in the other warp.
enum class Missing { nothing, wait, barrier, commit };
__global__ void copy_kernel(const uint4* from, uint4* to, Missing missing) {
  const Packs packs = dynamic_shared();
  const int thread = static_cast<int>(threadIdx.x);
  copy_async(packs, thread, from + thread, 16);
  if (missing != Missing::commit) {
    commit_copies();
  }
  if (missing != Missing::wait) {
    wait_copies<0>();
  }
  if (missing != Missing::barrier) {
    __syncthreads();
  }
  to[thread] = packs.load(thread ^ 32);
}

TEST(TensorCore, AnAsynchronousCopyIsVisibleAfterItsWaitAndABarrier) {
  alignas(16) std::array<uint4, 64> from{};
  std::array<uint4, 64> to{};
  for (unsigned i = 0; i < 64; ++i) {
    from[i] = {i, i + 1, i + 2, i + 3};
  }
  EXPECT_EQ(run_tile(64, [&] { copy_kernel(from.data(), to.data(), Missing::nothing); }), "");
  EXPECT_EQ(to[3].x, 35u);
  EXPECT_EQ(to[40].w, 11u);
  for (const Missing missing : {Missing::wait, Missing::commit}) {
    expect_tile_error(
        64, [&] { copy_kernel(from.data(), to.data(), missing); }, "has not filled yet");
  }
  // The other warp either has not started its copy or has filled its packs without a barrier.
  for (int i = 0; i < 2; ++i) {
    EXPECT_NE(run_tile(64, [&] { copy_kernel(from.data(), to.data(), Missing::barrier); }), "");
  }
}

TEST(TensorCore, AWaitThatLeavesGroupsPendingLeavesTheNewest) {
  alignas(16) std::array<uint4, 2> from{};
  const auto kernel = [&](int read) {
    const Packs packs = dynamic_shared();
    for (int i = 0; i < 2; ++i) {
      copy_async(packs, i, &from[static_cast<size_t>(i)], 16);
      commit_copies();
    }
    wait_copies<1>();
    (void)packs.load(read);
  };
  EXPECT_EQ(run_tile(1, [&] { kernel(0); }), "");
  expect_tile_error(
      1, [&] { kernel(1); }, "has not filled yet");
}

TEST(TensorCore, ACopyOfFewerBytesFillsTheRestWithZeros) {
  alignas(16) const uint4 from = {1, 2, 3, 4};
  uint4 to = {};
  EXPECT_EQ(run_tile(1,
                     [&] {
                       copy_async(dynamic_shared(), 5, &from, 6);
                       commit_copies();
                       wait_copies<0>();
                       to = dynamic_shared().load(5);
                     }),
            "");
  EXPECT_EQ(to.x, 1u);
  EXPECT_EQ(to.y, 2u);
  EXPECT_EQ(to.z, 0u);
  EXPECT_EQ(to.w, 0u);
}

TEST(TensorCore, ACopyFromAnUnalignedAddressIsFound) {
  alignas(16) const std::array<uint4, 2> from{};
  expect_tile_error(
      1,
      [&] { copy_async(dynamic_shared(), 0, reinterpret_cast<const char*>(from.data()) + 8, 8); },
      "is not from a multiple of 16 bytes");
}

TEST(TensorCore, AMatrixLoadNeedsABarrierAfterTheWritesOfOtherLanes) {
  expect_tile_error(
      32,
      [] {
        uint32_t to[4];
        dynamic_shared().store(static_cast<int>(threadIdx.x), uint4{});
        load_matrices(to, dynamic_shared(), static_cast<int>(threadIdx.x));
      },
      "with no barrier between");
}

TEST(TensorCore, AnAccessOutsideTheSharedMemoryOfTheLaunchIsFound) {
  expect_tile_error(
      1, [] { dynamic_shared().store(kTile / 16, uint4{}); }, "word 4096 of 4096");
}

// Conflicts of a tile of 32 rows with 4 packs each. Without a swizzle, the rows of a matrix are 64
// bytes apart, so the 8 rows use 2 of 8 groups of banks: each matrix takes 4 passes.
uint64_t conflicts_of_a_tile(bool swizzled) {
  count_bank_conflicts(true);
  EXPECT_EQ(run_tile(32,
                     [&] {
                       const Packs packs = dynamic_shared();
                       const int lane = static_cast<int>(threadIdx.x);
                       const auto place = [&](int row, int column) {
                         return 4 * row + (swizzled ? column ^ row / 2 % 4 : column);
                       };
                       for (int column = 0; column < 4; ++column) {
                         packs.store(place(lane, column), uint4{});
                       }
                       __syncwarp();
                       uint32_t to[4];
                       load_matrices(to, packs, place(lane, 1));
                     }),
            "");
  const uint64_t count = bank_conflicts();
  count_bank_conflicts(false);
  return count;
}

TEST(TensorCore, BankConflictsAreCounted) {
  EXPECT_EQ(conflicts_of_a_tile(true), 0u);
  EXPECT_EQ(conflicts_of_a_tile(false), 4u * 3 + 4 * 4 * 3);  // 4 matrices, 4 stores of 4 phases
  // Words: a column of a row-major 32 x 32 tile is in one bank; one word for all is no conflict.
  count_bank_conflicts(true);
  EXPECT_EQ(run_tile(32,
                     [] {
                       const int lane = static_cast<int>(threadIdx.x);
                       dynamic_shared().store_word(32 * lane, 1);
                       __syncwarp();
                       (void)dynamic_shared().load_word(64);
                     }),
            "");
  EXPECT_EQ(bank_conflicts(), 31u);
  count_bank_conflicts(false);
}

__global__ void nothing_kernel() { begin_kernel(); }
__global__ void other_kernel(int) {}

TEST(TensorCore, LargeSharedMemoryNeedsACallThatTheGpuAllows) {
  restart();
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, 0), cudaSuccess);
  const auto plain = [&](unsigned bytes) {
    return launch_kernel(
        "other", dim3(1), dim3(1), stream, [] { other_kernel(0); }, bytes,
        reinterpret_cast<const void*>(other_kernel));
  };
  EXPECT_EQ(plain(48 * 1024), cudaSuccess);
  EXPECT_EQ(plain(48 * 1024 + 16), cudaErrorInvalidValue);
  const auto with_call = [&](unsigned bytes) {
    return launch("nothing", nothing_kernel, Blocks::independent, dim3(1), dim3(1), bytes, stream);
  };
  EXPECT_EQ(with_call(99 * 1024), cudaSuccess);
  EXPECT_EQ(with_call(99 * 1024 + 16), cudaErrorInvalidValue);
  machine().major = 7;
  machine().minor = 5;
  EXPECT_EQ(with_call(64 * 1024), cudaSuccess);
  EXPECT_EQ(with_call(64 * 1024 + 16), cudaErrorInvalidValue);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  restart();
}

TEST(TensorCore, OlderGpusHaveNoProductsOfBf16AndTf32) {
  machine().major = 7;
  machine().minor = 5;
  expect_tile_error(
      32,
      [] {
        float sums[4] = {};
        multiply_add<__nv_bfloat16>(sums, {}, {});
      },
      "The product of bf16");
  expect_tile_error(
      32,
      [] {
        float sums[4] = {};
        multiply_add<float>(sums, {}, {});
      },
      "The product of TF32");
  restart();
}

TEST(TensorCore, DtypesFollowTheCodeThatRuns) {
  EXPECT_TRUE((Traits{75, 1}.multiplies(DType::f16)));
  EXPECT_FALSE((Traits{75, 1}.multiplies(DType::bf16)));
  EXPECT_TRUE((Traits{80, 1}.multiplies(DType::bf16)));
  EXPECT_FALSE((Traits{75, 1}.copies_async()));
}

}  // namespace
}  // namespace bowline::detail::cuda_emu
