// Operator definitions by number; the table is generated from the two op lists.
#pragma once

#include "ops/op.h"

namespace bowline {

const OpDef& op_def(Op op);

// Returns the only operator with a role.
inline Op op_with(OpRole role) {
  int i = 0;
  while (op_def(op_at(i)).role != role) {
    ++i;
  }
  return op_at(i);
}

}  // namespace bowline
