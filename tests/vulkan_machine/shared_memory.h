// Shared memory of a workgroup. It remembers the last read and write of each two bytes, to find
// races.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bowline::detail::vulkan::machine {

// Of an access: its lane and subgroup, and the barriers that workgroup and subgroup have passed.
struct Moment {
  uint32_t lane = 0;
  uint32_t subgroup = 0;
  uint32_t workgroup_barriers = 0;
  uint32_t subgroup_barriers = 0;
};

// Lanes of operations on matrices: nobody knows which lanes of a subgroup touch which elements.
constexpr uint32_t kMatrixLoad = ~1u, kMatrixStore = ~0u;
// The subgroup of operations on matrices of a workgroup.
constexpr uint32_t kAnySubgroup = ~0u;

class SharedMemory {
 public:
  explicit SharedMemory(uint32_t bytes);

  char* data() { return bytes_.data(); }
  void poison();  // before a workgroup
  // Return the fault, or an empty text.
  std::string reads(const void* address, uint32_t bytes, const Moment& now);
  std::string writes(const void* address, uint32_t bytes, const Moment& now);

 private:
  struct Access {
    bool exists = false;
    bool by_several = false;  // lanes, all in one subgroup
    bool by_subgroups = false;
    Moment moment;
  };
  struct Cell {
    Access read, write;
  };

  static bool conflicts(const Access& earlier, const Moment& now);
  size_t cell_of(const void* address) const;

  std::vector<char> bytes_;
  std::vector<Cell> cells_;
};

}  // namespace bowline::detail::vulkan::machine
