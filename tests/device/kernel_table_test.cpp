// The message of a backend for a node without a kernel.
#include "device/kernel_table.h"

#include <gtest/gtest.h>

namespace bowline::detail::device {
namespace {

struct FakeKernel {
  uint32_t encoded = 0;
};

class KernelTables : public testing::Test {
 protected:
  KernelTables() {
    const auto enter = [&](Op op, DType type) {
      table_[index_of(op)][static_cast<size_t>(type)] = &kernel_;
    };
    enter(Op::Embedding, DType::f32);
    enter(Op::Embedding, DType::f16);
  }
  std::string refusal(Op op, DType type) const {
    const Attributes none = Attributes::of(NoAttributesT{});
    return kernel_of(table_, "toy", {op, type, none, {}, {}}).status().message();
  }

  FakeKernel kernel_;
  const FakeKernel* table_[kOps][kDTypes] = {};
};

TEST_F(KernelTables, NameWhatIsNotThere) {
  EXPECT_EQ(refusal(Op::Embedding, DType::f16), "");
  EXPECT_EQ(refusal(Op::Embedding, DType::bf16),
            "toy has no kernel of Embedding for bf16, only for f32, f16.");
  EXPECT_EQ(refusal(Op::Rope, DType::f32), "toy has no kernel of Rope.");
}

}  // namespace
}  // namespace bowline::detail::device
