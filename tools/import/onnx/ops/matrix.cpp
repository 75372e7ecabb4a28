// Matrix products, and operators that are a product with a known matrix.
#include <algorithm>

#include "onnx/lowering.h"

namespace bowline::onnx {
namespace {

// The rules of NumPy: a vector is a row on the left and a column on the right, and its extra axis
// is removed.
Result<Term> product(Context& c, const Term& a, const Term& b) {
  BOWLINE_REQUIRE_CODE(a.rank() >= 1 && b.rank() >= 1, Code::bad_file,
                       "{} and {} are not matrices.", shape_text(a.dims), shape_text(b.dims));
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

Status matmul(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term a, c.in(0));
  BOWLINE_TRY_ASSIGN(const Term b, c.in(1));
  BOWLINE_TRY_ASSIGN(const Term y, product(c, a, b));
  c.out(0, y);
  return {};
}

// alpha a' b' + beta c
Status gemm(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term a, c.in(0));
  BOWLINE_TRY_ASSIGN(const Term b, c.in(1));
  BOWLINE_TRY_ASSIGN(const double beta, c.real("beta", 1));
  c.ignore("broadcast");
  BOWLINE_TRY_ASSIGN(Term y, scaled_product(c, a, b));
  if (c.has(2)) {
    BOWLINE_TRY_ASSIGN(const Term bias, c.in(2));
    y = c.m.add(y, beta == 1 ? bias : c.m.mul(bias, beta));
  }
  c.out(0, y);
  return {};
}

// The determinant of 1x1 and 2x2 matrices.
Status det(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  const size_t r = x.rank();
  BOWLINE_REQUIRE_CODE(r >= 2 && x.dims[r - 1] == x.dims[r - 2], Code::bad_file,
                       "{} is not a square matrix.", shape_text(x.dims));
  const int64_t n = x.dims[r - 1];
  BOWLINE_REQUIRE_CODE(n == 1 || n == 2, Code::unsupported,
                       "The determinant of {} rows is not supported.", n);
  const Dims outer(x.dims.begin(), x.dims.end() - 2);
  Dims flat = outer;
  flat.push_back(n * n);
  const Term cells = c.m.reshape(x, flat);
  const auto cell = [&](int64_t i) {
    return c.m.reshape(c.m.slice(cells, static_cast<int64_t>(flat.size()) - 1, i, 1), outer);
  };
  c.out(0, n == 1 ? cell(0) : c.m.sub(c.m.mul(cell(0), cell(3)), c.m.mul(cell(1), cell(2))));
  return {};
}

// A scale or zero point of the left matrix: a scalar or one value per row.
Term beside_rows(Context& c, const Term& v) {
  return v.rank() == 1 && v.dims[0] != 1 ? c.m.reshape(v, {v.dims[0], 1}) : v;
}

// The i32 product of integers from -255 to 255. f32 sums of 256 products are exact; these partial
// sums are added as i32.
Result<Term> whole_product(Context& c, const Term& a, const Term& b) {
  BOWLINE_REQUIRE_CODE(a.rank() >= 1 && b.rank() >= 1, Code::bad_file,
                       "{} and {} are not matrices.", shape_text(a.dims), shape_text(b.dims));
  const int64_t count = a.dims.back();
  const auto columns = static_cast<int64_t>(a.rank()) - 1;
  const int64_t rows = b.rank() == 1 ? 0 : static_cast<int64_t>(b.rank()) - 2;
  BOWLINE_REQUIRE_CODE(b.dims[static_cast<size_t>(rows)] == count, Code::bad_file,
                       "The inner dims of {} and {} differ.", shape_text(a.dims),
                       shape_text(b.dims));
  Term sum;
  for (int64_t start = 0; start < std::max<int64_t>(count, 1); start += kExactProducts) {
    const int64_t length = std::min(count - start, kExactProducts);
    BOWLINE_TRY_ASSIGN(const Term part, product(c, c.m.slice(a, columns, start, length),
                                                c.m.slice(b, rows, start, length)));
    const Term whole = c.m.cast(part, DType::i32);
    sum = start == 0 ? whole : c.m.add(sum, whole);
  }
  return sum;
}

Status matmul_integer(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term a, c.in(0));
  BOWLINE_TRY_ASSIGN(const Term b, c.in(1));
  BOWLINE_TRY_ASSIGN(const Term zero_a, c.optional(2));
  BOWLINE_TRY_ASSIGN(const Term zero_b, c.optional(3));
  BOWLINE_TRY_ASSIGN(
      const Term y, whole_product(c, centred(c, a, beside_rows(c, zero_a)), centred(c, b, zero_b)));
  c.out(0, y);
  return {};
}

// saturate(round(a b scale_a scale_b / scale_y) + zero_y)
Status qlinear_matmul(Context& c) {
  Term t[8];
  for (size_t i = 0; i < 8; ++i) {
    BOWLINE_TRY_ASSIGN(t[i], c.in(i));
  }
  BOWLINE_TRY_ASSIGN(const Term sum, whole_product(c, centred(c, t[0], beside_rows(c, t[2])),
                                                   centred(c, t[3], t[5])));
  for (const size_t i : {1, 4, 6}) {
    t[i] = c.m.cast(t[i], DType::f32);
  }
  const Term scale = c.m.div(c.m.mul(beside_rows(c, t[1]), t[4]), t[6]);
  c.out(0, saturated(c, c.m.mul(c.m.cast(sum, DType::f32), scale), t[7]));
  return {};
}

constexpr Lowering kMatrixLowerings[] = {
    {"MatMul", matmul},
    {"Gemm", gemm},
    {"Det", det},
    {"MatMulInteger", matmul_integer},
    {"QLinearMatMul", qlinear_matmul},
};

}  // namespace

Result<Term> scaled_product(Context& c, const Term& a, const Term& b) {
  BOWLINE_TRY_ASSIGN(const double alpha, c.real("alpha", 1));
  BOWLINE_TRY_ASSIGN(const int64_t transpose_a, c.integer("transA", 0));
  BOWLINE_TRY_ASSIGN(const int64_t transpose_b, c.integer("transB", 0));
  if (alpha == 1) {
    return c.m.matmul(a, b, transpose_a != 0, transpose_b != 0);
  }
  // Computed in f32: an unscaled 16-bit product can overflow.
  const Term y = c.m.matmul(in_f32(c, a), in_f32(c, b), transpose_a != 0, transpose_b != 0);
  return c.m.cast(c.m.mul(y, alpha), a.dtype);
}

std::span<const Lowering> lowerings_of_matrix() { return kMatrixLowerings; }

}  // namespace bowline::onnx
