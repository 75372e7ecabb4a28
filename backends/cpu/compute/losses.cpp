// See losses.h.
#include "compute/losses.h"

#include "compute/targets.h"

// Highway wants this order.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/losses.cpp"
#include "hwy/foreach_target.h"
#include "compute/formulas-inl.h"
#include "compute/vector-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace bowline::detail::cpu::HWY_NAMESPACE {
namespace formulas {

#define LOSS(name) HWY_INLINE F name##_loss(F x, F t, [[maybe_unused]] F p)
#define SLOPE(name) HWY_INLINE F name##_slope(F x, F t, [[maybe_unused]] F p)
#include "ops/formulas/losses.inc"
#undef LOSS
#undef SLOPE

}  // namespace formulas

using formulas::F;

// Calls use(loss, slope) with the functions of a loss.
template <class Use>
HWY_INLINE auto with_loss(const LossCall& call, Use&& use) {
  const float p = call.p;
#define BOWLINE_LOSS(name)                                                           \
  return use([p](F x, F t) HWY_ATTR { return formulas::name##_loss(x, t, F(p)).v; }, \
             [p](F x, F t) HWY_ATTR { return formulas::name##_slope(x, t, F(p)); })
  switch (call.loss) {
    case ElementLoss::mean_squared_error:
      break;
    case ElementLoss::binary_cross_entropy:
      BOWLINE_LOSS(binary_cross_entropy);
    case ElementLoss::huber:
      BOWLINE_LOSS(huber);
  }
  BOWLINE_LOSS(mean_squared_error);
#undef BOWLINE_LOSS
}

void losses(const LossCall& call, size_t n, const float* x, const float* t, float* y) {
  with_loss(call, [=](auto loss, auto) HWY_ATTR {
    for_vectors(n, [=](size_t i, auto part)
                       HWY_ATTR { part.store(loss(part.load(x + i), part.load(t + i)), y + i); });
  });
}

float sum(const LossCall& call, size_t n, const float* x, const float* t) {
  return with_loss(call, [=](auto loss, auto) HWY_ATTR {
    return sum_vectors(
        n, [=](size_t i, auto part) HWY_ATTR { return loss(part.load(x + i), part.load(t + i)); });
  });
}

void slopes(const LossCall& call, size_t n, const float* x, const float* t, float factor,
            float* dx) {
  with_loss(call, [=](auto, auto slope) HWY_ATTR {
    for_vectors(n, [=](size_t i, auto part) HWY_ATTR {
      part.store((slope(part.load(x + i), part.load(t + i)) * F(factor)).v, dx + i);
    });
  });
}

void slopes_of_each(const LossCall& call, size_t n, const float* x, const float* t,
                    const float* dloss, float* dx) {
  with_loss(call, [=](auto, auto slope) HWY_ATTR {
    for_vectors(n, [=](size_t i, auto part) HWY_ATTR {
      part.store((slope(part.load(x + i), part.load(t + i)) * F(part.load(dloss + i))).v, dx + i);
    });
  });
}

}  // namespace bowline::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bowline::detail::cpu {
void loss_of(const LossCall& f, size_t n, const float* x, const float* t, float* y) {
  BOWLINE_BEST(losses)(f, n, x, t, y);
}

float sum_of_losses(const LossCall& f, size_t n, const float* x, const float* t) {
  return BOWLINE_BEST(sum)(f, n, x, t);
}

void loss_slope(const LossCall& f, size_t n, const float* x, const float* t, float factor,
                float* dx) {
  BOWLINE_BEST(slopes)(f, n, x, t, factor, dx);
}

void loss_slope(const LossCall& f, size_t n, const float* x, const float* t, const float* dloss,
                float* dx) {
  BOWLINE_BEST(slopes_of_each)(f, n, x, t, dloss, dx);
}

}  // namespace bowline::detail::cpu
#endif  // HWY_ONCE
