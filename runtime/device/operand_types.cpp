#include "device/operand_types.h"

namespace bowline::device {

std::string refusal_of(const NodeQuery& node, const OperandTypes& types) {
  std::string out;
  const DType moved = node.inputs.empty() ? DType::f32 : node.inputs[0].dtype;
  const auto check = [&](std::span<const Operand> operands, std::string_view kind,
                         uint32_t indices) {
    for (size_t i = 0; i < operands.size() && out.empty(); ++i) {
      const bool index = i < 32 && (indices >> i & 1) != 0;
      const DType type = types.bytes ? moved : index ? DType::i32 : DType::f32;
      if (operands[i].dtype != type) {
        out = format("{} {} is {}; the kernel takes {}.", kind, i, operands[i].dtype, type);
      }
    }
  };
  check(node.inputs, "Input", types.indices);
  check(node.outputs, "Output", 0);
  return out;
}

}  // namespace bowline::device
