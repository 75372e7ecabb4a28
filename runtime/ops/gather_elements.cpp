// GatherElements: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) {
  return Status(Code::unsupported, "GatherElements is not implemented.");
}

}  // namespace

extern const OpDef op_gather_elements;
const OpDef op_gather_elements{
    .name = "GatherElements",
    .infer = infer,
};

}  // namespace bowline
