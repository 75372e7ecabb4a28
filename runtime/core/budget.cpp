#include "core/budget.h"

#include "base/checked.h"

namespace bowline {
namespace {

// 0 means no limit.
template <class T>
bool exceeds(T spent, T limit) {
  return limit != 0 && spent > limit;
}

// The sum, or the largest value on overflow.
uint64_t saturated(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  return checked_add(a, b, sum) ? sum : UINT64_MAX;
}

}  // namespace

Budget Budget::of_file(uint64_t table_bytes) {
  constexpr uint64_t kBytes = uint64_t{96} << 20;
  constexpr uint64_t kBytesPerByte = 256;
  constexpr uint64_t kNodeBytes = 16;  // the smallest node in a file
  uint64_t bytes = 0;
  const bool fits = checked_mul(table_bytes, kBytesPerByte, bytes);
  return {saturated(kBytes, fits ? bytes : UINT64_MAX), 64 + table_bytes / kNodeBytes, 0};
}

Budget Budget::of_plan() { return {0, uint64_t{1} << 20, 60}; }

Status Meter::spend(uint64_t bytes, uint64_t nodes) {
  bytes_ = saturated(bytes_, bytes);
  nodes_ = saturated(nodes_, nodes);
  BOWLINE_REQUIRE_CODE(!exceeds(bytes_, budget_.bytes), Code::over_budget,
                       "{} bytes of memory exceed the budget of {}.", bytes_, budget_.bytes);
  BOWLINE_REQUIRE_CODE(!exceeds(nodes_, budget_.nodes), Code::over_budget,
                       "{} nodes exceed the budget of {}.", nodes_, budget_.nodes);
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin_;
  BOWLINE_REQUIRE_CODE(!exceeds(spent.count(), budget_.seconds), Code::over_budget,
                       "{} seconds exceed the budget of {}.", spent.count(), budget_.seconds);
  return {};
}

}  // namespace bowline
