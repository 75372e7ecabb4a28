// Cooperative matrices (SPV_KHR_cooperative_matrix), which the lanes of a subgroup hold together.
//
// Here each lane has a copy of the whole matrix, one register per element. A kernel must not ask
// which elements a lane has.
#pragma once

#include <functional>

#include "group_operations.h"

namespace bowline::detail::vulkan::machine {

// Instructions that the headers of Debian 12 do not name.
enum : uint16_t {
  kTypeMatrix = 4456,
  kLoadMatrix = 4457,
  kStoreMatrix = 4458,
  kMultiplyMatrices = 4459,
};

// Calls check(address, bytes, writes) for each part of memory; it returns false at a fault.
using CheckPart = std::function<bool(char* address, uint32_t bytes, bool writes)>;

// Returns the fault, or an empty text.
std::string operate_on_matrices(const Module& module, const Operation& operation,
                                std::span<Lane* const> together, const CheckPart& check);

}  // namespace bowline::detail::vulkan::machine
