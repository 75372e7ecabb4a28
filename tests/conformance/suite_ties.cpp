// Suite ties: runs the recipes of tests/ties on the device, with the CPU as second device.
#include "api/internals.h"
#include "bowline.h"
#include "conformance/suite.h"
#include "ties/suite.h"

namespace bowline::conformance {

Status run_ties(Run& run) {
  const Device device = Internals::device(run.device);
  BOWLINE_TRY_ASSIGN(const Device cpu, Device::open("cpu"));
  for (const std::span<const test::Recipe> topic : test::recipes()) {
    for (const test::Recipe& recipe : topic) {
      if (selects(run.options, recipe.id)) {
        run.one(recipe.id, recipe.id, [&] { return test::run(recipe, cpu, device); });
      }
    }
  }
  return {};
}

}  // namespace bowline::conformance
