// GroupNormGrad: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) {
  return Status(Code::unsupported, "GroupNormGrad is not implemented.");
}

}  // namespace

extern const OpDef op_group_norm_grad;
const OpDef op_group_norm_grad{
    .name = "GroupNormGrad",
    .infer = infer,
};

}  // namespace bowline
