// FusedWriteRows: a fusion of two WriteRows, of the keys and the values of a KV cache, and of the
// Rope before them.
//
//   y_k = WriteRows(k_state, k'), y_v = WriteRows(v_state, v), along axis 0
//   k' is k; with rope, k' = Rope(k, positions) and q' = Rope(q, positions)
//
// Shapes    k_state [S, H, D], v_state [S, H, E], k [n, H, D], v [n, H, E]  ->  y_k, y_v. With rope
//           also q [1, n, G, D], positions i32 [n] or [1, n]  ->  q' of the shape of q; k is then
//           [1, n, H, D].
// Step      position, as in WriteRows. If the rows do not fit, nothing is written.
// Updates   the storages of k_state and v_state.
// Quantized states as in WriteRows.
// Dynamic   the rows of k and v; only the rows up to the current size are written.
// Gradient  none. The operator occurs only in inference plans (graph/rewrites/caches.cpp).
// Source    WriteRows, Rope.
//! step position: u32
#include <limits>

#include "core/rope.h"
#include "ops/reference.h"
#include "ops/rotation.h"

namespace bowline::detail {

namespace rope_op {
extern const OpDef op_rope;
}

namespace fused_write_rows_op {
namespace {

int count_outputs(const Attributes& attributes) {
  return attributes.as<FusedWriteRowsAttributes>().rope() ? 3 : 2;
}

// The number of rows of k or v.
int64_t rows_of(const Shape& rows) { return rows[rows.rank() - 3]; }

Status check_rows(std::string_view name, const Shape& state, const Shape& rows) {
  BOWLINE_REQUIRE(state.rank() == 3, "The state of {} has rank {}, not 3.", name, state.rank());
  BOWLINE_REQUIRE(rows_of(rows) <= state[0], "{} rows are more than the state has ({}).",
                  rows_of(rows), state[0]);
  Shape expected = rows;
  expected[rows.rank() - 2] = state[1];
  expected[rows.rank() - 1] = state[2];
  return check_shape(name, rows, "rows of the state", expected);
}

Status infer(InferContext& c) {
  const auto& t = c.attributes<FusedWriteRowsAttributes>();
  const int expected = t.rope() ? 6 : 4;
  BOWLINE_REQUIRE(c.inputs() == expected, "{} inputs are given, but the attributes select {}.",
                  c.inputs(), expected);
  const Shape& k = c.in(2);
  const Shape& v = c.in(3);
  BOWLINE_REQUIRE(k.rank() == (t.rope() ? 4 : 3), "Input k has rank {}, not {}.", k.rank(),
                  t.rope() ? 4 : 3);
  BOWLINE_REQUIRE(v.rank() == 3, "Input v has rank {}, not 3.", v.rank());
  BOWLINE_REQUIRE(k.rank() == 3 || k[0] == 1, "Input k has {} batches, not 1.", k[0]);
  BOWLINE_REQUIRE(rows_of(k) == v[0], "Inputs k and v have {} and {} rows.", rows_of(k), v[0]);
  BOWLINE_TRY(check_rows("k", c.in(0), k));
  BOWLINE_TRY(check_rows("v", c.in(1), v));
  if (t.rope()) {
    const Shape& q = c.in(4);
    const Shape& positions = c.in(5);
    BOWLINE_REQUIRE(q.rank() == 4, "Input q has rank {}, not 4.", q.rank());
    BOWLINE_TRY(check_shape("q", q, Shape{1, v[0], q[2], k[3]}));
    BOWLINE_TRY(check_rotation(rope_of(t), k[3]));
    BOWLINE_REQUIRE(positions == Shape{v[0]} || positions == (Shape{1, v[0]}),
                    "Shape of the positions ({}) is neither {} nor {}.", positions, Shape{v[0]},
                    (Shape{1, v[0]}));
    BOWLINE_TRY(c.out(2, q));
  }
  return c.out_each({c.in(0), c.in(1)});
}

[[maybe_unused]] Reference rotated(const OracleContext& c, int input) {
  return reference_of(rope_op::op_rope,
                      Attributes::of(rope_of(c.attributes<FusedWriteRowsAttributes>())),
                      {input_of(c, input), input_of(c, 5)}, {c.shape(input)});
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const bool rope = c.attributes<FusedWriteRowsAttributes>().rope();
  const int64_t position = c.step(step::fused_write_rows::position);
  std::optional<Reference> turned;
  if (rope) {
    c.zero_magnitude(2);
    add_output(c, 2, rotated(c, 4), 0);
    turned = rotated(c, 2);
  }
  bool fits = true;
  for (const int i : {0, 1}) {
    std::ranges::copy(c.in(i), c.out(i).begin());
    const int64_t rows = c.extent(2 + i, c.shape(2 + i).rank() - 3);
    if (position + rows > c.shape(i)[0]) {
      const int64_t last = position + std::max<int64_t>(rows, 1) - 1;
      c.outcome.bad_indices.push_back(
          static_cast<double>(std::min<int64_t>(last, std::numeric_limits<int32_t>::max())));
      fits = false;
    }
  }
  for (const int i : {0, 1}) {
    const auto row = static_cast<size_t>(c.shape(i).elements(1, 3));
    const auto n = static_cast<size_t>(c.extent(2 + i, c.shape(2 + i).rank() - 3)) * row;
    const bool is_turned = turned && i == 0;
    for (size_t at = 0; at < n && fits; ++at) {
      const size_t to = static_cast<size_t>(position) * row + at;
      c.out(i)[to] = is_turned ? turned->outputs[0].values[at] : c.in(2 + i)[at];
    }
    if (is_turned) {
      const auto magnitude = c.zero_magnitude(0);
      for (size_t at = 0; at < n && fits; ++at) {
        magnitude[static_cast<size_t>(position) * row + at] = turned->magnitude[0][at];
      }
    }
  }
}

// Of Rope. Without it, values are only moved.
Tolerance tolerance(ToleranceContext& c) {
  return c.attributes<FusedWriteRowsAttributes>().rope() ? Tolerance::of_roundings(8)
                                                         : Tolerance::exact();
}

bool writes_rows(const Attributes&, const Shape&) { return true; }

}  // namespace

extern const OpDef op_fused_write_rows{
    .name = "FusedWriteRows",
    .inputs = 4,
    .optional_inputs = 2,
    .count_outputs = count_outputs,
    .is_fused = true,
    .types = "F, F, F, F, F, i32 -> F",
    .updates = {{0, 0}, {1, 1}},
    .encoded_inputs = 0b11,
    .reads_counts = true,
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
    .writes_rows = writes_rows,
};

}  // namespace fused_write_rows_op
}  // namespace bowline::detail
