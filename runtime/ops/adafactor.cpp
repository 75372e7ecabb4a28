// Adafactor: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) { return Status(Code::unsupported, "Adafactor is not implemented."); }

}  // namespace

extern const OpDef op_adafactor;
const OpDef op_adafactor{
    .name = "Adafactor",
    .infer = infer,
};

}  // namespace bowline
