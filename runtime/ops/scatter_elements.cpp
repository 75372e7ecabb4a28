// ScatterElements: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) {
  return Status(Code::unsupported, "ScatterElements is not implemented.");
}

}  // namespace

extern const OpDef op_scatter_elements;
const OpDef op_scatter_elements{
    .name = "ScatterElements",
    .infer = infer,
};

}  // namespace bowline
