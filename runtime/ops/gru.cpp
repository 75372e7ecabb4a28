// Gru: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) { return Status(Code::unsupported, "Gru is not implemented."); }

}  // namespace

extern const OpDef op_gru;
const OpDef op_gru{
    .name = "Gru",
    .infer = infer,
};

}  // namespace bowline
