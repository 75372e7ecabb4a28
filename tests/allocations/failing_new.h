// operator new of which the n-th call fails.
#pragma once

#include <cstddef>

namespace bowline::test {

// Call number `n` from now on fails; with `all` every later one fails too.
void fail_allocation(int n, bool all);
// Allocations succeed again. Returns whether one failed.
bool allocations_succeed();
// Calls since fail_allocation().
int allocations_counted();

}  // namespace bowline::test
