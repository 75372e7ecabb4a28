// LogSoftmaxGrad: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) {
  return Status(Code::unsupported, "LogSoftmaxGrad is not implemented.");
}

}  // namespace

extern const OpDef op_log_softmax_grad;
const OpDef op_log_softmax_grad{
    .name = "LogSoftmaxGrad",
    .infer = infer,
};

}  // namespace bowline
