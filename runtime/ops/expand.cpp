// Expand: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) { return Status(Code::unsupported, "Expand is not implemented."); }

}  // namespace

extern const OpDef op_expand;
const OpDef op_expand{
    .name = "Expand",
    .infer = infer,
};

}  // namespace bowline
