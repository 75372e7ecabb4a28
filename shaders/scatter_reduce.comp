//! variants T=f32,f16,bf16,i8,u8,i32,i64
// y[.., indices[.., i, ..], ..] = f(itself, updates[.., i, ..]) in increasing order of i. f16 and
// bf16 data are f32 here.
#include "common.glsl"
#include "index.glsl"
#include "number.glsl"
#include "step.glsl"

layout(constant_id = 2) const uint REDUCTION = 1;  // of the enum ScatterReduction
const uint ADD = 1;
const uint MUL = 2;
const uint MAX = 3;

#if defined(T_f16) || defined(T_bf16)
#define Data Floats
#define own(y, at) y.v[at]
#define keep(y, at, value) y.v[at] = value
#else
#define Data Numbers
#define own(y, at) load(y, at)
#define keep(y, at, value) store(y, at, value)
#endif
#define Updates Numbers

// NaN is kept.
void join(Data y, uint at, Updates updates, uint from) {
  const N a = own(y, at);
  const N b = load(updates, from);
  if (REDUCTION == ADD) {
    keep(y, at, sum_of(a, b));
  } else if (REDUCTION == MUL) {
    keep(y, at, product_of(a, b));
  } else if (REDUCTION == MAX ? before(order_of(a, kNanLast), order_of(b, kNanLast))
                              : before(order_of(b, kNanFirst), order_of(a, kNanFirst))) {
    keep(y, at, b);
  }
}
#include "scatter.glsl"
