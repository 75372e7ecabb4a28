// Weights of 16 bits, which optimizers round from their f32 masters.
#pragma once

#include <type_traits>

#include "compute/convert.h"
#include "kernel.h"

namespace bowline::detail::cpu {

// Writes entry `i` of the weights, input 0 with elements of type T, from its master. Weights in f32
// have no master.
template <class T>
void round_weights(const Launch& l, const ListItem& master, size_t i) {
  if constexpr (!std::is_same_v<T, float>) {
    narrow(l.threads, master.elements, master.data, reinterpret_cast<T*>(l.in[0].list[i].data));
  }
}

}  // namespace bowline::detail::cpu
