// Memory of the CPU device.
#ifdef __linux__
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

#include "ties/models.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

struct Mapped {
  uint64_t all = 0;        // bytes of address space
  uint64_t huge = 0;       // of these in mappings that ask for huge pages
  uint64_t unaligned = 0;  // number of those mappings that do not begin at a huge page
};

constexpr uint64_t kHugePage = uint64_t{2} << 20;

Mapped mapped() {
  Mapped out;
  uint64_t begin = 0, end = 0;
  std::ifstream maps("/proc/self/smaps");
  for (std::string line; std::getline(maps, line);) {
    char dash = 0;
    uint64_t from = 0, to = 0;
    if (std::istringstream(line) >> std::hex >> from >> dash >> to && dash == '-') {
      begin = from;
      end = to;
      out.all += end - begin;
    } else if (line.starts_with("VmFlags:") && line.find(" hg") != std::string::npos) {
      out.huge += end - begin;
      out.unaligned += begin % kHugePage != 0 ? 1 : 0;
    }
  }
  return out;
}

TEST(CpuMemory, LargeBuffersConsistOfHugePages) {
  if (!std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled").is_open()) {
    GTEST_SKIP() << "The kernel has no transparent huge pages.";
  }
  const auto cpu = open_cpu();
  // Systems may align multiples of huge pages on their own.
  const uint64_t bytes = 20 * kHugePage + 3 * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const auto allocate = [&] { return must(cpu->allocate(bytes, device::MemoryKind::device)); };
  cpu->free(allocate());  // the heap grows once
  const Mapped before = mapped();
  const device::Buffer buffer = allocate();
  const Mapped with = mapped();
  cpu->free(buffer);
  const Mapped after = mapped();
  EXPECT_EQ(with.huge - before.huge, bytes);
  EXPECT_EQ(with.unaligned, before.unaligned);
  EXPECT_EQ(with.all - before.all, bytes);
  EXPECT_EQ(after.all, before.all);
}

}  // namespace
}  // namespace bowline::test
#endif
