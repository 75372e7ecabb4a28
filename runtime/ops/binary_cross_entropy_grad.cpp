// BinaryCrossEntropyGrad: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) {
  return Status(Code::unsupported, "BinaryCrossEntropyGrad is not implemented.");
}

}  // namespace

extern const OpDef op_binary_cross_entropy_grad;
const OpDef op_binary_cross_entropy_grad{
    .name = "BinaryCrossEntropyGrad",
    .infer = infer,
};

}  // namespace bowline
