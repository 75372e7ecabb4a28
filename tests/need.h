// What a test needs and a machine may lack. A test says so and is skipped; where BOWLINE_STRICT is
// 1 it fails.
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

// Backends that need no hardware, so that each machine can be told to have them; by
// tests/CMakeLists.txt.
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

// Asked once: it loads drivers.
inline const std::vector<DeviceInfo>& listed_devices() {
  static const std::vector<DeviceInfo> devices = Device::list();
  return devices;
}

// Why `name` cannot be used here; empty if it can.
inline std::string why_missing(const std::string& name) {
  for (const DeviceInfo& d : listed_devices()) {
    if (d.name == name) {
      return d.unusable.empty() ? "" : "Device " + name + " cannot be used here: " + d.unusable;
    }
  }
  return "This build has no device " + name + ".";
}

}  // namespace bowline::test

// In a test or its SetUp: goes on if the text is empty. It says what is missing.
#define BOWLINE_NEED(text)                                    \
  if (const std::string missing = (text); !missing.empty()) { \
    if (::bowline::test::strict()) {                          \
      FAIL() << missing;                                      \
    }                                                         \
    GTEST_SKIP() << missing;                                  \
  }                                                           \
  static_assert(true)
