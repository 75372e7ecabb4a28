// ConvWeightGrad: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) {
  return Status(Code::unsupported, "ConvWeightGrad is not implemented.");
}

}  // namespace

extern const OpDef op_conv_weight_grad;
const OpDef op_conv_weight_grad{
    .name = "ConvWeightGrad",
    .infer = infer,
};

}  // namespace bowline
