// NegativeLogLikelihoodGrad: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) {
  return Status(Code::unsupported, "NegativeLogLikelihoodGrad is not implemented.");
}

}  // namespace

extern const OpDef op_negative_log_likelihood_grad;
const OpDef op_negative_log_likelihood_grad{
    .name = "NegativeLogLikelihoodGrad",
    .infer = infer,
};

}  // namespace bowline
