// Operators that pad or crop axes.
#include <algorithm>
#include <cmath>

#include "onnx/lowering.h"

namespace bowline::onnx {
namespace {

// Elements -begin to dim + end of a periodic axis.
Term wrapped_around(Context& c, const Term& x, size_t axis, int64_t begin, int64_t end) {
  const int64_t dim = x.dims[axis];
  const int64_t count = dim + begin + end;
  support(dim != 0 && count <= kMostComputed, "Axis {} of {} cannot wrap around.", axis, x.dims);
  const Term indices =
      c.m.table(DType::i32, {count}, [&](int64_t i) { return ((i - begin) % dim + dim) % dim; });
  return c.m.gather(x, indices, static_cast<int64_t>(axis));
}

// Pads with a value that is not known when the model is read: concatenates blocks of it along each
// axis.
Term padded_with(Context& c, Term x, const Term& value, const std::vector<int64_t>& begin,
                 const std::vector<int64_t>& end) {
  for (size_t a = 0; a < begin.size(); ++a) {
    Terms parts;
    const auto piece = [&](int64_t length) {
      if (length > 0) {
        parts.push_back(c.m.expand(value, x.dims.with(static_cast<int64_t>(a), length)));
      }
    };
    piece(begin[a]);
    parts.push_back(x);
    piece(end[a]);
    x = c.m.concat(parts, static_cast<int64_t>(a));
  }
  return x;
}

struct PadValue {
  double known = 0;
  Term unknown;  // the value if it is not known when the model is read
};

PadValue pad_value_of(Context& c, DType dtype) {
  if (c.opset < 11) {
    return {c.real("value", 0), {}};
  }
  const Term value = c.optional(2);
  if (!value) {
    return {};
  }
  require(value.elements() == 1 && value.dtype == dtype,
          "The value of the pads has {} elements of {}.", value.elements(), value.dtype);
  // The operator stores its value as f32, which cannot hold every integer.
  const ConstantTensor* const known = value.numbers();
  const bool fits = known != nullptr && known->of_batch.empty() &&
                    (is_float(dtype) || std::abs(known->reals()[0]) <= 0x1p24);
  return fits ? PadValue{known->reals()[0], {}} : PadValue{0, value};
}

// Negative pads remove elements.
Term pad(Context& c) {
  Term x = c.in(0);
  std::vector<int64_t> pads = c.opset < 11 ? c.list("pads") : c.integers(1);
  const std::string mode =
      c.choice("mode", "constant", "constant reflect edge wrap", "Mode", Code::unsupported);
  require_small("Pads", pads);
  const PadValue value = pad_value_of(c, x.dtype);
  const bool wraps = mode == "wrap";
  const size_t rank = x.rank();
  if (c.has(3)) {
    const std::vector<int64_t> axes = c.integers(3);
    require(pads.size() == 2 * axes.size(), "{} pads do not fit {} axes.", pads.size(),
            axes.size());
    const std::vector<int64_t> none(2 * rank, 0);
    pads = axes.empty() ? none : of_all_axes(pads, axes, none, 2);
  }
  require(pads.size() == 2 * rank, "{} pads do not fit {}.", pads.size(), x.dims);
  std::vector<int64_t> begin(rank), end(rank);
  for (size_t a = 0; a < rank; ++a) {
    const int64_t before = std::max<int64_t>(-pads[a], 0);
    const int64_t behind = std::max<int64_t>(-pads[rank + a], 0);
    const int64_t left = x.dims[a] - before - behind;
    require(left >= 0, "Axis {} of {} is cut off by {}.", a, x.dims, before + behind);
    x = c.m.slice(x, static_cast<int64_t>(a), before, left);
    begin[a] = std::max<int64_t>(pads[a], 0);
    end[a] = std::max<int64_t>(pads[rank + a], 0);
    if (wraps && begin[a] + end[a] > 0) {
      x = wrapped_around(c, x, a, begin[a], end[a]);
    }
  }
  if (wraps) {
    return x;
  }
  return value.unknown && mode == "constant"
             ? padded_with(c, x, c.m.reshape(value.unknown, {}), begin, end)
             : c.m.pad(x, begin, end, {{"mode", mode}, {"value", value.known}});
}

// Crops to the middle of each axis, or pads with zeros. An odd remainder goes to the end.
Term center_crop_pad(Context& c) {
  Term x = c.in(0);
  const std::vector<int64_t> sizes = c.integers(1);
  std::vector<int64_t> axes = c.list("axes");
  axes = axes.empty() ? all_axes(x.rank()) : axes;
  require_small("Shape", sizes);
  require(sizes.size() == axes.size(), "{} sizes do not fit {} axes.", sizes.size(), axes.size());
  Dims begin(x.rank(), 0), end(x.rank(), 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t axis = axis_of(axes[i], x.rank());
    const int64_t more = sizes[i] - x.dims[axis];
    require(sizes[i] >= 0, "Size {} is {}.", i, sizes[i]);
    if (more < 0) {
      x = c.m.slice(x, axis, -more / 2, sizes[i]);
    } else {
      begin[axis] = more / 2;
      end[axis] = more - begin[axis];
    }
  }
  return c.m.pad(x, begin, end);
}

constexpr Lowering kPadLowerings[] = {
    {"Pad", pad},
    {"CenterCropPad", center_crop_pad},
};

}  // namespace

std::span<const Lowering> lowerings_of_pad() { return kPadLowerings; }

}  // namespace bowline::onnx
