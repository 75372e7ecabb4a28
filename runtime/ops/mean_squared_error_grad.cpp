// MeanSquaredErrorGrad: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) {
  return Status(Code::unsupported, "MeanSquaredErrorGrad is not implemented.");
}

}  // namespace

extern const OpDef op_mean_squared_error_grad;
const OpDef op_mean_squared_error_grad{
    .name = "MeanSquaredErrorGrad",
    .infer = infer,
};

}  // namespace bowline
