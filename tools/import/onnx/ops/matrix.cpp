// Matrix products, and operators that are a product with a known matrix.
#include <algorithm>

#include "onnx/lowering.h"

namespace bowline::onnx {
namespace {

// The rules of NumPy: a vector is a row on the left and a column on the right, and its extra axis
// is removed.
Term product(Context& c, const Term& a, const Term& b) {
  require(a.rank() >= 1 && b.rank() >= 1, "{} and {} are not matrices.", a.dims, b.dims);
  const Term left = a.rank() == 1 ? c.m.reshape(a, {1, a.dims[0]}) : a;
  const Term right = b.rank() == 1 ? c.m.reshape(b, {b.dims[0], 1}) : b;
  const Term y = c.m.matmul(left, right);
  Dims dims = y.dims;
  if (b.rank() == 1) {
    dims.pop_back();
  }
  if (a.rank() == 1) {
    dims.erase(dims.end() - (b.rank() == 1 ? 1 : 2));
  }
  return c.m.reshape(y, dims);
}

Term matmul(Context& c) { return product(c, c.in(0), c.in(1)); }

// alpha a' b' + beta c
Term gemm(Context& c) {
  const double beta = c.real("beta", 1);
  c.ignore("broadcast");
  const Term y = scaled_product(c, c.in(0), c.in(1));
  const Term bias = c.optional(2);
  return !bias ? y : y + (beta == 1 ? bias : bias * beta);
}

// The determinant of 1x1 and 2x2 matrices.
Term det(Context& c) {
  const Term x = c.in(0);
  const size_t r = x.rank();
  require(r >= 2 && x.dims[r - 1] == x.dims[r - 2], "{} is not a square matrix.", x.dims);
  const int64_t n = x.dims[r - 1];
  support(n == 1 || n == 2, "The determinant of {} rows is not supported.", n);
  const Term cells = c.m.reshape(x, x.dims.part(0, r - 2).joined({n * n}));
  const auto cell = [&](int64_t i) { return c.m.at(cells, -1, i); };
  return n == 1 ? cell(0) : cell(0) * cell(3) - cell(1) * cell(2);
}

// A scale or zero point of the left matrix: a scalar or one value per row.
Term beside_rows(Context& c, const Term& v) {
  return v.rank() == 1 && v.dims[0] != 1 ? c.m.reshape(v, {v.dims[0], 1}) : v;
}

// The i32 product of integers from -255 to 255. f32 sums of 256 products are exact; these partial
// sums are added as i32.
Term whole_product(Context& c, const Term& a, const Term& b) {
  require(a.rank() >= 1 && b.rank() >= 1, "{} and {} are not matrices.", a.dims, b.dims);
  const int64_t count = a.dims.back();
  const auto columns = static_cast<int64_t>(a.rank()) - 1;
  const int64_t rows = b.rank() == 1 ? 0 : static_cast<int64_t>(b.rank()) - 2;
  require(b.dims[rows] == count, "The inner dims of {} and {} differ.", a.dims, b.dims);
  Term sum;
  for (int64_t start = 0; start < std::max<int64_t>(count, 1); start += kExactProducts) {
    const int64_t length = std::min(count - start, kExactProducts);
    const Term part =
        product(c, c.m.slice(a, columns, start, length), c.m.slice(b, rows, start, length));
    const Term whole = cast(part, DType::i32);
    sum = start == 0 ? whole : sum + whole;
  }
  return sum;
}

Term matmul_integer(Context& c) {
  return whole_product(c, centred(c.in(0), beside_rows(c, c.optional(2))),
                       centred(c.in(1), c.optional(3)));
}

// saturate(round(a b scale_a scale_b / scale_y) + zero_y)
Term qlinear_matmul(Context& c) {
  Term t[8];
  for (size_t i = 0; i < 8; ++i) {
    t[i] = c.in(i);
  }
  const Term sum = whole_product(c, centred(t[0], beside_rows(c, t[2])), centred(t[3], t[5]));
  for (const size_t i : {1, 4, 6}) {
    t[i] = cast(t[i], DType::f32);
  }
  const Term scale = beside_rows(c, t[1]) * t[4] / t[6];
  return saturated(cast(sum, DType::f32) * scale, t[7]);
}

constexpr Lowering kMatrixLowerings[] = {
    {"MatMul", matmul},
    {"Gemm", gemm},
    {"Det", det},
    {"MatMulInteger", matmul_integer},
    {"QLinearMatMul", qlinear_matmul},
};

}  // namespace

Term scaled_product(Context& c, const Term& a, const Term& b) {
  const double alpha = c.real("alpha", 1);
  const bool transpose_a = c.flag("transA", false);
  const bool transpose_b = c.flag("transB", false);
  if (alpha == 1) {
    return c.m.matmul(a, b, transpose_a, transpose_b);
  }
  // Computed in f32: an unscaled 16-bit product can overflow.
  const Term y = c.m.matmul(in_f32(a), in_f32(b), transpose_a, transpose_b);
  return cast(y * alpha, a.dtype);
}

std::span<const Lowering> lowerings_of_matrix() { return kMatrixLowerings; }

}  // namespace bowline::onnx
