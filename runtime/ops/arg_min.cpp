// ArgMin: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) { return Status(Code::unsupported, "ArgMin is not implemented."); }

}  // namespace

extern const OpDef op_arg_min;
const OpDef op_arg_min{
    .name = "ArgMin",
    .infer = infer,
};

}  // namespace bowline
