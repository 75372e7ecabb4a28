// A CPU on which something happens after the n-th record of a submission.
#pragma once

#include "faults/wrapped_device.h"
#include "ties/test_devices.h"

namespace bowline::test {

struct AtRecord {
  int left = 0;  // records until `act`; 0: never
  int records = 0;
  std::function<void()> act;
};

class ActingDevice : public WrappedDevice {
 public:
  explicit ActingDevice(AtRecord& at) : WrappedDevice(open_cpu()), at_(at) {}
  void set_pause(std::function<void()> pause) override {
    inner().set_pause([this, pause] {
      ++at_.records;
      if (at_.left > 0 && --at_.left == 0) {
        at_.act();
      }
      pause();
    });
  }

 private:
  AtRecord& at_;
};

}  // namespace bowline::test
