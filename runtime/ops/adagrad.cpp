// Adagrad: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) { return Status(Code::unsupported, "Adagrad is not implemented."); }

}  // namespace

extern const OpDef op_adagrad;
const OpDef op_adagrad{
    .name = "Adagrad",
    .infer = infer,
};

}  // namespace bowline
