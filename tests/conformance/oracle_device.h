// A device that runs the oracles in host memory and rounds their results to f32. Tests inject
// faults into it to show that the cases detect a wrong kernel. It also tests the runner without a
// backend.
#pragma once

#include <functional>

#include "conformance/evaluate.h"
#include "device/device.h"

namespace bowline::conformance {

// The arguments and results of one operator. A fault changes some of them.
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
  // (optional) Writes one element behind every output.
  bool overruns = false;
};

// Opens a device with the name "oracles".
std::shared_ptr<device::OpenDevice> open_oracle_device(Fault fault = {});

}  // namespace bowline::conformance
