// The time of every node of a plan, from the device's timestamps.
#pragma once

#include "exec/segment.h"

namespace bowline::detail::exec {

// While it lives, submissions of the device run with a clock around every record.
class Clock {
 public:
  // Errors  bad_argument: another clock runs on the device.
  static Result<Clock> start(std::shared_ptr<device::OpenDevice> device);
  ~Clock();
  Clock(Clock&&) noexcept = default;
  Clock& operator=(Clock&&) = delete;

  // Adds a row per refresh and per node of a segment, if it was submitted since.
  void add(const Segment& segment, std::vector<NodeTime>& out) const;

 private:
  Clock() = default;
  void add(const plan::Plan& plan, const device::Recording* recording,
           std::vector<NodeTime>& out) const;
  std::shared_ptr<device::OpenDevice> device_;
  std::unique_ptr<std::vector<device::RecordingTimes>> times_;
};

}  // namespace bowline::detail::exec
