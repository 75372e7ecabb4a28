// An operator new whose n-th call fails.
#pragma once

#include <cstddef>

namespace bowline::test {

// Makes call number `n` from now on fail; with `all` all later calls, too.
void fail_allocation(int n, bool all);
// Makes allocations succeed again. Returns true if one failed.
bool allocations_succeed();
// Number of calls since fail_allocation().
int allocations_counted();

}  // namespace bowline::test
