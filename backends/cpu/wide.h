// Kernels of f32 for operands of 16 bits: operands of the node's dtype become f32 in the workspace, and outputs 16 bits at the end.
// The workspace of the f32 kernel lies behind them. Operands of another dtype are used as they lie.
#pragma once

#include <array>

#include "compute/convert.h"
#include "core/checked.h"
#include "kernel.h"

namespace bowline::cpu {

inline uint64_t wide_bytes(const Shape& shape) {
  return round_up(static_cast<uint64_t>(shape.elements()) * sizeof(float), 64);
}

// Of all operands of 16 bits of a node.
inline uint64_t wide_bytes(const device::NodeQuery& node) {
  uint64_t bytes = 0;
  for (const auto& operands : {node.inputs, node.outputs}) {
    for (const device::Operand& o : operands) {
      bytes += o.dtype == node.type ? wide_bytes(o.shape) : 0;
    }
  }
  return bytes;
}
inline uint64_t wide_only(const device::NodeQuery& node, const Threads&) {
  return wide_bytes(node);
}
template <uint64_t (*workspace)(const device::NodeQuery& node, const Threads& threads)>
uint64_t wide_and(const device::NodeQuery& node, const Threads& threads) {
  return wide_bytes(node) + workspace(node, threads);
}

template <class T, void (*run)(const Launch& launch)>
void run_wide(const Launch& l) {
  constexpr size_t kMost = 8;
  std::array<Arg, kMost> in, out;
  std::byte* at = l.workspace;
  const auto place = [&](const device::Operand& operand, const Arg& from) {
    Arg arg = from;
    if (operand.dtype == l.record.type) {
      arg.data = at;
      at += wide_bytes(*from.shape);
    }
    return arg;
  };
  for (size_t i = 0; i < l.in.size(); ++i) {
    in[i] = place(l.record.inputs[i], l.in[i]);
    if (in[i].data != l.in[i].data) {
      widen(l.threads, static_cast<size_t>(in[i].elements()), l.in[i].as<const T>(), in[i].f32());
    }
  }
  for (size_t i = 0; i < l.out.size(); ++i) {
    out[i] = place(l.record.outputs[i], l.out[i]);
  }
  run({l.record, std::span(in).first(l.in.size()), std::span(out).first(l.out.size()), at,
       l.constant, l.head, l.threads, l.iteration});
  for (size_t i = 0; i < l.out.size(); ++i) {
    if (out[i].data != l.out[i].data) {
      narrow(l.threads, static_cast<size_t>(out[i].elements()), out[i].f32(), l.out[i].as<T>());
    }
  }
}

}  // namespace bowline::cpu
