// Operator definitions by number; the table is generated from the two op lists.
#pragma once

#include "ops/op.h"

namespace bowline {

const OpDef& op_def(Op op);

// The operator with a property that one has: op_with<&OpDef::is_copy>().
template <bool OpDef::*property>
Op op_with() {
  int i = 0;
  while (!(op_def(op_at(i)).*property)) {
    ++i;
  }
  return op_at(i);
}

}  // namespace bowline
