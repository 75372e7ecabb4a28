#include "shader_code.h"

#include <map>

#include "spirv.h"

namespace bowline::detail::vulkan {
namespace {

using namespace spirv;

// The operands of a switch: selector, default label, then pairs of a literal and its label. Returns
// the label that `value` reaches.
uint32_t target_of(Instruction instruction, uint32_t value) {
  for (size_t i = 3; i + 1 < instruction.size(); i += 2) {
    if (instruction[i] == value) {
      return instruction[i + 1];
    }
  }
  return instruction[2];
}

}  // namespace

std::vector<uint32_t> chosen_cases(std::span<const uint32_t> module,
                                   std::span<const uint32_t> constants) {
  std::vector<uint32_t> out(module.begin(), module.begin() + kHeaderWords);
  std::map<uint32_t, uint32_t> number_of;  // number of a specialization constant, by id
  std::map<uint32_t, uint32_t> value_of;   // value by id; all constants have 32 bits
  for_each_instruction(module, [&](Instruction all) {
    if (operation(all) == kDecorate && all[2] == kSpecId) {
      number_of[all[1]] = all[3];
    } else if (operation(all) == kSpecConstant) {
      const auto number = number_of.find(all[2]);
      const bool given = number != number_of.end() && number->second < constants.size();
      value_of[all[2]] = given ? constants[number->second] : all[3];
    }
    const auto value = operation(all) == kSwitch ? value_of.find(all[1]) : value_of.end();
    if (value == value_of.end()) {
      out.insert(out.end(), all.begin(), all.end());
    } else {
      // A switch with only a default. Unreachable blocks are valid.
      append(out, kSwitch, {all[1], target_of(all, value->second)});
    }
  });
  return out;
}

}  // namespace bowline::detail::vulkan
