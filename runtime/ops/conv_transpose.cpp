// ConvTranspose: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) {
  return Status(Code::unsupported, "ConvTranspose is not implemented.");
}

}  // namespace

extern const OpDef op_conv_transpose;
const OpDef op_conv_transpose{
    .name = "ConvTranspose",
    .infer = infer,
};

}  // namespace bowline
