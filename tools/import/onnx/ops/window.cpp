// Operators that slide a window over the spatial axes: convolutions and pooling.
#include <algorithm>

#include "base/escape.h"
#include "onnx/lowering.h"

namespace bowline::onnx {
namespace {

// Limit of strides, dilations, pads and window sizes, so that products with dims cannot overflow.
constexpr int64_t kMostSize = int64_t{1} << 24;

// The attributes of a window, with an entry per spatial axis.
struct Window {
  std::vector<int64_t> kernel, strides, dilations, begin, end;

  size_t axes() const { return kernel.size(); }
  int64_t reach(size_t a) const { return (kernel[a] - 1) * dilations[a] + 1; }
  std::vector<GraphDim> pads() const {
    std::vector<int64_t> both = begin;
    both.insert(both.end(), end.begin(), end.end());
    return graph_dims(both);
  }
};

Result<std::vector<int64_t>> sizes(Context& c, const char* name, size_t axes, int64_t otherwise,
                                   int64_t least) {
  BOWLINE_TRY_ASSIGN(std::vector<int64_t> out, c.list(name));
  if (out.empty()) {
    out.assign(axes, otherwise);
  }
  const bool legal =
      std::ranges::all_of(out, [&](int64_t v) { return v >= least && v <= kMostSize; });
  BOWLINE_REQUIRE_CODE(out.size() == axes && legal, Code::bad_file,
                       "{} {} do not fit {} spatial axes.", name, shape_text(out), axes);
  return out;
}

// `kernel` is the default for a missing attribute. If `kernel` is empty, the attribute is required.
Result<Window> window_of(Context& c, const Term& x, std::vector<int64_t> kernel) {
  BOWLINE_REQUIRE_CODE(x.rank() >= 3, Code::bad_file, "{} has no spatial axes.",
                       shape_text(x.dims));
  const size_t axes = x.rank() - 2;
  Window w;
  BOWLINE_TRY_ASSIGN(w.kernel, c.list("kernel_shape"));
  if (w.kernel.empty()) {
    w.kernel = kernel;
  }
  const bool same = kernel.empty() || w.kernel == kernel;
  const bool legal =
      std::ranges::all_of(w.kernel, [](int64_t k) { return k >= 1 && k <= kMostSize; });
  BOWLINE_REQUIRE_CODE(same && legal && w.kernel.size() == axes, Code::bad_file,
                       "The window {} does not fit {}.", shape_text(w.kernel), shape_text(x.dims));
  BOWLINE_TRY_ASSIGN(w.strides, sizes(c, "strides", axes, 1, 1));
  BOWLINE_TRY_ASSIGN(w.dilations, sizes(c, "dilations", axes, 1, 1));
  BOWLINE_TRY_ASSIGN(const std::vector<int64_t> pads, sizes(c, "pads", 2 * axes, 0, 0));
  w.begin.assign(pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(axes));
  w.end.assign(pads.begin() + static_cast<std::ptrdiff_t>(axes), pads.end());
  return w;
}

// Splits the padding into halves. An odd element goes to the end (upper) or the start.
void share_pads(Window& w, size_t a, int64_t total, bool upper) {
  w.begin[a] = upper ? total / 2 : total - total / 2;
  w.end[a] = total - w.begin[a];
}

Result<std::string> auto_pad(Context& c) {
  BOWLINE_TRY_ASSIGN(const std::string kind, c.text("auto_pad", "NOTSET"));
  const bool known =
      kind == "NOTSET" || kind == "VALID" || kind == "SAME_UPPER" || kind == "SAME_LOWER";
  BOWLINE_REQUIRE_CODE(known, Code::bad_file, "Auto_pad \"{}\" is not supported.", escaped(kind));
  return kind;
}

// If a window is shorter than its stride, the total padding can be negative. ONNX Runtime,
// TensorFlow and the ONNX reference then start at different elements. They agree for totals of at
// least `least`.
Status require_pads(const std::string& kind, const Window& w, size_t a, int64_t total,
                    int64_t least) {
  BOWLINE_REQUIRE_CODE(
      total >= least, Code::unsupported,
      "With auto_pad \"{}\" a window of {} and a stride of {} skip {} elements "
      "of axis {}, and tools disagree about which. Export the model with explicit pads.",
      kind, w.reach(a), w.strides[a], -total, a + 2);
  return {};
}

// Computes the pads from auto_pad, and the spatial dims of the output.
Result<Dims> slid_over(Context& c, const Term& x, Window& w, bool ceil) {
  BOWLINE_TRY_ASSIGN(const std::string kind, auto_pad(c));
  Dims out;
  for (size_t a = 0; a < w.axes(); ++a) {
    const int64_t in = x.dims[a + 2];
    if (kind == "VALID") {
      share_pads(w, a, 0, true);
    } else if (kind != "NOTSET") {
      const int64_t wanted = (in + w.strides[a] - 1) / w.strides[a];
      const int64_t total = (wanted - 1) * w.strides[a] + w.reach(a) - in;
      BOWLINE_TRY(require_pads(kind, w, a, total, -1));
      share_pads(w, a, std::max<int64_t>(total, 0), kind == "SAME_UPPER");
    }
    const int64_t room = in + w.begin[a] + w.end[a] - w.reach(a);
    BOWLINE_REQUIRE_CODE(room >= 0, Code::bad_file,
                         "The window {} is larger than {} with its pads.", shape_text(w.kernel),
                         shape_text(x.dims));
    int64_t n = (room + (ceil ? w.strides[a] - 1 : 0)) / w.strides[a] + 1;
    // A window that would start after the last element is omitted.
    if (ceil && (n - 1) * w.strides[a] >= in + w.begin[a]) {
      --n;
    }
    out.push_back(n);
  }
  return out;
}

std::vector<Attribute> attributes_of(const Window& w) {
  return {{"strides", graph_dims(w.strides)},
          {"pads", w.pads()},
          {"dilations", graph_dims(w.dilations)}};
}

// Convolves x in the dtype of the computation.
Result<Term> convolution(Context& c, const Term& x, const Term& weight, const Term* bias) {
  BOWLINE_REQUIRE_CODE(x.rank() >= 3 && weight.rank() == x.rank(), Code::bad_file,
                       "Weight {} does not fit {}.", shape_text(weight.dims), shape_text(x.dims));
  BOWLINE_TRY_ASSIGN(Window w, window_of(c, x, {weight.dims.begin() + 2, weight.dims.end()}));
  BOWLINE_TRY_ASSIGN(const int64_t groups, c.integer("group", 1));
  BOWLINE_TRY_ASSIGN(const Dims spatial, slid_over(c, x, w, false));
  Dims dims = {x.dims[0], weight.dims[0]};
  dims.insert(dims.end(), spatial.begin(), spatial.end());
  std::vector<Attribute> attributes = attributes_of(w);
  attributes.emplace_back("groups", groups);
  Terms in = {x, weight};
  if (bias != nullptr) {
    in.push_back(*bias);
  }
  return c.m.op("Conv", in, attributes, x.dtype, dims);
}

Status conv(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const Term weight, c.in(1));
  Term bias;
  if (c.has(2)) {
    BOWLINE_TRY_ASSIGN(bias, c.in(2));
  }
  BOWLINE_TRY_ASSIGN(const Term y, convolution(c, x, weight, c.has(2) ? &bias : nullptr));
  c.out(0, y);
  return {};
}

// Depthwise causal convolution over the past state and the input. The last elements of both become
// the state for the next run.
Status causal_conv(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const Term weight, c.in(1));
  BOWLINE_TRY_ASSIGN(const std::string activation, c.text("activation", "none"));
  const bool silu = activation == "silu" || activation == "swish";
  BOWLINE_REQUIRE_CODE(silu || activation == "none", Code::unsupported,
                       "Activation \"{}\" is not supported.", escaped(activation));
  const bool fits = x.rank() == 3 && weight.rank() == 3 && weight.dims[0] == x.dims[1] &&
                    weight.dims[1] == 1 && weight.dims[2] >= 1;
  BOWLINE_REQUIRE_CODE(fits, Code::bad_file, "Weight {} does not fit {}.", shape_text(weight.dims),
                       shape_text(x.dims));
  const Dims seen = {x.dims[0], x.dims[1], weight.dims[2] - 1};
  Term past;
  if (c.has(3)) {
    BOWLINE_TRY_ASSIGN(past, c.in(3));
    BOWLINE_REQUIRE_CODE(past.dims == seen, Code::bad_file, "The state {} is not {}.",
                         shape_text(past.dims), shape_text(seen));
  } else if (seen[2] > 0) {
    past = c.m.filled(x.dtype, seen, 0);
  }
  const Term all = seen[2] > 0 ? c.m.concat({past, x}, 2) : x;
  Terms in = {all, weight};
  if (c.has(2)) {
    BOWLINE_TRY_ASSIGN(Term bias, c.in(2));
    in.push_back(std::move(bias));
  }
  const Term y = c.m.op("Conv", in, {{"groups", x.dims[1]}}, x.dtype, x.dims);
  c.out(0, silu ? c.m.unary("Silu", y) : y);
  c.out(1, c.m.slice(all, 2, x.dims[2], seen[2]));
  return {};
}

// The pads come from output_shape or auto_pad: the size without pads minus the requested size.
Status conv_transpose(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const Term weight, c.in(1));
  BOWLINE_REQUIRE_CODE(x.rank() >= 3 && weight.rank() == x.rank(), Code::bad_file,
                       "Weight {} does not fit {}.", shape_text(weight.dims), shape_text(x.dims));
  BOWLINE_TRY_ASSIGN(Window w, window_of(c, x, {weight.dims.begin() + 2, weight.dims.end()}));
  BOWLINE_TRY_ASSIGN(const int64_t groups, c.integer("group", 1));
  BOWLINE_TRY_ASSIGN(const std::string kind, auto_pad(c));
  BOWLINE_TRY_ASSIGN(std::vector<int64_t> more, sizes(c, "output_padding", w.axes(), 0, 0));
  BOWLINE_TRY_ASSIGN(std::vector<int64_t> wanted, c.list("output_shape"));
  BOWLINE_TRY(require_small("Output_shape", wanted));
  BOWLINE_REQUIRE_CODE(groups >= 1 && groups <= INT32_MAX, Code::bad_file, "Attribute group is {}.",
                       groups);
  if (wanted.size() == x.rank()) {
    wanted.erase(wanted.begin(), wanted.begin() + 2);
  }
  BOWLINE_REQUIRE_CODE(wanted.empty() || wanted.size() == w.axes(), Code::bad_file,
                       "Output_shape {} does not fit {}.", shape_text(wanted), shape_text(x.dims));
  Dims dims = {x.dims[0], weight.dims[1] * groups};
  for (size_t a = 0; a < w.axes(); ++a) {
    const int64_t in = x.dims[a + 2];
    BOWLINE_REQUIRE_CODE(in <= INT32_MAX, Code::bad_file, "Axis {} of {} is too long.", a + 2,
                         shape_text(x.dims));
    const int64_t whole = (in - 1) * w.strides[a] + w.reach(a) + more[a];
    const bool same = kind == "SAME_UPPER" || kind == "SAME_LOWER";
    if (kind == "VALID" && wanted.empty()) {
      share_pads(w, a, 0, true);
    } else if (!wanted.empty() || same) {
      const int64_t total = whole - (wanted.empty() ? in * w.strides[a] : wanted[a]);
      BOWLINE_TRY(wanted.empty() ? require_pads(kind, w, a, total, 0) : Status());
      more[a] += std::max<int64_t>(-total, 0);
      share_pads(w, a, std::max<int64_t>(total, 0), kind == "SAME_UPPER");
    }
    dims.push_back((in - 1) * w.strides[a] + w.reach(a) + more[a] - w.begin[a] - w.end[a]);
  }
  std::vector<Attribute> attributes = attributes_of(w);
  attributes.emplace_back("output_padding", graph_dims(more));
  attributes.emplace_back("groups", groups);
  Terms in = {x, weight};
  if (c.has(2)) {
    BOWLINE_TRY_ASSIGN(Term bias, c.in(2));
    in.push_back(std::move(bias));
  }
  c.out(0, c.m.op("ConvTranspose", in, attributes, x.dtype, dims));
  return {};
}

Result<Term> pooled(Context& c, const char* op, const Term& x, std::vector<Attribute> attributes) {
  BOWLINE_TRY_ASSIGN(Window w, window_of(c, x, {}));
  BOWLINE_TRY_ASSIGN(const int64_t ceil, c.integer("ceil_mode", 0));
  BOWLINE_TRY_ASSIGN(const Dims spatial, slid_over(c, x, w, ceil != 0));
  Dims dims = {x.dims[0], x.dims[1]};
  dims.insert(dims.end(), spatial.begin(), spatial.end());
  for (Attribute& a : attributes_of(w)) {
    attributes.push_back(std::move(a));
  }
  attributes.emplace_back("window", graph_dims(w.kernel));
  attributes.emplace_back("ceil", ceil != 0);
  return c.m.op(op, {x}, attributes, x.dtype, dims);
}

// 8-bit integers are exact in f32.
Status max_pool(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  const bool narrow = x.dtype == DType::u8 || x.dtype == DType::i8;
  if (!c.wants(1)) {
    c.ignore("storage_order");  // applies to the indices only
  }
  BOWLINE_TRY_ASSIGN(const Term y, pooled(c, "MaxPool", narrow ? c.m.cast(x, DType::f32) : x, {}));
  c.out(0, c.m.cast(y, x.dtype));
  return {};
}

Status average_pool(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const int64_t count_pads, c.integer("count_include_pad", 0));
  BOWLINE_TRY_ASSIGN(const Term y, pooled(c, "AveragePool", x, {{"count_pads", count_pads != 0}}));
  c.out(0, y);
  return {};
}

// (sum of |x|^p in the window)^(1/p). The sum is a depthwise convolution with ones.
Status lp_pool(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const int64_t p, c.integer("p", 2));
  BOWLINE_TRY_ASSIGN(const int64_t ceil, c.integer("ceil_mode", 0));
  BOWLINE_REQUIRE_CODE(p >= 1 && p <= 64, Code::unsupported,
                       "Attribute p is {}. It must be from 1 to 64.", p);
  BOWLINE_TRY_ASSIGN(Window w, window_of(c, x, {}));
  BOWLINE_TRY_ASSIGN(const Dims spatial, slid_over(c, x, w, ceil != 0));
  Dims dims = {x.dims[0], x.dims[1]};
  Dims ones = {x.dims[1], 1};
  for (size_t a = 0; a < w.axes(); ++a) {
    // The last window may extend beyond the pads.
    const int64_t end = (spatial[a] - 1) * w.strides[a] + w.reach(a) - x.dims[a + 2] - w.begin[a];
    w.end[a] = std::max(w.end[a], end);
    dims.push_back(spatial[a]);
    ones.push_back(w.kernel[a]);
  }
  const auto exponent = static_cast<double>(p);
  const Term size = c.m.unary("Abs", x);
  const Term powers = p == 1   ? size
                      : p == 2 ? c.m.unary("Square", x)
                               : c.m.binary("Pow", size, c.m.scalar(x.dtype, exponent));
  std::vector<Attribute> attributes = attributes_of(w);
  attributes.emplace_back("groups", x.dims[1]);
  const Term sum =
      c.m.op("Conv", {powers, c.m.filled(x.dtype, ones, 1)}, attributes, x.dtype, dims);
  c.out(0, p == 1   ? sum
           : p == 2 ? c.m.unary("Sqrt", sum)
                    : c.m.binary("Pow", sum, c.m.scalar(x.dtype, 1 / exponent)));
  return {};
}

// Adds column blocks [batch, channels * block, count] to their positions in the image: a transposed
// convolution whose filters have a single 1.
Status col_to_image(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const std::vector<int64_t> image, c.integers(1));
  BOWLINE_TRY_ASSIGN(const std::vector<int64_t> block, c.integers(2));
  const size_t axes = image.size();
  BOWLINE_TRY(require_small("Image_shape", image));
  BOWLINE_TRY(require_small("Block_shape", block));
  int64_t cells = 1;
  for (const int64_t b : block) {
    BOWLINE_REQUIRE_CODE(b >= 1 && cells * b <= 4096, Code::unsupported, "Blocks {} are too large.",
                         shape_text(block));
    cells *= b;
  }
  const bool fits = x.rank() == 3 && axes >= 1 && block.size() == axes && x.dims[1] % cells == 0;
  BOWLINE_REQUIRE_CODE(fits, Code::bad_file, "Blocks {} of images {} do not fit {}.",
                       shape_text(block), shape_text(image), shape_text(x.dims));
  Window w;
  w.kernel = block;
  BOWLINE_TRY_ASSIGN(w.strides, sizes(c, "strides", axes, 1, 1));
  BOWLINE_TRY_ASSIGN(w.dilations, sizes(c, "dilations", axes, 1, 1));
  BOWLINE_TRY_ASSIGN(const std::vector<int64_t> pads, sizes(c, "pads", 2 * axes, 0, 0));
  w.begin.assign(pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(axes));
  w.end.assign(pads.begin() + static_cast<std::ptrdiff_t>(axes), pads.end());
  const int64_t channels = x.dims[1] / cells;
  Dims in = {x.dims[0], x.dims[1]}, dims = {x.dims[0], channels};
  Dims filter = {x.dims[1], 1};
  std::vector<int64_t> more;
  for (size_t a = 0; a < axes; ++a) {
    const int64_t room = image[a] + w.begin[a] + w.end[a] - w.reach(a);
    BOWLINE_REQUIRE_CODE(room >= 0, Code::bad_file, "Blocks {} are larger than images {}.",
                         shape_text(block), shape_text(image));
    in.push_back(room / w.strides[a] + 1);
    more.push_back(room % w.strides[a]);
    filter.push_back(block[a]);
    dims.push_back(image[a]);
  }
  BOWLINE_REQUIRE_CODE(x.dims[1] * cells <= kMostComputed, Code::unsupported,
                       "{} in blocks of {} has too many channels.", shape_text(x.dims),
                       shape_text(block));
  std::vector<double> ones(static_cast<size_t>(x.dims[1] * cells), 0);
  for (int64_t i = 0; i < x.dims[1]; ++i) {
    ones[static_cast<size_t>(i * cells + i % cells)] = 1;
  }
  std::vector<Attribute> attributes = attributes_of(w);
  attributes.emplace_back("output_padding", graph_dims(more));
  attributes.emplace_back("groups", channels);
  const Term filters = c.m.constant(ConstantTensor::of(x.dtype, filter, ones));
  c.out(0, c.m.op("ConvTranspose", {c.m.reshape(x, in), filters}, attributes, x.dtype, dims));
  return {};
}

std::vector<int64_t> spatial_axes(const Term& x) {
  std::vector<int64_t> axes = all_axes(x.rank());
  axes.erase(axes.begin(), axes.begin() + 2);
  return axes;
}

Status global_average_pool(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_REQUIRE_CODE(x.rank() >= 3, Code::bad_file, "{} has no spatial axes.",
                       shape_text(x.dims));
  Dims dims(x.rank(), 1);
  dims[0] = x.dims[0];
  dims[1] = x.dims[1];
  c.out(0, c.m.op("GlobalAveragePool", {x}, {}, x.dtype, dims));
  return {};
}

Status global_lp_pool(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const int64_t p, c.integer("p", 2));
  BOWLINE_REQUIRE_CODE(p == 1 || p == 2, Code::unsupported,
                       "Attribute p is {}. It must be 1 or 2 for GlobalLpPool.", p);
  BOWLINE_REQUIRE_CODE(x.rank() >= 3, Code::bad_file, "{} has no spatial axes.",
                       shape_text(x.dims));
  const Term powers = c.m.unary(p == 1 ? "Abs" : "Square", x);
  const Term sum = c.m.reduce("ReduceSum", powers, spatial_axes(x), true);
  c.out(0, p == 1 ? sum : c.m.unary("Sqrt", sum));
  return {};
}

Status global_max_pool(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_REQUIRE_CODE(x.rank() >= 3, Code::bad_file, "{} has no spatial axes.",
                       shape_text(x.dims));
  c.out(0, c.m.reduce("ReduceMax", x, spatial_axes(x), true));
  return {};
}

// Writes the values to the positions that MaxPool found, zeros elsewhere. Positions index the whole
// output.
Status max_unpool(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const Term places, c.in(1));
  BOWLINE_TRY_ASSIGN(const Window w, window_of(c, x, {}));
  BOWLINE_REQUIRE_CODE(places.dims == x.dims, Code::bad_file, "Indices {} are not those of {}.",
                       shape_text(places.dims), shape_text(x.dims));
  Dims inner = {x.dims[0], x.dims[1]};
  for (size_t a = 0; a < w.axes(); ++a) {
    BOWLINE_REQUIRE_CODE(x.dims[a + 2] <= INT32_MAX, Code::bad_file, "{} is too large.",
                         shape_text(x.dims));
    inner.push_back((x.dims[a + 2] - 1) * w.strides[a] + w.reach(a) - w.begin[a] - w.end[a]);
  }
  BOWLINE_TRY_ASSIGN(const int64_t cells, elements_of(inner));
  BOWLINE_REQUIRE_CODE(cells <= INT32_MAX, Code::unsupported, "{} is too large.",
                       shape_text(inner));
  const int64_t count = x.elements();
  const Term i = c.m.reshape(c.m.cast(places, DType::i32), {count});
  const Term y =
      c.m.op("ScatterElements", {c.m.filled(x.dtype, {cells}, 0), i, c.m.reshape(x, {count})},
             {{"axis", 0}}, x.dtype, {cells});
  Term out = c.m.reshape(y, inner);
  if (c.has(2)) {
    // The positions refer to the smaller shape. The rest of the larger shape is zeros at the end.
    BOWLINE_TRY_ASSIGN(const Dims outer, c.integers(2));
    BOWLINE_TRY(require_small("Output_shape", outer));
    BOWLINE_REQUIRE_CODE(outer.size() == inner.size(), Code::bad_file,
                         "Output_shape {} does not fit {}.", shape_text(outer), shape_text(inner));
    std::vector<int64_t> end;
    for (size_t a = 0; a < outer.size(); ++a) {
      BOWLINE_REQUIRE_CODE(outer[a] >= inner[a], Code::unsupported,
                           "Output_shape {} is smaller than {}.", shape_text(outer),
                           shape_text(inner));
      end.push_back(outer[a] - inner[a]);
    }
    const std::vector<int64_t> begin(end.size(), 0);
    out = c.m.op("Pad", {out}, {{"begin", graph_dims(begin)}, {"end", graph_dims(end)}}, x.dtype,
                 outer);
  }
  c.out(0, out);
  return {};
}

// Convolves integers to i32. If f32 cannot hold the sum of all products exactly, the channels are
// split into several convolutions. x is padded after the zero point is subtracted.
Result<Term> of_integers(Context& c, const Term& x, const Term& weight, const Term& zero_x,
                         Term zero_weight) {
  BOWLINE_REQUIRE_CODE(weight.rank() >= 3, Code::bad_file, "Weight {} has no spatial axes.",
                       shape_text(weight.dims));
  int64_t window = 1;
  for (size_t a = 2; a < weight.rank(); ++a) {
    window *= weight.dims[a];
  }
  const int64_t channels = weight.dims[1];
  const bool single = channels * window <= kExactProducts;
  BOWLINE_TRY_ASSIGN(const int64_t groups, c.integer("group", 1));
  BOWLINE_REQUIRE_CODE(single || (window <= kExactProducts && groups == 1), Code::unsupported,
                       "Sums of {} products in {} groups are not exact in f32.", channels * window,
                       groups);
  if (zero_weight.source != nullptr) {
    Dims dims(weight.rank(), 1);
    dims[0] = zero_weight.elements();
    zero_weight = c.m.reshape(zero_weight, dims);
  }
  const Term left = centred(c, x, zero_x);
  const Term right = centred(c, weight, zero_weight);
  const int64_t step = single ? channels : kExactProducts / window;
  Term sum;
  for (int64_t start = 0; start < std::max<int64_t>(channels, 1);
       start += std::max<int64_t>(step, 1)) {
    const int64_t length = std::min(channels - start, step);
    const Term input = single ? left : c.m.slice(left, 1, start, length);
    BOWLINE_TRY_ASSIGN(const Term part,
                       convolution(c, input, c.m.slice(right, 1, start, length), nullptr));
    const Term whole = c.m.cast(part, DType::i32);
    sum = start == 0 ? whole : c.m.add(sum, whole);
  }
  return sum;
}

Status conv_integer(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const Term weight, c.in(1));
  BOWLINE_TRY_ASSIGN(const Term zero_x, c.optional(2));
  BOWLINE_TRY_ASSIGN(const Term zero_weight, c.optional(3));
  BOWLINE_TRY_ASSIGN(const Term y, of_integers(c, x, weight, zero_x, zero_weight));
  c.out(0, y);
  return {};
}

// saturate(round((conv + bias) scale_x scale_weight / scale_y) + zero_y)
Status qlinear_conv(Context& c) {
  Term t[8];
  for (size_t i = 0; i < 8; ++i) {
    BOWLINE_TRY_ASSIGN(t[i], c.in(i));
  }
  BOWLINE_TRY_ASSIGN(Term sum, of_integers(c, t[0], t[3], t[2], t[5]));
  Dims channels(sum.rank(), 1);
  const auto beside = [&](const Term& v) {
    channels[1] = v.elements();
    return c.m.reshape(v, channels);
  };
  if (c.has(8)) {
    BOWLINE_TRY_ASSIGN(const Term bias, c.in(8));
    sum = c.m.add(sum, beside(bias));
  }
  const Term scale = c.m.div(c.m.mul(t[1], beside(t[4])), t[6]);
  c.out(0, saturated(c, c.m.mul(c.m.cast(sum, DType::f32), scale), t[7]));
  return {};
}

constexpr Lowering kWindowLowerings[] = {
    {"Conv", conv},
    {"CausalConvWithState", causal_conv},
    {"ConvTranspose", conv_transpose},
    {"MaxPool", max_pool},
    {"AveragePool", average_pool},
    {"LpPool", lp_pool},
    {"GlobalLpPool", global_lp_pool},
    {"Col2Im", col_to_image},
    {"GlobalAveragePool", global_average_pool},
    {"GlobalMaxPool", global_max_pool},
    {"MaxUnpool", max_unpool},
    {"ConvInteger", conv_integer},
    {"QLinearConv", qlinear_conv},
};

}  // namespace

std::span<const Lowering> lowerings_of_window() { return kWindowLowerings; }

}  // namespace bowline::onnx
