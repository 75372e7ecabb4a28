// PadGrad: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) { return Status(Code::unsupported, "PadGrad is not implemented."); }

}  // namespace

extern const OpDef op_pad_grad;
const OpDef op_pad_grad{
    .name = "PadGrad",
    .infer = infer,
};

}  // namespace bowline
