// OneHot: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) { return Status(Code::unsupported, "OneHot is not implemented."); }

}  // namespace

extern const OpDef op_one_hot;
const OpDef op_one_hot{
    .name = "OneHot",
    .infer = infer,
};

}  // namespace bowline
