// Conv: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) { return Status(Code::unsupported, "Conv is not implemented."); }

}  // namespace

extern const OpDef op_conv;
const OpDef op_conv{
    .name = "Conv",
    .infer = infer,
};

}  // namespace bowline
