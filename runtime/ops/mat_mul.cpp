// MatMul: matrix products, batched over the leading axes.
//
//   y[.., m, n] = sum over k of a'[.., m, k] * b'[.., k, n]
//   a' is a; with transpose_a, it is a with its last two axes swapped. b' likewise.
//
// Shapes    a [..., M, K], b [..., K, N] (transposed [..., K, M] and [..., N, K])  ->  y [..., M,
//           N]. Rank >= 2; the batch axes broadcast by the rules of NumPy.
// Numerics  accumulated in f32. If K = 0, y is 0.
// Quantized frozen a and b may be quantized; kernels dequantize them while reading.
// Gradient  two MatMuls, summed over the broadcast batch axes. If b is a single matrix, the rows of
//           all batches of a form one matrix, so that the product includes the sum over the batch.
#include "ops/build.h"
#include "ops/counted.h"
#include "ops/index.h"
#include "ops/op.h"

namespace bowline::detail::mat_mul_op {
namespace {

struct Sizes {
  int64_t m, k, n;
  Shape batch_a, batch_b;
};

// The sizes m, k, n of the last two axes of a and b. `k_of_b` returns the k of b.
Sizes sizes_of(const MatMulAttributes& t, const Shape& a, const Shape& b, int64_t& k_of_b) {
  const auto last = [](const Shape& s, bool transposed, int i) {
    return s[s.rank() - 2 + (transposed ? 1 - i : i)];
  };
  const auto batch = [](const Shape& s) {
    return Shape(s.dims().first(static_cast<size_t>(s.rank() - 2)));
  };
  k_of_b = last(b, t.transpose_b(), 0);
  return {last(a, t.transpose_a(), 0), last(a, t.transpose_a(), 1), last(b, t.transpose_b(), 1),
          batch(a), batch(b)};
}

Status infer(InferContext& c) {
  for (const int i : {0, 1}) {
    BOWLINE_REQUIRE(c.in(i).rank() >= 2, "Input {} has rank {}, below 2.", i, c.in(i).rank());
  }
  int64_t k_of_b = 0;
  const Sizes s = sizes_of(c.attributes<MatMulAttributes>(), c.in(0), c.in(1), k_of_b);
  BOWLINE_REQUIRE(s.k == k_of_b, "The inner dims of a {} and b {} differ ({} and {}).", c.in(0),
                  c.in(1), s.k, k_of_b);
  BOWLINE_TRY_ASSIGN(Shape y, broadcast(s.batch_a, s.batch_b));
  y.push_back(s.m);
  y.push_back(s.n);
  return c.out(0, y);
}

// Reshapes the rows of all batches to one matrix.
GradientValue as_matrix(GradientContext& c, GradientValue v) {
  const Shape& s = c.shape(v);
  return reshaped(c, v, Shape{s.rows(), s.back()});
}

// dA = dY B^T and dB = A^T dY, where A and B are the operands of the product. A transposed input
// gets the transposed gradient.
Status gradient(GradientContext& c) {
  const bool ta = c.attributes<MatMulAttributes>().transpose_a();
  const bool tb = c.attributes<MatMulAttributes>().transpose_b();
  GradientValue a = c.in(0), dy = c.dout(0);
  const GradientValue b = c.in(1);
  if (c.needs(0)) {
    const GradientValue d = ta ? multiplied(c, b, dy, tb, true) : multiplied(c, dy, b, false, !tb);
    BOWLINE_TRY(c.din(0, summed_to(c, d, c.shape(a))));
  }
  if (c.needs(1)) {
    if (c.shape(b).rank() == 2 && !ta) {
      a = as_matrix(c, a);
      dy = as_matrix(c, dy);
    }
    const GradientValue d = tb ? multiplied(c, dy, a, true, ta) : multiplied(c, a, dy, !ta, false);
    BOWLINE_TRY(c.din(1, summed_to(c, d, c.shape(b))));
  }
  return {};
}

TransposedInput with_transposed(const Attributes& attributes, int i) {
  const auto& t = attributes.as<MatMulAttributes>();
  return {Op::MatMul, mat_mul_attributes(t.transpose_a() != (i == 0), t.transpose_b() != (i == 1))};
}

Status counted_axes(CountedContext& c) {
  const auto& t = c.attributes<MatMulAttributes>();
  BOWLINE_TRY(counted::broadcast(c, 2, 2));
  const int a = c.in(0).rank() - 2, b = c.in(1).rank() - 2, y = c.out(0).rank() - 2;
  const int sum_a = a + (t.transpose_a() ? 0 : 1), sum_b = b + (t.transpose_b() ? 1 : 0);
  BOWLINE_TRY(counted::common(c, {{0, sum_a}, {1, sum_b}}).status());
  c.mask(0, sum_a, 0);
  c.mask(1, sum_b, 0);
  c.count(0, y, c.dim(0, a + (t.transpose_a() ? 1 : 0)));
  c.count(0, y + 1, c.dim(1, b + (t.transpose_b() ? 0 : 1)));
  return {};
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<MatMulAttributes>();
  int64_t k_of_b = 0;
  const Sizes s = sizes_of(t, c.shape(0), c.shape(1), k_of_b);
  const Shape& y = c.out_shape(0);
  for (Index i(Shape(y.dims().first(static_cast<size_t>(y.rank() - 2)))); i.valid(); i.next()) {
    const double* a = c.in(0).data() + i.in_broadcast(s.batch_a) * static_cast<size_t>(s.m * s.k);
    const double* b = c.in(1).data() + i.in_broadcast(s.batch_b) * static_cast<size_t>(s.k * s.n);
    for (int64_t m = 0; m < s.m; ++m) {
      for (int64_t n = 0; n < s.n; ++n) {
        const size_t at =
            i.flat() * static_cast<size_t>(s.m * s.n) + static_cast<size_t>(m * s.n + n);
        for (int64_t k = 0; k < s.k; ++k) {
          c.add(0, at,
                a[t.transpose_a() ? k * s.m + m : m * s.k + k] *
                    b[t.transpose_b() ? n * s.k + k : k * s.n + n]);
        }
      }
    }
  }
}

Tolerance tolerance(ToleranceContext& c) {
  const int axis = c.in(0).rank() - (c.attributes<MatMulAttributes>().transpose_a() ? 2 : 1);
  return c.of_products(c.in(0)[axis], 1);
}

}  // namespace

extern const OpDef op_mat_mul{
    .name = "MatMul",
    .inputs = 2,
    .costly = true,
    .encoded_inputs = 0b11,
    .infer = infer,
    .counted = counted_axes,
    .with_transposed = with_transposed,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::mat_mul_op
