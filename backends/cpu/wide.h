// f16 and bf16 kernels that run the f32 kernel between conversions. Operands of the node's storage
// dtype become f32 in the workspace, and results are rounded once at the end. Quantized operands
// stay quantized.
#pragma once

#include <array>

#include "base/checked.h"
#include "compute/convert.h"
#include "kernel.h"

namespace bowline::detail::cpu {

constexpr size_t kMostWideOperands = 8;

inline uint64_t wide_bytes(const Shape& shape) {
  return round_up(static_cast<uint64_t>(shape.elements()) * sizeof(float), 64);
}

// Converted operands precede the scratch memory of the f32 kernel.
inline uint64_t wide_operand_bytes(const device::NodeQuery& node) {
  if (node.type == DType::f32) {
    return 0;
  }
  uint64_t bytes = 0;
  for (const auto& in : node.inputs) {
    bytes += in.dtype == node.type && in.encoding.is_plain() ? wide_bytes(in.shape) : 0;
  }
  for (const auto& out : node.outputs) {
    bytes += out.dtype == node.type ? wide_bytes(out.shape) : 0;
  }
  return bytes;
}

template <class T, void (*kRun)(const Launch&)>
void run_narrow(const Launch& l) {
  std::array<Arg, kMostWideOperands> in{};
  std::array<Arg, kMostWideOperands> out{};
  std::byte* at = l.workspace;
  const auto take = [&](const Arg& from) {
    Arg wide = from;
    wide.data = at;
    at += wide_bytes(*from.shape);
    return wide;
  };
  for (size_t i = 0; i < l.in.size(); ++i) {
    in[i] = l.in[i];
    if (l.record.inputs[i].dtype == l.record.type && !l.is_encoded(i)) {
      in[i] = take(l.in[i]);
      widen(l.threads, static_cast<size_t>(l.in[i].elements()), l.in[i].as<const T>(), in[i].f32());
    }
  }
  for (size_t o = 0; o < l.out.size(); ++o) {
    const bool narrow = l.record.outputs[o].dtype == l.record.type;
    out[o] = narrow ? take(l.out[o]) : l.out[o];
  }
  kRun({l.record,
        {in.data(), l.in.size()},
        {out.data(), l.out.size()},
        at,
        l.constant,
        l.head,
        l.threads,
        l.iteration});
  for (size_t o = 0; o < l.out.size(); ++o) {
    if (out[o].data != l.out[o].data) {
      narrow(l.threads, static_cast<size_t>(l.out[o].elements()), out[o].f32(), l.out[o].as<T>());
    }
  }
}

template <class T, void (*kRun)(const Launch&)>
constexpr auto kRunWide = run_narrow<T, kRun>;
template <void (*kRun)(const Launch&)>
constexpr auto kRunWide<float, kRun> = kRun;

inline uint64_t no_workspace(const device::NodeQuery&, const Threads&) { return 0; }

template <uint64_t (*kWorkspace)(const device::NodeQuery&, const Threads&)>
uint64_t wide_workspace(const device::NodeQuery& node, const Threads& threads) {
  return wide_operand_bytes(node) + kWorkspace(node, threads);
}

// The kernels of an operator for f32, f16 and bf16:
// BOWLINE_CPU_WIDE_KERNELS(attention, run, workspace);
#define BOWLINE_CPU_WIDE_KERNELS(stem, kRun, kWorkspace) \
  BOWLINE_KERNELS_OF_FLOATS(stem, .run = kRunWide<T, kRun>, .workspace = wide_workspace<kWorkspace>)

}  // namespace bowline::detail::cpu
