// Repeat: runs another graph, its body, a number of times.
//
//   carried_(i+1) = body(carried_i, invariant inputs, parameters of iteration i),  0 <= i < count
//
// Shapes    inputs: the carried values, then the invariant values. Outputs: the carried values
//           after the last iteration. The body keeps the shape and dtype of each carried value.
// Gradient  a Repeat that runs backwards, built by graph/gradient.cpp, which has the body.
// Reference none, because the body is not part of the attributes. Tests check the Program that a
//           backend runs, with other operators inside a Repeat.
#include "ops/op.h"

namespace bowline::detail::repeat_op {
namespace {

Status infer(InferContext& c) {
  const auto& t = c.attributes<RepeatAttributes>();
  BOWLINE_REQUIRE(t.count() >= 1 && t.count() <= 65536, "The count ({}) lies outside 1..65536.",
                  t.count());
  BOWLINE_REQUIRE(t.carried() <= static_cast<uint32_t>(c.inputs()),
                  "The Repeat carries {} values, but has {} inputs.", t.carried(), c.inputs());
  const auto* lists = t.parameters();
  for (flatbuffers::uoffset_t i = 0; lists != nullptr && i < lists->size(); ++i) {
    const auto* items = lists->Get(i)->parameters();
    const size_t n = items == nullptr ? 0 : items->size();
    BOWLINE_REQUIRE(n == t.count(), "Parameter list {} has {} entries for {} iterations.", i, n,
                    t.count());
  }
  return {};
}

}  // namespace

extern const OpDef op_repeat{
    .name = "Repeat",
    .inputs = 0,
    .role = OpRole::repeat,
    .infer = infer,
};

}  // namespace bowline::detail::repeat_op
