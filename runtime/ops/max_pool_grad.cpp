// MaxPoolGrad: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) { return Status(Code::unsupported, "MaxPoolGrad is not implemented."); }

}  // namespace

extern const OpDef op_max_pool_grad;
const OpDef op_max_pool_grad{
    .name = "MaxPoolGrad",
    .infer = infer,
};

}  // namespace bowline
