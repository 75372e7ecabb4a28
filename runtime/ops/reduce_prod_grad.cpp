// ReduceProdGrad: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) {
  return Status(Code::unsupported, "ReduceProdGrad is not implemented.");
}

}  // namespace

extern const OpDef op_reduce_prod_grad;
const OpDef op_reduce_prod_grad{
    .name = "ReduceProdGrad",
    .infer = infer,
};

}  // namespace bowline
