// ReduceMax: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) { return Status(Code::unsupported, "ReduceMax is not implemented."); }

}  // namespace

extern const OpDef op_reduce_max;
const OpDef op_reduce_max{
    .name = "ReduceMax",
    .infer = infer,
};

}  // namespace bowline
