// GroupNorm: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) { return Status(Code::unsupported, "GroupNorm is not implemented."); }

}  // namespace

extern const OpDef op_group_norm;
const OpDef op_group_norm{
    .name = "GroupNorm",
    .infer = infer,
};

}  // namespace bowline
