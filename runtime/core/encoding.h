// The registry of encodings: how the elements of a storage are stored. "plain" stores each as its dtype.
#pragma once

#include "core/checked.h"
#include "core/dtype.h"
#include "core/shape.h"

namespace bowline {

struct Encoding {
  const char* name;
  // Bytes of a storage of this logical dtype and shape.
  uint64_t (*bytes)(DType dtype, const Shape& shape);
};

const Encoding& plain_encoding();

// Null if there is no such encoding.
const Encoding* find_encoding(std::string_view name);

}  // namespace bowline
