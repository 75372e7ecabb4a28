// Windows in the format of shaders/lib/windows.glsl.
#pragma once

#include "core/windows.h"
#include "kernel.h"

namespace bowline::detail::vulkan {

inline uint32_t window_table(Launch& l, const Windows& w) {
  std::vector<uint32_t> words;
  for (const WindowAxis& a : w.axis) {
    for (const int64_t word : {a.in, a.out, a.window, a.stride, a.dilation, a.pad, a.pad_end}) {
      words.push_back(static_cast<uint32_t>(word));
    }
  }
  return l.table(words);
}

// Iterations of three nested loops over the window.
inline int64_t window_iterations(const Windows& w) {
  return w.axis[0].window * (1 + w.axis[1].window * (1 + w.axis[2].window));
}

}  // namespace bowline::detail::vulkan
