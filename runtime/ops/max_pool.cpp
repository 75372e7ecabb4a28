// MaxPool: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) { return Status(Code::unsupported, "MaxPool is not implemented."); }

}  // namespace

extern const OpDef op_max_pool;
const OpDef op_max_pool{
    .name = "MaxPool",
    .infer = infer,
};

}  // namespace bowline
