// Operator definitions by number; the table is generated from the two op lists.
#pragma once

#include "ops/op.h"

namespace bowline {

const OpDef& op_def(Op op);

}  // namespace bowline
