// Bench: runs one operator on one device through the backend contract alone.
//
// Every operand lies at an offset that is an odd multiple of the device's alignment, between
// guards; bytes that are no output must be the same after the run. Outputs start as NaN. A view
// operator is not run.
#pragma once

#include "conformance/evaluate.h"
#include "device/device.h"

namespace bowline::conformance {

// The number of the record, which the error word holds after an error.
constexpr uint32_t kBenchNode = 4711;

// What came back.
struct Observed {
  std::vector<std::vector<double>> outputs;
  device::StepHead head;
  std::vector<uint64_t> words;  // bits of the step words of the operator
};

// How the operator is placed and wrapped.
struct Placement {
  std::optional<InPlace> in_place;
  // The operator runs inside a Repeat of this count, operands stepping through copies of
  // themselves; 0: outside.
  uint32_t repeat = 0;
  bool reverse = false;  // the Repeat runs backwards, and the operands that step are shifted by one
  // Operands in storages lie as rows from the middle do: at a multiple of their elements' size, not
  // of the alignment.
  bool rows = false;
  // What output 0 held before: it is a gradient, written by the rule of AccumulateGrad.
  std::optional<std::vector<double>> gradient;
};

class Bench {
 public:
  explicit Bench(std::shared_ptr<device::OpenDevice> device) : device_(std::move(device)) {}

  device::OpenDevice& device() const { return *device_; }

  // What the device says about this case.
  device::NodeAnswer query(const Case& c, std::span<const Array> inputs, const Expected& expected);
  // Errors  those of the device; internal: bytes changed that belong to no output.
  Result<Observed> run(const Case& c, std::span<const Array> inputs, const Expected& expected,
                       const Placement& placement);

 private:
  Status reserve(std::span<const uint64_t> bytes);

  std::shared_ptr<device::OpenDevice> device_;
  std::vector<std::shared_ptr<device::Block>> blocks_;  // by slot, reused from case to case
};

}  // namespace bowline::conformance
