// BatchNormGrad: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) {
  return Status(Code::unsupported, "BatchNormGrad is not implemented.");
}

}  // namespace

extern const OpDef op_batch_norm_grad;
const OpDef op_batch_norm_grad{
    .name = "BatchNormGrad",
    .infer = infer,
};

}  // namespace bowline
