// Lion: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) { return Status(Code::unsupported, "Lion is not implemented."); }

}  // namespace

extern const OpDef op_lion;
const OpDef op_lion{
    .name = "Lion",
    .infer = infer,
};

}  // namespace bowline
