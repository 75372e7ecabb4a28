// Lstm: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) { return Status(Code::unsupported, "Lstm is not implemented."); }

}  // namespace

extern const OpDef op_lstm;
const OpDef op_lstm{
    .name = "Lstm",
    .infer = infer,
};

}  // namespace bowline
