// GruGrad: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) { return Status(Code::unsupported, "GruGrad is not implemented."); }

}  // namespace

extern const OpDef op_gru_grad;
const OpDef op_gru_grad{
    .name = "GruGrad",
    .infer = infer,
};

}  // namespace bowline
