// LstmGrad: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) { return Status(Code::unsupported, "LstmGrad is not implemented."); }

}  // namespace

extern const OpDef op_lstm_grad;
const OpDef op_lstm_grad{
    .name = "LstmGrad",
    .infer = infer,
};

}  // namespace bowline
