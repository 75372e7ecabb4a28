// The kernel tables that the build makes for a backend from the files of its folder (backends/README.md): one row per
// operator, one column per storage dtype.
#pragma once

#include "device/backend.h"

namespace bowline::device {

template <class Kernel>
using KernelTable = const Kernel* const[kOps][kDTypes];

// Null where there is none.
template <class Kernel>
const Kernel* find_kernel(const KernelTable<Kernel>& table, Op op, DType type) {
  return table[index_of(op)][static_cast<size_t>(type)];
}

// Why kernels that read every operand as its dtype cannot run a node; empty where they can.
inline std::string encoded_operand(const NodeQuery& node) {
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (!node.inputs[i].encoding.is_plain()) {
      return format("Input {} is stored as {}, which no kernel of {} reads.", i,
                    node.inputs[i].encoding, node.op);
    }
  }
  return "";
}

// Why `backend` has no kernel for a node: a sentence.
template <class Kernel>
std::string no_kernel(const KernelTable<Kernel>& table, std::string_view backend, Op op,
                      DType type) {
  std::string others;
  for (int t = 0; t < kDTypes; ++t) {
    if (find_kernel(table, op, static_cast<DType>(t)) != nullptr) {
      others += (others.empty() ? "" : ", ") + std::string(name_of(static_cast<DType>(t)));
    }
  }
  return others.empty()
             ? format("{} has no kernel of {}.", backend, op)
             : format("{} has no kernel of {} for {} but for {}.", backend, op, type, others);
}

}  // namespace bowline::device
