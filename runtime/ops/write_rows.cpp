// WriteRows: writes rows into a state, at a position given per run.
//
//   y[.., i, ..] = rows[.., i - position, ..]  for position <= i < position + n along `axis`
//                  state[.., i, ..]            elsewhere
//
// Shapes    state of rank >= 1; rows of the shape of state, with n <= its size along the axis  ->
//           y, the state after the write.
// Step      position is the index of the first written row. If position + n exceeds the size of the
//           axis, nothing is written, and the error is index_out_of_range.
// Updates   the storage of the state (OpDef::updates), for example a KV cache. Its parameter is not
//           trained.
// Quantized a quantized state whose scales are per row (Encoding::takes_rows) is written along any
//           axis except the last. Each block of a row is quantized with the scale max |x| / 127 and
//           the values x / scale, rounded to nearest even. A block with a non-finite value becomes
//           zeros.
// Dynamic   rows along the axis; only the rows up to the current size are written.
// Gradient  none.
// Source    ONNX operators, TensorScatter (opset 24), in its linear mode.
//! step position: u32
#include <limits>

#include "ops/index.h"
#include "ops/op.h"

namespace bowline::detail::write_rows_op {
namespace {

Status infer(InferContext& c) {
  const Shape& state = c.in(0);
  Shape rows = c.in(1);
  BOWLINE_TRY_ASSIGN(const int axis,
                     normalise_axis(c.attributes<WriteRowsAttributes>().axis(), state.rank()));
  BOWLINE_REQUIRE(rows.rank() == state.rank(), "The rows have rank {}, the state has {}.",
                  rows.rank(), state.rank());
  BOWLINE_REQUIRE(rows[axis] <= state[axis], "{} rows are more than the state has ({}).",
                  rows[axis], state[axis]);
  rows[axis] = state[axis];
  BOWLINE_REQUIRE(rows == state,
                  "Shape of the rows ({}) differs from the state ({}) outside axis {}.", c.in(1),
                  state, axis);
  return c.out(0, state);
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const Shape& state = c.shape(0);
  const int axis = c.axis<WriteRowsAttributes>(state.rank());
  const int64_t rows = c.extent(1, axis);
  const int64_t position = c.step(step::write_rows::position);
  std::ranges::copy(c.in(0), c.out(0).begin());
  if (position + rows > state[axis]) {
    const int64_t last = position + std::max<int64_t>(rows, 1) - 1;
    c.outcome.bad_indices = {
        static_cast<double>(std::min<int64_t>(last, std::numeric_limits<int32_t>::max()))};
    return;
  }
  for (Index i(c.shape(1)); i.valid(); i.next()) {
    if (i[axis] >= rows) {
      continue;
    }
    c.out(0)[i.in_whole(state, axis, position)] = c.in(1)[i.flat()];
  }
}

Status counted_axes(CountedContext& c) {
  const int rank = c.in(0).rank();
  const int axis = c.axis<WriteRowsAttributes>(rank);
  for (int a = 0; a < rank; ++a) {
    for (const int i : {0, 1}) {
      if (c.dim(i, a) != c.kNone && (i == 0 || a != axis)) {
        return c.refuse(i, a, "the state must be static");
      }
    }
  }
  c.read_count(1, axis);
  return {};
}

bool writes_rows(const Attributes& attributes, const Shape& state) {
  const int axis = attributes.as<WriteRowsAttributes>().axis();
  return axis != -1 && axis != state.rank() - 1;
}

}  // namespace

extern const OpDef op_write_rows{
    .name = "WriteRows",
    .inputs = 2,
    .types = "F, F -> F",
    .updates = {{0, 0}},
    .encoded_inputs = 0b1,
    .reads_counts = true,
    .infer = infer,
    .counted = counted_axes,
    .oracle = BOWLINE_ORACLE(oracle),
    .writes_rows = writes_rows,
};

}  // namespace bowline::detail::write_rows_op
