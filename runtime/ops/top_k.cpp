// TopK: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) { return Status(Code::unsupported, "TopK is not implemented."); }

}  // namespace

extern const OpDef op_top_k;
const OpDef op_top_k{
    .name = "TopK",
    .infer = infer,
};

}  // namespace bowline
