// CumSum: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) { return Status(Code::unsupported, "CumSum is not implemented."); }

}  // namespace

extern const OpDef op_cum_sum;
const OpDef op_cum_sum{
    .name = "CumSum",
    .infer = infer,
};

}  // namespace bowline
