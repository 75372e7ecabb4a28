// Runs kernels on the emulation.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "platform.h"

namespace bowline::detail::cuda_emu {

inline std::string run(unsigned blocks, unsigned threads, const std::function<void()>& kernel,
                       unsigned shared_bytes = 0) {
  return run_grid(dim3(blocks), dim3(threads), kernel, shared_bytes);
}

// Runs twice, because every second launch starts its threads and blocks in reverse.
inline void expect_error(unsigned threads, const std::function<void()>& kernel,
                         const std::string& part, unsigned shared_bytes = 0) {
  for (int i = 0; i < 2; ++i) {
    const std::string error = run(1, threads, kernel, shared_bytes);
    EXPECT_NE(error.find(part), std::string::npos) << "instead: " << error;
  }
}

}  // namespace bowline::detail::cuda_emu
