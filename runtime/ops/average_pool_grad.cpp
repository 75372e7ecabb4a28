// AveragePoolGrad: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) {
  return Status(Code::unsupported, "AveragePoolGrad is not implemented.");
}

}  // namespace

extern const OpDef op_average_pool_grad;
const OpDef op_average_pool_grad{
    .name = "AveragePoolGrad",
    .infer = infer,
};

}  // namespace bowline
