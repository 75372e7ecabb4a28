// Detects fork(): whether an object was made in this process or in a parent process.
#pragma once

#include <cstdint>

namespace bowline::detail::device {

// Returns the number of fork() calls between the first process that called forks() and this
// process. Threads: any thread.
uint32_t forks();

}  // namespace bowline::detail::device
