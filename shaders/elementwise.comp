//! variants
#version 460
#extension GL_GOOGLE_include_directive : require
// y[i] = f(a[i], b[i]) for operands of one shape; b is not read by functions of one operand.
#include "common.glsl"
#include "math.glsl"

layout(constant_id = 1) const uint FUNCTION = 0;  // as in kernels/elementwise.cpp

layout(push_constant, scalar) uniform Push {
  Floats a;
  Floats b;
  Floats y;
  uint n;
  uint per_group;
  float factor;
} p;

const float kGeluInner = 0.79788456;  // sqrt(2 / pi)
const float kGeluCubic = 0.044715;
const float kNormalPeak = 0.39894228;  // 1 / sqrt(2 pi)

A gelu_tanh_grad(A x, A dy) {
  const A t = tanh_f32(kGeluInner * (x + kGeluCubic * x * x * x));
  const A inner = kGeluInner * (1 + 3 * kGeluCubic * x * x);
  return dy * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner);
}

// By its bits: a device may take a denormal for zero.
bool is_negative(A x) { return floatBitsToInt(x) < 0; }

A compute(uint i) {
  const A x = p.a.v[i];
  switch (FUNCTION) {
    case 0: return x + p.b.v[i];
    case 1: return x - p.b.v[i];
    case 2: return x * p.b.v[i];
    case 3: return isnan(x) || !is_negative(x) ? x : 0;
    case 4: return times_sigmoid(x, x);
    case 5: return x * normal_cdf(x);
    case 6: return 0.5 * x * (1 + tanh_f32(kGeluInner * (x + kGeluCubic * x * x * x)));
    case 7: return tanh_f32(x);
    case 8: return x * p.factor;
    case 9: return isnan(x) || floatBitsToInt(x) <= 0 ? 0 : p.b.v[i];  // a = x, b = dy from here on
    case 10: {
      const A s = sigmoid_f32(x);
      return times_sigmoid(p.b.v[i] * (1 + x * (1 - s)), x);
    }
    case 11: return p.b.v[i] * (normal_cdf(x) + x * kNormalPeak * exp_f32(-0.5 * x * x));
    default: return gelu_tanh_grad(x, p.b.v[i]);
  }
}

void main() {
  const uint first = group_index() * p.per_group;
  const uint end = min(first + p.per_group, p.n);
  for (uint i = first + gl_LocalInvocationID.x; i < end; i += gl_WorkGroupSize.x) {
    p.y.v[i] = compute(i);
  }
}
