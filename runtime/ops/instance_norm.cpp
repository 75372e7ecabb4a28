// InstanceNorm: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) {
  return Status(Code::unsupported, "InstanceNorm is not implemented.");
}

}  // namespace

extern const OpDef op_instance_norm;
const OpDef op_instance_norm{
    .name = "InstanceNorm",
    .infer = infer,
};

}  // namespace bowline
