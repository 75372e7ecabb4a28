// Requirements of a test that a machine may not meet. The test is then skipped with a reason. With
// BOWLINE_STRICT=1 it fails.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <string>

#include "bowline.h"
#include "device/device.h"

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

// Lists the devices of a backend, with names. Asks it once per process, because it loads drivers.
inline const std::vector<DeviceInfo>& devices_of(const detail::device::Backend& backend) {
  static std::map<std::string_view, std::vector<DeviceInfo>> known;
  const auto [at, is_new] = known.try_emplace(backend.name());
  if (is_new) {
    at->second = backend.enumerate();
    for (size_t i = 0; i < at->second.size(); ++i) {
      at->second[i].name = backend.name();
      at->second[i].name += backend.single() ? "" : ":" + std::to_string(i);
    }
  }
  return at->second;
}

// Returns the reason why `name` cannot be used here, or an empty text if it can.
inline std::string why_missing(const std::string& name) {
  for (const detail::device::Backend* backend : detail::device::backends()) {
    if (backend->name() != name.substr(0, name.find(':'))) {
      continue;
    }
    for (const DeviceInfo& d : devices_of(*backend)) {
      if (d.name == name) {
        return d.unusable.empty() ? "" : "Device " + name + " cannot be used here: " + d.unusable;
      }
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
