// ConvInputGrad: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) {
  return Status(Code::unsupported, "ConvInputGrad is not implemented.");
}

}  // namespace

extern const OpDef op_conv_input_grad;
const OpDef op_conv_input_grad{
    .name = "ConvInputGrad",
    .infer = infer,
};

}  // namespace bowline
