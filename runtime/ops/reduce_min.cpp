// ReduceMin: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) { return Status(Code::unsupported, "ReduceMin is not implemented."); }

}  // namespace

extern const OpDef op_reduce_min;
const OpDef op_reduce_min{
    .name = "ReduceMin",
    .infer = infer,
};

}  // namespace bowline
