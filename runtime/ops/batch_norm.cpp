// BatchNorm: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) { return Status(Code::unsupported, "BatchNorm is not implemented."); }

}  // namespace

extern const OpDef op_batch_norm;
const OpDef op_batch_norm{
    .name = "BatchNorm",
    .infer = infer,
};

}  // namespace bowline
