// The types and functions that formulas use (runtime/ops/formulas/README.md), for single values.
// With OUT_truth, only the functions that comparisons use.
#define F A
#define M bool

#define select(m, a, b) ((m) ? (a) : (b))
// Compares bits, because a device may flush denormals to zero.
int rank_of(F x) {
  const int bits = floatBitsToInt(x);
  return bits < 0 ? -(bits & 0x7fffffff) : bits;
}
bool less(F a, F b) { return !is_nan(a) && !is_nan(b) && rank_of(a) < rank_of(b); }
bool equal(F a, F b) { return !is_nan(a) && !is_nan(b) && rank_of(a) == rank_of(b); }
#define COMPARE(name) M name##_compare(F a, F b)

#ifndef OUT_truth
#include "math.glsl"

bool negative(F x) { return floatBitsToUint(x) > 0x80000000u && !is_nan(x); }
bool positive(F x) { return floatBitsToInt(x) > 0 && !is_nan(x); }
#define fma_of(a, b, c) ((a) * (b) + (c))
#define abs_of(x) abs(x)
#define min_of(a, b) min(a, b)
#define max_of(a, b) max(a, b)
#define quotient_of(a, b) ((a) / (b))
#define floor_of(x) floor(x)
#define round_of(x) roundEven(x)
#define sqrt_of(x) sqrt(x)
#define exp_of(x) exp_f32(x)
#define expm1_of(x) expm1_f32(x)
#define log_of(x) log_f32(x)
#define tanh_of(x) tanh_f32(x)
#define erf_of(x) erf_f32(x)
#define sin_of(x) sin_f32(x)
#define cos_of(x) cos_f32(x)
#define pow_of(a, b) pow_f32(a, b)

// log(w) x / (w - 1), where w is the rounded 1 + x: the rounding error cancels in the division.
F log1p_of(F x) {
  precise const F w = 1.0f + x;
  precise const F rounded = w - 1.0f;  // a driver may else replace it by x
  return w == 1.0f ? x : is_infinite(w) && w > 0.0f ? w : log_f32(w) * (x / rounded);
}

F sigmoid(F x, out F rest) {
  const F e = exp_f32(-abs(x));
  const F large = 1.0f / (1.0f + e);
  const F small = e * large;
  rest = x < 0.0f ? large : small;
  return x < 0.0f ? small : large;
}

F normal_cdf(F x, out F density) {
  density = 0.398942280f * exp_f32(-0.5f * x * x);
  return normal_cdf(x);
}

// Optimizers: the types S and D are both f32. begin_step() and apply() use global variables.
#define S A
#define D A
#define STEP(name) void begin_step()
#define UPDATE(name) void apply()

#define FORWARD(name) F name##_forward(F x, F p, F q)
#define GRADIENT(name) F name##_gradient(F x, F dy, F p, F q)
#define BINARY(name) F name##_binary(F a, F b)
#define GRADIENT_A(name) F name##_gradient_a(F a, F b, F dy)
#define GRADIENT_B(name) F name##_gradient_b(F a, F b, F dy)
#endif
