// Gather: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) { return Status(Code::unsupported, "Gather is not implemented."); }

}  // namespace

extern const OpDef op_gather;
const OpDef op_gather{
    .name = "Gather",
    .infer = infer,
};

}  // namespace bowline
