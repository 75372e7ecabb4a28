// A device that runs the oracles, rounded to f32, in host memory. Tests make it wrong on purpose:
// it shows that the cases catch a wrong kernel, and it tests the runner without a backend.
#pragma once

#include <functional>

#include "conformance/evaluate.h"
#include "device/device.h"

namespace bowline::conformance {

// What one operator sees and gives; a fault changes some of it.
struct OracleCall {
  Op op;
  Attributes attributes;
  std::vector<Array> inputs;
  Step step;
  Expected result;  // after the oracle
};

struct Fault {
  std::string name;
  std::function<void(OracleCall&)> before = [](OracleCall&) {};
  std::function<void(OracleCall&)> after = [](OracleCall&) {};
  // (optional) writes one element past every output
  bool overruns = false;
};

// An open device with the name "oracles".
std::shared_ptr<device::OpenDevice> open_oracle_device(Fault fault = {});

}  // namespace bowline::conformance
