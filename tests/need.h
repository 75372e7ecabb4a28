// Requirements of a test that a machine may not meet. The test is then skipped with a reason. With
// BOWLINE_STRICT=1 it fails.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>

#include "bowline.h"

namespace bowline::test {

inline bool strict() {
  const char* value = std::getenv("BOWLINE_STRICT");
  return value != nullptr && std::strcmp(value, "1") == 0;
}

// Backends that need no hardware. tests/CMakeLists.txt lists the backends that this machine must
// have.
inline bool is_expected(const DeviceInfo& d) {
  std::istringstream names(BOWLINE_TESTED_BACKENDS);
  const std::string backend = d.name.substr(0, d.name.find(':'));
  for (std::string name; names >> name;) {
    if (name == backend) {
      return true;
    }
  }
  return false;
}

// Lists the devices once per process, because listing loads the drivers.
inline const std::vector<DeviceInfo>& listed_devices() {
  static const std::vector<DeviceInfo> devices = Device::list();
  return devices;
}

// Returns the reason why `name` cannot be used here, or an empty text if it can.
inline std::string why_missing(const std::string& name) {
  for (const DeviceInfo& d : listed_devices()) {
    if (d.name == name) {
      return d.unusable.empty() ? "" : "Device " + name + " cannot be used here: " + d.unusable;
    }
  }
  return "This build has no device " + name + ".";
}

}  // namespace bowline::test

// For a test or its SetUp. Continues if `text` is empty. Otherwise `text` is the reason for the
// skip.
#define BOWLINE_NEED(text)                                    \
  if (const std::string missing = (text); !missing.empty()) { \
    if (::bowline::test::strict()) {                          \
      FAIL() << missing;                                      \
    }                                                         \
    GTEST_SKIP() << missing;                                  \
  }                                                           \
  static_assert(true)
