// Measures the time of every node of a plan with the timestamps of the device.
#pragma once

#include "exec/segment.h"

namespace bowline::detail::exec {

// During its lifetime, submissions to the device measure the time of every record.
class Clock {
 public:
  // Errors  bad_argument: another clock runs on the device.
  static Result<Clock> start(std::shared_ptr<device::OpenDevice> device);
  ~Clock();
  Clock(Clock&&) noexcept = default;
  Clock& operator=(Clock&&) = delete;

  // Adds an entry for each refresh and each node of a segment that was submitted since the start.
  void add(const Segment& segment, std::vector<NodeTime>& out) const;

 private:
  Clock() = default;
  void add(const plan::Plan& plan, const device::Recording* recording,
           std::vector<NodeTime>& out) const;
  std::shared_ptr<device::OpenDevice> device_;
  std::unique_ptr<std::vector<device::RecordingTimes>> times_;
};

}  // namespace bowline::detail::exec
