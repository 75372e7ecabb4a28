// NegativeLogLikelihood: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) {
  return Status(Code::unsupported, "NegativeLogLikelihood is not implemented.");
}

}  // namespace

extern const OpDef op_negative_log_likelihood;
const OpDef op_negative_log_likelihood{
    .name = "NegativeLogLikelihood",
    .infer = infer,
};

}  // namespace bowline
