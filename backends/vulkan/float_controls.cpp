#include "float_controls.h"

#include "spirv.h"

namespace bowline::detail::vulkan {

using namespace spirv;

std::vector<uint32_t> with_special_values(std::span<const uint32_t> module) {
  std::vector<uint32_t> out(module.begin(), module.begin() + kHeaderWords);
  append(out, kCapability, {kSignedZeroInfNanPreserve});
  for_each_instruction(module, [&](Instruction i) {
    out.insert(out.end(), i.begin(), i.end());
    if (operation(i) == kEntryPoint) {  // each module has one
      append(out, kExecutionMode, {i[2], kModeSignedZeroInfNanPreserve, 32});
    }
  });
  return out;
}

}  // namespace bowline::detail::vulkan
