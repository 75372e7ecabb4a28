// What follows a matrix product, the attributes of FusedMatMul. Declare FOLLOW before, and include
// common.glsl. The bits of FOLLOW:
const uint kAddend = 1;  // + other
const uint kSlope = 2;   // times the derivative of Gelu at other
const uint kGelu = 4;    // Gelu. The value before it is a result, too
#include "formulas.glsl"
#include "gelu.h"

// The value before Gelu.
A sum_of(A v, A other) {
  if ((FOLLOW & kSlope) != 0) {
    return gelu_tanh_gradient(other, v, 0, 0);
  }
  return (FOLLOW & kAddend) != 0 ? v + other : v;
}
A activated(A v) { return (FOLLOW & kGelu) != 0 ? gelu_tanh_forward(v, 0, 0) : v; }
