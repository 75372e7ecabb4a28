// Tile: to come.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext&) { return Status(Code::unsupported, "Tile is not implemented."); }

}  // namespace

extern const OpDef op_tile;
const OpDef op_tile{
    .name = "Tile",
    .infer = infer,
};

}  // namespace bowline
