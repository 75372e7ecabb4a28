// GlobalAveragePool: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) {
  return Status(Code::unsupported, "GlobalAveragePool is not implemented.");
}

}  // namespace

extern const OpDef op_global_average_pool;
const OpDef op_global_average_pool{
    .name = "GlobalAveragePool",
    .infer = infer,
};

}  // namespace bowline
