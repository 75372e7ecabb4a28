// AveragePool: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) { return Status(Code::unsupported, "AveragePool is not implemented."); }

}  // namespace

extern const OpDef op_average_pool;
const OpDef op_average_pool{
    .name = "AveragePool",
    .infer = infer,
};

}  // namespace bowline
