#include "compute/targets.h"

// targets.h comes before any Highway header.
#include "hwy/targets.h"

namespace bowline::cpu {

const char* instruction_set() {
  const int64_t usable = hwy::SupportedTargets() & HWY_TARGETS;  // the best has the lowest bit
  return hwy::TargetName(usable & -usable);
}

}  // namespace bowline::cpu
