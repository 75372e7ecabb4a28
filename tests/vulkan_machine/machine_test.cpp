// The machine reports what it promises to report. tests/conformance runs the kernels on it.
#include "machine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <iterator>

#include "base/float16.h"
#include "shared_memory.h"

namespace bowline::detail::vulkan::machine {
namespace {

constexpr uint32_t kLanes = 128;

std::vector<uint32_t> shader_words(const char* path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  std::vector<uint32_t> words(bytes.size() / sizeof(uint32_t));
  std::copy_n(bytes.data(), words.size() * sizeof(uint32_t), reinterpret_cast<char*>(words.data()));
  return words;
}

struct Result {
  std::string fault;
  std::vector<uint32_t> out = std::vector<uint32_t>(kLanes);
};

Result run_case(uint32_t which, uint32_t subgroup = 32, uint32_t n = 0) {
  static const std::vector<uint32_t> words = shader_words(BOWLINE_MACHINE_SHADER);
  Result result;
  const Module module = decode(words, {{0, kLanes}, {1, which}});
  Dispatch dispatch;
  dispatch.module = &module;
  dispatch.subgroup = subgroup;
  dispatch.most_operations = 100000;
  const auto out = std::bit_cast<uint64_t>(result.out.data());
  const uint64_t pairs = out / 8 * 8 + 4;
  dispatch.push = {static_cast<uint32_t>(out), static_cast<uint32_t>(out >> 32),
                   static_cast<uint32_t>(pairs), static_cast<uint32_t>(pairs >> 32), n};
  result.fault = run(dispatch, [&](uint64_t address, uint64_t bytes) {
    return address >= out && address + bytes <= out + kLanes * sizeof(uint32_t);
  });
  return result;
}

std::string at_first(const char* fault) { return std::string("workgroup (0, 0, 0): ") + fault; }

TEST(Machine, AValueThroughSharedMemoryNeedsABarrier) {
  const Result reversed = run_case(0);
  EXPECT_EQ(reversed.fault, "");
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    EXPECT_EQ(reversed.out[lane], kLanes - 1 - lane);
  }
  // Lanes run one after another, so lane 0 reads before lane 127 writes.
  EXPECT_EQ(run_case(1).fault,
            at_first("lane 0 reads byte 508 of shared memory, which nobody wrote"));
  EXPECT_EQ(
      run_case(2).fault,
      at_first("lane 1 writes byte 4 of shared memory, which lane 0 read, without a barrier"));
}

TEST(Machine, ABarrierOfASubgroupOrdersOnlyItsLanes) {
  const Result neighbours = run_case(3);
  EXPECT_EQ(neighbours.fault, "");
  EXPECT_EQ(neighbours.out[6], 7u);
  EXPECT_NE(run_case(4).fault, "");
}

TEST(Machine, ReportsWhatADriverWouldNot) {
  EXPECT_EQ(run_case(5).fault,
            at_first("lane 0 reads byte 0 of shared memory, which nobody wrote"));
  EXPECT_EQ(run_case(6).fault,
            at_first("lanes 0 and 32 of a workgroup are not at the same barrier"));
  EXPECT_EQ(run_case(7, 32, 1).fault, at_first("lane 127 uses index 128 of an array of 128"));
  EXPECT_EQ(run_case(8, 32, 1).fault,
            at_first("lane 127 reads 4 bytes outside of all allocations"));
  EXPECT_EQ(run_case(9).fault, at_first("lane 0 accesses an address that is not a multiple of 8"));
  EXPECT_EQ(run_case(10, 32, 1).fault, at_first("it does not end"));
}

TEST(Machine, OnlyTheLanesOfABranchTakePart) {
  for (const uint32_t subgroup : {32u, 64u}) {
    const Result sum = run_case(11, subgroup);
    EXPECT_EQ(sum.fault, "");
    EXPECT_EQ(sum.out[4], subgroup / 4);
    EXPECT_EQ(run_case(12, subgroup).out[4], kPoison);
    EXPECT_EQ(run_case(13, subgroup).out[5], subgroup);
    EXPECT_EQ(run_case(15, subgroup).out[70], subgroup * 1000 + 70 % subgroup);
  }
}

TEST(Machine, ComparisonsMayBeWrongOfNaN) {
  EXPECT_EQ(run_case(14, 32, std::bit_cast<uint32_t>(1.0f)).out[0], 2u);
  EXPECT_EQ(run_case(14, 32, kPoison).out[0], 3u);
}

constexpr size_t kM = 4, kN = 16, kK = 8;

struct MatrixResult {
  std::string fault;
  std::vector<float> c = std::vector<float>(kM * kN);
};

// The elements of A are i + 2 l, those of B are l - j.
MatrixResult run_matrices(uint32_t which) {
  struct alignas(16) Memory {
    f16 a[kM * kK + kK];  // CASE 1 reads from the second row on
    f16 b[kK * kN];
    float c[kM * kN];
  };
  static const std::vector<uint32_t> words = shader_words(BOWLINE_MATRIX_SHADER);
  Memory memory{};
  for (size_t l = 0; l < kK; ++l) {
    for (size_t i = 0; i < kM; ++i) {
      memory.a[i * kK + l] = from_f32<f16>(static_cast<float>(i + 2 * l));
    }
    for (size_t j = 0; j < kN; ++j) {
      memory.b[l * kN + j] = from_f32<f16>(static_cast<float>(l) - static_cast<float>(j));
    }
  }
  const Module module = decode(words, {{0, kLanes}, {1, which}});
  Dispatch dispatch;
  dispatch.module = &module;
  dispatch.most_operations = 100000;
  const void* const operands[] = {memory.a, memory.b, memory.c};
  std::memcpy(dispatch.push.data(), operands, sizeof(operands));
  MatrixResult result;
  result.fault = run(dispatch, [&](uint64_t address, uint64_t bytes) {
    const auto first = std::bit_cast<uint64_t>(&memory);
    return address >= first && address + bytes <= first + sizeof(memory);
  });
  std::ranges::copy(memory.c, result.c.begin());
  return result;
}

TEST(Machine, AWorkgroupMultipliesMatricesTogether) {
  const MatrixResult product = run_matrices(0);
  EXPECT_EQ(product.fault, "");
  for (size_t i = 0; i < kM; ++i) {
    for (size_t j = 0; j < kN; ++j) {
      float sum = 0;
      for (size_t l = 0; l < kK; ++l) {
        sum += static_cast<float>(i + 2 * l) * (static_cast<float>(l) - static_cast<float>(j));
      }
      EXPECT_EQ(product.c[i * kN + j], sum);
    }
  }
  EXPECT_EQ(run_matrices(1).fault, at_first("lanes 0 and 64 name different matrices"));
  EXPECT_EQ(run_matrices(2).fault, at_first("a workgroup uses a matrix that nobody wrote"));
  EXPECT_EQ(run_matrices(3).fault,
            at_first("lanes 0 and 64 of a workgroup are not at the same barrier"));
  EXPECT_EQ(run_matrices(4).fault, at_first("lane 0 reads byte 0 of shared memory, which an "
                                            "operation on matrices wrote, without a barrier"));
}

TEST(Machine, BarriersOfSubgroupsDoNotOrderMatricesOfWorkgroups) {
  SharedMemory memory(4);
  memory.poison();
  const auto at = [](uint32_t lane, uint32_t workgroup_barriers, uint32_t subgroup_barriers) {
    return Moment{.lane = lane,
                  .subgroup = kAnySubgroup,
                  .workgroup_barriers = workgroup_barriers,
                  .subgroup_barriers = subgroup_barriers};
  };
  EXPECT_EQ(memory.writes(memory.data(), 4, at(kMatrixStore, 0, 0)), "");
  EXPECT_NE(memory.writes(memory.data(), 4, at(kMatrixStore, 0, 0)), "");
  EXPECT_NE(memory.reads(memory.data(), 4, at(kMatrixLoad, 0, 1)), "");
  EXPECT_EQ(memory.reads(memory.data(), 4, at(kMatrixLoad, 1, 1)), "");
}

}  // namespace
}  // namespace bowline::detail::vulkan::machine
