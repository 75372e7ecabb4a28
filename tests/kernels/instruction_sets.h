// Helpers for tests of CPU kernels: memory that ends at a protected page, and every instruction set
// of this machine.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

// targets.h must precede all headers of Highway.
#include "compute/targets.h"
#include "hwy/targets.h"

namespace bowline::detail::cpu {

// `n` elements that end at a page without read and write access.
template <class T>
class EdgeOf {
 public:
  explicit EdgeOf(size_t n, T value = {}) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t pages = (n * sizeof(T) + page - 1) / page + 1;
    bytes_ = pages * page;
    all_ = static_cast<char*>(
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_EQ(mprotect(all_ + bytes_ - page, page, PROT_NONE), 0);
    data_ = reinterpret_cast<T*>(all_ + bytes_ - page) - n;
    std::fill_n(data_, n, value);
  }
  ~EdgeOf() { munmap(all_, bytes_); }
  EdgeOf(const EdgeOf&) = delete;
  EdgeOf& operator=(const EdgeOf&) = delete;

  operator T*() { return data_; }

 private:
  char* all_ = nullptr;
  size_t bytes_ = 0;
  T* data_ = nullptr;
};

inline std::vector<int64_t> instruction_sets() {
  std::vector<int64_t> sets;
  for (int64_t left = hwy::SupportedTargets() & HWY_TARGETS; left != 0; left &= left - 1) {
    sets.push_back(left & -left);
  }
  return sets;
}

// A test that runs on one instruction set.
class OnInstructionSet : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { use(GetParam()); }
  void TearDown() override { use(0); }

  // 0: the best set of the machine.
  static void use(int64_t set) {
    hwy::SetSupportedTargetsForTest(set);
    hwy::GetChosenTarget().DeInit();
  }
};

#define BOWLINE_ON_ALL_INSTRUCTION_SETS(Suite)                                \
  INSTANTIATE_TEST_SUITE_P(All, Suite, testing::ValuesIn(instruction_sets()), \
                           [](const testing::TestParamInfo<int64_t>& set) {   \
                             return std::string(hwy::TargetName(set.param));  \
                           })

}  // namespace bowline::detail::cpu
