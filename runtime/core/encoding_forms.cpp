#include "core/encoding_forms.h"

#include "base/float16.h"

namespace bowline {
namespace {

float next_above(float x, DType dtype) {
  const auto above = [x]<class T>(T h) {
    h = from_f32<T>(x);
    ++h.bits;
    return to_f32(h);
  };
  return dtype == DType::f16    ? above(f16())
         : dtype == DType::bf16 ? above(bf16())
                                : std::nextafter(x, INFINITY);
}

// Stores the scale of a block that spans `steps` steps of `exact`, and returns the stored scale.
// Rounds to nearest. Rounds up if the quantized range would otherwise end more than `spare` steps
// before the values. A scale that is not finite is stored as 0.
float store_rounded(double exact, double steps, double spare, std::byte* to, DType dtype) {
  const auto stored = [to, dtype](float scale) {
    store_float(scale, to, dtype);
    return load_float(to, dtype);
  };
  float scale = stored(static_cast<float>(exact));
  if (exact * steps > scale * (steps + spare)) {
    scale = stored(next_above(scale, dtype));
  }
  return std::isfinite(scale) ? scale : stored(0);
}

// Symmetric forms round the largest value to the last step. A zero point is rounded too.
constexpr double kSpare = 0.5;
constexpr double kSpareOfRange = 1.0 / 64;

}  // namespace

double exact_step(const Encoding& e, const BlockExtent& extent) {
  return e.symmetric ? extent.magnitude() / e.form->steps
                     : (double{extent.most} - extent.least) / e.form->steps_of_range;
}

float store_scale(const Encoding& e, const BlockExtent& extent, std::byte* to) {
  return store_rounded(exact_step(e, extent), e.symmetric ? e.form->steps : e.form->steps_of_range,
                       e.symmetric ? kSpare : kSpareOfRange, to, e.scale_type);
}

Status check_view_blocks(const Encoding& e, const View& view, const Shape& shape) {
  BOWLINE_TRY_ASSIGN(const Shape shown, view_shape(view, shape));
  const ElementRun run = view_run(view, shape);
  const CodeBlocks b(e, shape);
  const int axis = positive_axis(e.axis, shape.rank());
  BOWLINE_REQUIRE(!view.transpose, "A view cannot transpose blocks along axis {}.", e.axis);
  BOWLINE_REQUIRE(view.shape.empty() || shown.back() == shape.back() || axis < shape.rank() - 1,
                  "A view cannot reshape the axis along which blocks of {} lie.", e.block);
  BOWLINE_REQUIRE(view.shape.empty() || axis == shape.rank() - 1,
                  "A view cannot reshape blocks along axis {}.", e.axis);
  const int64_t rows = run.first + run.count == shape.elements() ? 0 : run.first + run.count;
  const int64_t line = b.inner * b.size;  // elements from one block of axis 0 to the next
  BOWLINE_REQUIRE(axis != 0 || (run.first % line == 0 && rows % line == 0),
                  "A view of rows begins or ends inside a block of {} along axis 0.", e.block);
  return {};
}

}  // namespace bowline
