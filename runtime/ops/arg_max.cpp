// ArgMax: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) { return Status(Code::unsupported, "ArgMax is not implemented."); }

}  // namespace

extern const OpDef op_arg_max;
const OpDef op_arg_max{
    .name = "ArgMax",
    .infer = infer,
};

}  // namespace bowline
