// Pad: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) { return Status(Code::unsupported, "Pad is not implemented."); }

}  // namespace

extern const OpDef op_pad;
const OpDef op_pad{
    .name = "Pad",
    .infer = infer,
};

}  // namespace bowline
