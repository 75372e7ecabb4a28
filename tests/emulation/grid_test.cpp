// Kernels on the emulated launch model: correct kernels give the values of a GPU, wrong ones are
// rejected with the reason.
#include <array>
#include <vector>

#include "device/begin.cuh"
#include "device/grid_barrier.cuh"
#include "run.h"

namespace bowline::detail::cuda_emu {
namespace {

constexpr unsigned kAll = 0xFFFFFFFF;

__global__ void number_kernel(int* out) {
  const unsigned i = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  out[i * 24 + t] += static_cast<int>(i * 24 + t);
}

TEST(Grid, EachThreadRunsOnceWithItsIndices) {
  std::vector<int> out(6 * 24, 0);
  EXPECT_EQ(run_grid(dim3(3, 1, 2), dim3(4, 3, 2), [&] { number_kernel(out.data()); }), "");
  for (int i = 0; i < 6 * 24; ++i) {
    EXPECT_EQ(out[static_cast<size_t>(i)], i);
  }
}

TEST(Grid, ImpossibleSizesAreRefused) {
  EXPECT_NE(run(1, 1025, [] {}), "");
  EXPECT_NE(run(0, 32, [] {}), "");
  EXPECT_NE(run_grid(dim3(1, 65536), dim3(32), [] {}), "");
  EXPECT_EQ(run(1, 1024, [] {}), "");
}

// Reverses the block through shared memory. Without the barrier it reads values that are not
// written yet.
template <bool Barrier>
__global__ void reverse_kernel(float* x) {
  __shared__ Shared<float[64]> tile;
  tile[threadIdx.x] = x[threadIdx.x];
  if (Barrier) {
    __syncthreads();
  }
  x[threadIdx.x] = tile[63 - threadIdx.x];
}

TEST(Grid, ABarrierOrdersSharedMemory) {
  std::vector<float> x(64);
  for (size_t i = 0; i < 64; ++i) {
    x[i] = static_cast<float>(i);
  }
  EXPECT_EQ(run(1, 64, [&] { reverse_kernel<true>(x.data()); }), "");
  EXPECT_EQ(x[0], 63);
  EXPECT_EQ(x[63], 0);
}

TEST(Grid, AMissingBarrierAfterAWriteIsFound) {
  std::vector<float> x(64);
  for (int i = 0; i < 2; ++i) {
    EXPECT_NE(run(1, 64, [&] { reverse_kernel<false>(x.data()); }), "");
  }
}

// Threads of all warps read a value that thread 0 overwrites.
template <bool Barrier>
__global__ void overwrite_kernel(float* out) {
  __shared__ Shared<float> value;
  if (threadIdx.x == 0) {
    value = 1;
  }
  __syncthreads();
  out[threadIdx.x] = value;
  if (Barrier) {
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    value = 2;
  }
}

TEST(Grid, AMissingBarrierBeforeAWriteIsFound) {
  std::vector<float> out(64);
  expect_error(
      64, [&] { overwrite_kernel<false>(out.data()); }, "with no barrier between");
  EXPECT_EQ(run(1, 64, [&] { overwrite_kernel<true>(out.data()); }), "");
}

// The same inside a warp, where a warp barrier suffices.
template <bool Barrier>
__global__ void warp_kernel(float* out) {
  __shared__ Shared<float[64]> tile;
  tile[threadIdx.x] = static_cast<float>(threadIdx.x);
  if (Barrier) {
    __syncwarp();
  }
  out[threadIdx.x] = tile[threadIdx.x ^ 1];
}

TEST(Grid, ABarrierOfTheWarpOrdersItsLanes) {
  std::vector<float> out(64);
  EXPECT_EQ(run(1, 64, [&] { warp_kernel<true>(out.data()); }), "");
  EXPECT_EQ(out[40], 41);
  for (int i = 0; i < 2; ++i) {
    EXPECT_NE(run(1, 64, [&] { warp_kernel<false>(out.data()); }), "");
  }
}

TEST(Grid, ABarrierOfTheWarpDoesNotOrderOtherWarps) {
  const auto kernel = [] {
    __shared__ Shared<float[64]> tile;
    tile[threadIdx.x] = 1;
    __syncwarp();
    (void)static_cast<float>(tile[(threadIdx.x + 32) % 64]);
  };
  for (int i = 0; i < 2; ++i) {
    EXPECT_NE(run(1, 64, kernel), "");
  }
}

// All threads increment one number.
template <bool BarrierBefore, bool BarrierAfter>
__global__ void count_kernel(unsigned* out) {
  __shared__ Shared<unsigned> sum;
  if (threadIdx.x == 0) {
    sum = 5;
  }
  if (BarrierBefore) {
    __syncthreads();
  }
  atomicInc(&sum, kAll);
  if (BarrierAfter) {
    __syncthreads();
  }
  out[threadIdx.x] = sum;
}

TEST(Grid, AtomicIncrementsNeedBarriersOnlyAroundThem) {
  std::vector<unsigned> out(64);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(run(1, 64, [&] { count_kernel<true, true>(out.data()); }), "");
    EXPECT_EQ(out[40], 5u + 64);
    EXPECT_NE(run(1, 64, [&] { count_kernel<false, true>(out.data()); }), "");
    EXPECT_NE(run(1, 64, [&] { count_kernel<true, false>(out.data()); }), "");
  }
}

// In one of the two orders, the thread that reads is the last one that incremented.
TEST(Grid, AReadAfterTheIncrementsOfOthersIsFound) {
  const auto kernel = [] {
    __shared__ Shared<unsigned> sum;
    if (threadIdx.x == 0) {
      sum = 0;
    }
    __syncthreads();
    atomicInc(&sum, kAll);
    if (threadIdx.x == 63) {
      (void)static_cast<unsigned>(sum);
    }
  };
  expect_error(64, kernel, "with no barrier between");
}

TEST(Grid, SharedMemoryOfAnotherBlockIsNotInitialised) {
  const auto kernel = [] {
    __shared__ Shared<float> value;
    if (blockIdx.x == 0) {
      value = 3;
    }
    (void)static_cast<float>(value);
  };
  EXPECT_NE(run(2, 1, kernel).find("has not written"), std::string::npos);
}

TEST(Grid, ABarrierThatSomeThreadsSkipIsFound) {
  expect_error(
      64,
      [] {
        if (threadIdx.x < 40) {
          __syncthreads();
        }
      },
      "40 of 64 threads reach the barrier");
}

TEST(Grid, AShuffleReadsTheOtherLane) {
  std::array<int, 32> xor_of{};
  std::array<int, 32> up{};
  std::array<int, 32> from{};
  EXPECT_EQ(run(1, 32,
                [&] {
                  const int me = static_cast<int>(threadIdx.x);
                  xor_of[threadIdx.x] = __shfl_xor_sync(kAll, me, 5);
                  up[threadIdx.x] = __shfl_up_sync(kAll, me, 3);
                  from[threadIdx.x] = __shfl_sync(kAll, me, 9, 8);
                }),
            "");
  for (int i = 0; i < 32; ++i) {
    const auto at = static_cast<size_t>(i);
    EXPECT_EQ(xor_of[at], i ^ 5);
    EXPECT_EQ(up[at], i >= 3 ? i - 3 : i);
    EXPECT_EQ(from[at], i / 8 * 8 + 1);
  }
}

TEST(Grid, AShuffleOfDoublesKeepsAllBits) {
  std::array<double, 32> out{};
  EXPECT_EQ(
      run(1, 32, [&] { out[threadIdx.x] = __shfl_xor_sync(kAll, 1.0 / (1.0 + threadIdx.x), 1); }),
      "");
  EXPECT_EQ(out[0], 0.5);
  EXPECT_EQ(out[3], 1.0 / 3);
}

TEST(Grid, AShuffleFromALaneThatEndedIsFound) {
  expect_error(
      32,
      [] {
        if (threadIdx.x < 20) {
          (void)__shfl_xor_sync(kAll, 1.0f, 1);
        }
      },
      "names lane 20 of warp 0, which has ended");
}

TEST(Grid, AShuffleFromALaneThatDoesNotExistIsFound) {
  expect_error(
      40, [] { (void)__shfl_xor_sync(kAll, 1.0f, 1); }, "which does not exist");
}

TEST(Grid, AShuffleFromALaneOutsideTheMaskIsFound) {
  expect_error(
      32,
      [] {
        if (threadIdx.x < 16) {
          (void)__shfl_sync(0xFFFF, 1.0f, 20);
        }
      },
      "reads lane 20, which its mask does not name");
}

TEST(Grid, ALaneOutsideItsOwnMaskIsFound) {
  expect_error(
      32, [] { (void)__shfl_sync(0xFF, 1.0f, 0); }, "does not name the calling lane");
}

TEST(Grid, AShuffleWhileOthersWaitAtABarrierIsFound) {
  expect_error(
      32,
      [] {
        if (threadIdx.x < 16) {
          (void)__shfl_xor_sync(kAll, 1.0f, 1);
        } else {
          __syncthreads();
        }
      },
      "which waits elsewhere");
}

TEST(Grid, VotesCountTheLanesOfTheMask) {
  std::array<unsigned, 32> ballot{};
  EXPECT_EQ(run(1, 32, [&] { ballot[threadIdx.x] = __ballot_sync(kAll, threadIdx.x % 3 == 0); }),
            "");
  EXPECT_EQ(ballot[11], 0x49249249u);
}

TEST(Grid, TheThreadsOfTwoLaunchesStartInOppositeOrder) {
  std::vector<unsigned> first;
  std::vector<unsigned> second;
  EXPECT_EQ(run(2, 2, [&] { first.push_back(blockIdx.x * 2 + threadIdx.x); }), "");
  EXPECT_EQ(run(2, 2, [&] { second.push_back(blockIdx.x * 2 + threadIdx.x); }), "");
  EXPECT_EQ(first, std::vector<unsigned>(second.rbegin(), second.rend()));
}

TEST(Grid, AfterAnErrorTheNextGridRuns) {
  EXPECT_NE(run(1, 64,
                [] {
                  if (threadIdx.x == 0) {
                    __syncthreads();
                  }
                }),
            "");
  int threads = 0;
  EXPECT_EQ(run(2, 64,
                [&] {
                  __syncthreads();
                  ++threads;
                }),
            "");
  EXPECT_EQ(threads, 128);
}

// A kernel whose blocks may start while the launch before still runs.
TEST(EarlyGrid, AKernelBeginsWithAWait) {
  uint32_t counter = 0;
  EXPECT_EQ(run(2, 64,
                [&] {
                  require_wait();
                  begin_kernel();
                  atomicInc(&counter, UINT32_MAX);
                }),
            "");
  EXPECT_EQ(counter, 128u);
}

TEST(EarlyGrid, AKernelWithoutAWaitIsFound) {
  expect_error(
      64, [] { require_wait(); }, "It ends before it waits for the launch before");
}

TEST(EarlyGrid, AThreadWithoutAWaitIsFound) {
  expect_error(
      64,
      [] {
        require_wait();
        if (threadIdx.x < 63) {
          begin_kernel();
        }
      },
      "Thread 63 of block (0, 0, 0): It ends before it waits");
}

TEST(EarlyGrid, AnAccessBeforeTheWaitIsFound) {
  uint32_t counter = 0;
  float x = 0;
  const Exchanged exchanged(&x);
  const std::function<void()> accesses[] = {
      [&] { atomicInc(&counter, UINT32_MAX); }, [&] { add_release(&counter, 1); },
      [&] { wait_acquire(&counter, 0); }, [&] { (void)exchanged.read(0); },
      [&] { exchanged.write(0, 1); }};
  for (const auto& access : accesses) {
    expect_error(
        1,
        [&] {
          require_wait();
          begin_kernel([&] { access(); });
        },
        "It accesses device memory before it waits");
  }
}

TEST(EarlyGrid, TheNextLaunchStartsAfterTheWait) {
  expect_error(
      1,
      [] {
        require_wait();
        launch_dependents();
        wait_for_prerequisites();
      },
      "It lets the next launch start before it waits");
}

// Blocks of 64 threads that wait for one another.
class CooperativeGrid : public testing::Test {
 protected:
  static constexpr unsigned kBlocks = 3;
  static constexpr unsigned kThreads = 64;
  static constexpr unsigned kSize = kBlocks * kThreads;

  static std::string run_together(const std::function<void()>& kernel, unsigned shared_bytes = 0) {
    return run_grid(dim3(kBlocks), dim3(kThreads), kernel, shared_bytes, true);
  }
  // Runs twice, because every second launch starts its threads and blocks in reverse.
  void expect_refused(const std::function<void()>& kernel, const std::string& part) {
    for (int i = 0; i < 2; ++i) {
      counters_ = {};
      const std::string error = run_together(kernel);
      EXPECT_NE(error.find(part), std::string::npos) << "instead: " << error;
    }
  }
  static unsigned me() { return blockIdx.x * kThreads + threadIdx.x; }
  // An element of another block.
  static unsigned other() { return (me() + kThreads) % kSize; }

  std::array<uint32_t, 2> counters_ = {};
  std::vector<float> x_ = std::vector<float>(kSize);
  std::vector<float> y_ = std::vector<float>(kSize);
};

TEST_F(CooperativeGrid, ABarrierOrdersWhatBlocksExchange) {
  std::vector<float> out(kSize);
  const Exchanged x[2] = {Exchanged(x_.data()), Exchanged(y_.data())};
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(run_together([&] {
                GridBarrier barrier(counters_.data());
                x[0].write(me(), static_cast<float>(me()));
                for (unsigned step = 0; step < 5; ++step) {
                  barrier.wait();
                  x[(step + 1) % 2].write(me(), x[step % 2].read(other()));
                }
                barrier.end();
                out[me()] = x[1].read(me());
              }),
              "");
    EXPECT_EQ(out[0], 5 * kThreads % kSize);
    EXPECT_EQ(counters_, (std::array<uint32_t, 2>{})) << "as before the launch";
  }
}

TEST_F(CooperativeGrid, AMissingBarrierIsFound) {
  const Exchanged x(x_.data());
  expect_refused(
      [&] {
        x.write(me(), 1);
        __syncthreads();
        (void)x.read(other());
      },
      "with no barrier of the grid between");
}

// A barrier orders the reads of a step after the writes of the step before. The next writes need
// another buffer.
TEST_F(CooperativeGrid, AWrongBufferIsFound) {
  const Exchanged x(x_.data());
  expect_refused(
      [&] {
        GridBarrier barrier(counters_.data());
        x.write(me(), 1);
        barrier.wait();
        x.write(me(), x.read(other()));
      },
      "with no barrier of the grid between");
}

// The adds of the counter order what other threads of the block wrote only after a barrier of the
// block; and the wait orders only after one what the others read.
TEST_F(CooperativeGrid, ABarrierNeedsThoseOfItsBlocks) {
  const Exchanged x(x_.data());
  const auto wait = [&](bool before, bool after) {
    x.write(me(), 1);
    if (before) {
      __syncthreads();
    }
    if (threadIdx.x == 0) {
      add_release(counters_.data(), 1);
      wait_acquire(counters_.data(), kBlocks);
    }
    if (after) {
      __syncthreads();
    }
    (void)x.read(other());
  };
  counters_ = {};
  EXPECT_EQ(run_together([&] { wait(true, true); }), "");
  expect_refused([&] { wait(false, true); }, "with no barrier of the grid between");
  expect_refused([&] { wait(true, false); }, "with no barrier of the grid between");
}

TEST_F(CooperativeGrid, ABarrierThatABlockSkipsIsFound) {
  expect_refused(
      [&] {
        if (blockIdx.x != 1) {
          GridBarrier(counters_.data()).wait();
        }
      },
      "for a counter that stays at 2 of 3");
}

TEST_F(CooperativeGrid, ABarrierNeedsACooperativeLaunch) {
  const std::string error = run(kBlocks, kThreads, [&] { GridBarrier(counters_.data()).wait(); });
  EXPECT_NE(error.find("for a counter that stays at 1 of 3"), std::string::npos) << error;
}

// Each block has its own dynamic shared memory. Static shared memory is the next block's.
TEST_F(CooperativeGrid, DynamicSharedMemoryOutlivesABarrier) {
  counters_ = {};
  EXPECT_EQ(run_together(
                [&] {
                  GridBarrier barrier(counters_.data());
                  const int word = static_cast<int>(threadIdx.x);
                  dynamic_shared().store_word(word, me());
                  barrier.wait();
                  x_[me()] = static_cast<float>(dynamic_shared().load_word(word));
                },
                4 * kThreads),
            "");
  EXPECT_EQ(x_[70], 70);
  expect_refused(
      [&] {
        __shared__ Shared<float[kThreads]> values;
        values[threadIdx.x] = 1;
        GridBarrier(counters_.data()).wait();
        (void)static_cast<float>(values[threadIdx.x]);
      },
      "that the block has not written");
}

// Round trips and ties to even, compared with the definition of the formats.
TEST(Half, ConversionsRoundToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const __half h{static_cast<uint16_t>(bits)};
    EXPECT_EQ(__float2half_rn(__half2float(h)).bits, bits);
    // The middle to the next value rounds to even.
    const __half next{static_cast<uint16_t>(bits + 1)};
    if (bits + 1 < 0x7C00) {
      const float middle = __half2float(h) / 2 + __half2float(next) / 2;
      EXPECT_EQ(__float2half_rn(middle).bits, bits % 2 == 0 ? bits : bits + 1);
    }
  }
  EXPECT_EQ(__float2half_rn(65519.0f).bits, 0x7BFF);
  EXPECT_EQ(__float2half_rn(65520.0f).bits, 0x7C00);
  EXPECT_EQ(__float2half_rn(-1.0f).bits, 0xBC00);
  for (uint32_t bits = 0; bits < 0x7F80; ++bits) {
    const __nv_bfloat16 b{static_cast<uint16_t>(bits)};
    EXPECT_EQ(__float2bfloat16_rn(__bfloat162float(b)).bits, bits);
  }
  EXPECT_EQ(__float2bfloat16_rn(std::bit_cast<float>(0x3F808000u)).bits, 0x3F80);
  EXPECT_EQ(__float2bfloat16_rn(std::bit_cast<float>(0x3F818000u)).bits, 0x3F82);
}

}  // namespace
}  // namespace bowline::detail::cuda_emu
