// The dtypes that operators declare for their operands.
#include "core/operand_types.h"

#include <gtest/gtest.h>

#include "base/status.h"
#include "bowline.h"
#include "graph/op_table.h"

namespace bowline {
namespace {

constexpr DType kF32 = DType::f32;
constexpr DType kF16 = DType::f16;
constexpr DType kI32 = DType::i32;
using Types = std::vector<DType>;

std::string refusal(const char* types, const Types& inputs, const Types& outputs = {}) {
  return check_operand_types(types, "Op", inputs, outputs).message();
}

TEST(OperandTypes, ALetterIsOneDtypeEverywhere) {
  EXPECT_EQ(refusal("F -> F", {kF16, kF16}, {kF16}), "");
  EXPECT_EQ(refusal("F -> F", {kF16, kF32}), "Input 1 of Op is f32, but input 0 is f16.");
  EXPECT_EQ(refusal("F -> F", {kF16}, {kF32}), "Output 0 of Op is f32, but input 0 is f16.");
  EXPECT_EQ(refusal("-> F", {}, {kF16, kF32}), "Output 1 of Op is f32, but output 0 is f16.");
  EXPECT_EQ(refusal("A -> B", {kI32}, {kF16}), "");
}

TEST(OperandTypes, WithoutInputsThereAreNoDtypes) {
  EXPECT_TRUE(types_of_input("-> F", 0).empty());
  EXPECT_EQ(types_of_input("F -> F", 3).size(), 3u);
}

TEST(OperandTypes, NumbersAndTruthValuesAreSets) {
  EXPECT_EQ(refusal("N -> N", {DType::i8, DType::i8}, {DType::i8}), "");
  EXPECT_EQ(refusal("N -> N", {DType::boolean}),
            "Input 0 of Op is bool, not f32, f16, bf16, i8, u8, i32 or i64.");
  EXPECT_EQ(refusal("T -> T", {DType::boolean}, {DType::boolean}), "");
  EXPECT_EQ(refusal("T -> T", {DType::u8}), "Input 0 of Op is u8, not bool.");
  EXPECT_EQ(storage_type("T -> T", Types{DType::boolean}, Types{DType::boolean}), DType::boolean);
  EXPECT_EQ(output_type("N -> bool", 0, Types{kI32}), DType::boolean);
}

TEST(OperandTypes, AWordIsASetAndTheLastOneGoesOn) {
  EXPECT_EQ(refusal("F, i32 -> F", {kF32, kI32, kI32, kI32}), "");
  EXPECT_EQ(refusal("F, i32 -> F", {kF32, kI32, kF32}), "Input 2 of Op is f32, not i32.");
  EXPECT_EQ(refusal("F -> F", {kI32}), "Input 0 of Op is i32, not f32, f16 or bf16.");
  EXPECT_EQ(refusal("F -> F, f32", {kF16}, {kF16, kF16}), "Output 1 of Op is f16, not f32.");
}

TEST(OperandTypes, OutputsAndTheStorageDtypeFollow) {
  EXPECT_EQ(output_type("F, i32 -> F, f32", 0, Types{kF16, kI32}), kF16);
  EXPECT_EQ(output_type("F, i32 -> F, f32", 1, Types{kF16, kI32}), kF32);
  EXPECT_EQ(output_type("A -> B", 0, Types{kF16}), std::nullopt);
  EXPECT_EQ(storage_type("i32, F -> F", Types{kI32, kF16}, Types{kF16}), kF16);
  EXPECT_EQ(storage_type("i32 -> F", Types{kI32}, Types{kF16}), kF16);
  EXPECT_EQ(storage_type("i32 -> f32", Types{kI32}, Types{kF32}), kF32);
}

// Every operator accepts inputs of the first dtypes of its declaration, with the outputs that
// follow.
TEST(OperandTypes, EveryOperatorHasSome) {
  for (int i = 0; i < kOps; ++i) {
    const OpDef& def = op_def(op_at(i));
    SCOPED_TRACE(format("{}: {}", def.name, def.types));
    Types inputs;
    for (int k = 0; k < def.inputs + def.optional_inputs; ++k) {
      const auto set = types_of_input(def.types, static_cast<size_t>(k));
      ASSERT_FALSE(set.empty());
      inputs.push_back(set.front());
    }
    EXPECT_EQ(check_operand_types(def.types, def.name, inputs).message(), "");
    // Except operators whose attribute has the dtype, and Repeat, whose body has it.
    const Op of_attribute[] = {Op::Cast, Op::Fill, Op::OneHot, Op::Repeat};
    const bool follows = std::ranges::find(of_attribute, op_at(i)) == std::end(of_attribute);
    for (int k = 0; k < def.outputs && follows; ++k) {
      EXPECT_TRUE(output_type(def.types, k, inputs).has_value());
    }
  }
}

}  // namespace
}  // namespace bowline
