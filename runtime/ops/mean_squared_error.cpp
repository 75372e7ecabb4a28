// MeanSquaredError: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) {
  return Status(Code::unsupported, "MeanSquaredError is not implemented.");
}

}  // namespace

extern const OpDef op_mean_squared_error;
const OpDef op_mean_squared_error{
    .name = "MeanSquaredError",
    .infer = infer,
};

}  // namespace bowline
