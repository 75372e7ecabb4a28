// The types and functions that formulas use (runtime/ops/formulas/README.md), for a single
// integer or bool: 32 bits, or 64 if WIDE is defined. Overflow wraps around.
#ifdef WIDE
#define F int64_t
#else
#define F int
#endif
#define M bool

#define select(m, a, b) ((m) ? F(a) : F(b))
#define less(a, b) (F(a) < F(b))
#define equal(a, b) (F(a) == F(b))
#define is_nan(x) false
#define negative(x) ((x) < 0)
#define positive(x) ((x) > 0)
#define abs_of(x) ((x) < 0 ? -(x) : (x))
F quotient_of(F a, F b) {
  const bool divides = b != F(0) && b != F(-1);  // other quotients are not defined for every a
  const F q = a / (divides ? b : F(1));
  return divides ? q : b == F(0) ? F(0) : -a;
}

#define FORWARD(name) F name##_forward(F x, F p, F q)
#define BINARY(name) F name##_binary(F a, F b)
#define COMPARE(name) M name##_compare(F a, F b)
// Gradients are only for floats.
#define GRADIENT(name) F name##_gradient(F x, F dy, F p, F q)
#define GRADIENT_A(name) F name##_gradient_a(F a, F b, F dy)
#define GRADIENT_B(name) F name##_gradient_b(F a, F b, F dy)
