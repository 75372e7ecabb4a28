// ReduceProd: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) { return Status(Code::unsupported, "ReduceProd is not implemented."); }

}  // namespace

extern const OpDef op_reduce_prod;
const OpDef op_reduce_prod{
    .name = "ReduceProd",
    .infer = infer,
};

}  // namespace bowline
