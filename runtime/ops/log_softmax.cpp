// LogSoftmax: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) { return Status(Code::unsupported, "LogSoftmax is not implemented."); }

}  // namespace

extern const OpDef op_log_softmax;
const OpDef op_log_softmax{
    .name = "LogSoftmax",
    .infer = infer,
};

}  // namespace bowline
