// DeviceBuffer in Python: memory of a device with a dtype and a shape.
#pragma once

#include "bowline/external.h"
#include "support.h"

namespace bowline::python {

struct PyBuffer {
  Device device;
  DeviceBuffer buffer;
  DType dtype;
  std::vector<int64_t> shape;
  void* data;  // the values, if they are in memory of the process; else null

  Tensor tensor(std::string_view name) const;
};

}  // namespace bowline::python
