// Cooperative matrices (SPV_KHR_cooperative_matrix), which the lanes of a subgroup hold together,
// or those of a workgroup (VK_NV_cooperative_matrix2).
//
// Here each lane of a subgroup has a copy of the whole matrix, one register per element. A kernel
// must not ask which elements a lane has. The matrices of a workgroup are too large for copies.
// They are in a table, in which nothing changes: each result is a new matrix.
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

bool is_about_matrices(const Operation& operation);
// True if all lanes of the workgroup have to take part in an operation on matrices.
bool is_of_workgroup(const Module& module, const Operation& operation);

// `together` is the subgroup or the workgroup, and `table` has the matrices of the workgroup.
// Returns the fault, or an empty text.
std::string operate_on_matrices(const Module& module, const Operation& operation,
                                std::span<Lane* const> together, std::vector<Elements>* table,
                                const CheckPart& check);

}  // namespace bowline::detail::vulkan::machine
