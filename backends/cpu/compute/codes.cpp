#include "compute/codes.h"

#include "compute/targets.h"

// Highway wants this order.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/codes.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "compute/codes-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace bowline::cpu {
namespace HWY_NAMESPACE {

void decode_a_run(const Codes& codes, size_t row, size_t first, size_t count, float* out) {
  decode_run(codes, row, first, count, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace bowline::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bowline::cpu {

HWY_EXPORT(decode_a_run);

void decode(const Codes& codes, size_t row, size_t first, size_t count, float* out) {
  HWY_DYNAMIC_DISPATCH(decode_a_run)(codes, row, first, count, out);
}

}  // namespace bowline::cpu
#endif  // HWY_ONCE
