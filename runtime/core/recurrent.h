// The sizes of a recurrent layer, and of the buffers in which a GPU passes its states.
#pragma once

#include "base/checked.h"
#include "core/attributes.h"
#include "core/shape.h"

namespace bowline {

struct RecurrentLayer {
  uint64_t steps = 0;
  uint32_t batch = 0;
  uint32_t units = 0;
  uint32_t gates = 0;  // 4 of an Lstm, 3 of a Gru
  bool reverse = false;
  bool reset_after = true;  // of a Gru

  // The step that runs after i others.
  constexpr uint64_t at(uint64_t i) const { return reverse ? steps - 1 - i : i; }
  constexpr uint64_t state() const { return uint64_t{batch} * units; }
};

// Of an Lstm, a Gru or a gradient of them (device::Record or device::NodeQuery).
template <class Node>
RecurrentLayer recurrent_layer_of(const Node& node) {
  const Shape& gates = node.inputs[0].shape;
  const Shape& w = node.inputs[node.op == Op::GruGrad ? 2 : 1].shape;
  RecurrentLayer layer{static_cast<uint64_t>(gates[0]), static_cast<uint32_t>(gates[1]),
                       static_cast<uint32_t>(w[1])};
  if (node.op == Op::Lstm || node.op == Op::LstmGrad) {
    layer.gates = 4;
    layer.reverse = node.attributes.template as<LstmAttributes>().reverse();
  } else {
    const auto& t = node.attributes.template as<GruAttributes>();
    layer.gates = 3;
    layer.reverse = t.reverse();
    layer.reset_after = t.reset_after();
  }
  return layer;
}

// The distance of buffers of `floats` values.
inline uint64_t buffer_bytes(uint64_t floats) { return round_up(floats * sizeof(float), 256); }

}  // namespace bowline
