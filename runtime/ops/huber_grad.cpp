// HuberGrad: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) { return Status(Code::unsupported, "HuberGrad is not implemented."); }

}  // namespace

extern const OpDef op_huber_grad;
const OpDef op_huber_grad{
    .name = "HuberGrad",
    .infer = infer,
};

}  // namespace bowline
