// Huber: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) { return Status(Code::unsupported, "Huber is not implemented."); }

}  // namespace

extern const OpDef op_huber;
const OpDef op_huber{
    .name = "Huber",
    .infer = infer,
};

}  // namespace bowline
