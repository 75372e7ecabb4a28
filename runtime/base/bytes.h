// Numbers in files.
#pragma once

#include <cstddef>
#include <cstring>

namespace bowline {

// A number at any address.
template <class T>
T load(const std::byte* from) {
  T out;
  std::memcpy(&out, from, sizeof(out));
  return out;
}

}  // namespace bowline
