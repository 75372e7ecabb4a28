// RmsProp: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) { return Status(Code::unsupported, "RmsProp is not implemented."); }

}  // namespace

extern const OpDef op_rms_prop;
const OpDef op_rms_prop{
    .name = "RmsProp",
    .infer = infer,
};

}  // namespace bowline
