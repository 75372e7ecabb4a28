// Bench: runs one operator on one device and uses only the backend contract.
//
// Every operand is at an odd multiple of the alignment of the device, between guards. Bytes that
// belong to no output must not change. Outputs start as NaN. View operators are not run.
#pragma once

#include "conformance/evaluate.h"
#include "device/device.h"

namespace bowline::conformance {

// The index of the record. The error word contains it after an error.
constexpr uint32_t kBenchNode = 4711;

// The results of a run.
struct Observed {
  std::vector<std::vector<double>> outputs;
  device::StepHead head;
  std::vector<uint64_t> words;  // bits of the per-step scalars of the operator
};

// The placement of the operator and its operands.
struct Placement {
  std::optional<InPlace> in_place;
  // If not 0, the operator runs inside a Repeat with this count, and its operands step through
  // copies of themselves.
  uint32_t repeat = 0;
  bool reverse = false;  // the Repeat runs backwards, and the operands that step are shifted by one
  // Places operands in storages like rows from the middle of a storage: aligned to the size of an
  // element, not to the alignment of the device.
  bool rows = false;
  // The old value of output 0. The output is then a gradient that the rule of AccumulateGrad
  // writes.
  std::optional<std::vector<double>> gradient;
};

class Bench {
 public:
  explicit Bench(std::shared_ptr<device::OpenDevice> device) : device_(std::move(device)) {}

  device::OpenDevice& device() const { return *device_; }

  // Returns the answer of the device about this case.
  device::NodeAnswer query(const Case& c, std::span<const Array> inputs, const Expected& expected);
  // Errors  the errors of the device; internal: bytes changed that belong to no output.
  Result<Observed> run(const Case& c, std::span<const Array> inputs, const Expected& expected,
                       const Placement& placement);

 private:
  Status reserve(std::span<const uint64_t> bytes);

  std::shared_ptr<device::OpenDevice> device_;
  std::vector<std::shared_ptr<device::Block>> blocks_;  // by slot, reused from case to case
};

}  // namespace bowline::conformance
