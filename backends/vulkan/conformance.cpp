#include "conformance/gaps.h"

namespace bowline::conformance {

const Gaps& gaps_vulkan();

const Gaps& gaps_vulkan() {
  static constexpr Gap never[] = {
      {"*", "*", "", "The device lacks 64-bit integers, which are optional in Vulkan.",
       "the feature shaderInt64"}};
  static constexpr Gaps gaps{never, {}};
  return gaps;
}

}  // namespace bowline::conformance
