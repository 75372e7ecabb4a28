// BinaryCrossEntropy: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) {
  return Status(Code::unsupported, "BinaryCrossEntropy is not implemented.");
}

}  // namespace

extern const OpDef op_binary_cross_entropy;
const OpDef op_binary_cross_entropy{
    .name = "BinaryCrossEntropy",
    .infer = infer,
};

}  // namespace bowline
