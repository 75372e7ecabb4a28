// Whether this is still the process that made something.
#pragma once

#include <cstdint>

namespace bowline::detail::device {

// How many calls of fork() lie between the process that first asked and this one. Any thread.
uint32_t forks();

}  // namespace bowline::detail::device
