// Operators that slide a window over the spatial axes: convolutions and pooling.
#include <algorithm>

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

std::vector<int64_t> sizes(Context& c, const char* name, size_t axes, int64_t otherwise,
                           int64_t least) {
  const std::vector<int64_t> given = c.list(name);
  const std::vector<int64_t> out = given.empty() ? std::vector(axes, otherwise) : given;
  const bool legal =
      std::ranges::all_of(out, [&](int64_t v) { return v >= least && v <= kMostSize; });
  require(out.size() == axes && legal, "{} {} do not fit {} spatial axes.", name, out, axes);
  return out;
}

Window window_with(Context& c, const std::vector<int64_t>& kernel) {
  const size_t axes = kernel.size();
  const Dims pads = sizes(c, "pads", 2 * axes, 0, 0);
  return {kernel, sizes(c, "strides", axes, 1, 1), sizes(c, "dilations", axes, 1, 1),
          pads.part(0, axes), pads.part(axes, 2 * axes)};
}

// `kernel` is the default for a missing attribute. If `kernel` is empty, the attribute is required.
Window window_of(Context& c, const Term& x, const std::vector<int64_t>& kernel) {
  require(x.rank() >= 3, "{} has no spatial axes.", x.dims);
  const std::vector<int64_t> given = c.list("kernel_shape");
  const std::vector<int64_t> own = given.empty() ? kernel : given;
  const bool same = kernel.empty() || own == kernel;
  const bool legal = std::ranges::all_of(own, [](int64_t k) { return k >= 1 && k <= kMostSize; });
  require(same && legal && own.size() == x.rank() - 2, "The window {} does not fit {}.", own,
          x.dims);
  return window_with(c, own);
}

// Splits the padding into halves. An odd element goes to the end (upper) or the start.
void share_pads(Window& w, size_t a, int64_t total, bool upper) {
  w.begin[a] = upper ? total / 2 : total - total / 2;
  w.end[a] = total - w.begin[a];
}

std::string auto_pad(Context& c) {
  return c.choice("auto_pad", "NOTSET", "NOTSET VALID SAME_UPPER SAME_LOWER", "Auto_pad");
}

// If a window is shorter than its stride, the total padding can be negative. ONNX Runtime,
// TensorFlow and the ONNX reference then start at different elements. They agree for totals of at
// least `least`.
void require_pads(const std::string& kind, const Window& w, size_t a, int64_t total,
                  int64_t least) {
  support(total >= least,
          "With auto_pad \"{}\" a window of {} and a stride of {} skip {} elements "
          "of axis {}, and tools disagree about which. Export the model with explicit pads.",
          kind, w.reach(a), w.strides[a], -total, a + 2);
}

// Computes the pads from auto_pad, and the spatial dims of the output.
Dims slid_over(Context& c, const Term& x, Window& w, bool ceil) {
  const std::string kind = auto_pad(c);
  Dims out;
  for (size_t a = 0; a < w.axes(); ++a) {
    const int64_t in = x.dims[a + 2];
    if (kind == "VALID") {
      share_pads(w, a, 0, true);
    } else if (kind != "NOTSET") {
      const int64_t wanted = (in + w.strides[a] - 1) / w.strides[a];
      const int64_t total = (wanted - 1) * w.strides[a] + w.reach(a) - in;
      require_pads(kind, w, a, total, -1);
      share_pads(w, a, std::max<int64_t>(total, 0), kind == "SAME_UPPER");
    }
    const int64_t room = in + w.begin[a] + w.end[a] - w.reach(a);
    require(room >= 0, "The window {} is larger than {} with its pads.", w.kernel, x.dims);
    int64_t n = (room + (ceil ? w.strides[a] - 1 : 0)) / w.strides[a] + 1;
    // A window that would start after the last element is omitted.
    if (ceil && (n - 1) * w.strides[a] >= in + w.begin[a]) {
      --n;
    }
    out.push_back(n);
  }
  return out;
}

std::vector<Attribute> attributes_of(const Window& w, const std::vector<Attribute>& more) {
  std::vector<Attribute> out = {{"strides", graph_dims(w.strides)},
                                {"pads", w.pads()},
                                {"dilations", graph_dims(w.dilations)}};
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

// The inputs of a convolution, with the bias if there is one.
Terms with_bias(const Term& x, const Term& weight, const Term& bias) {
  return bias ? Terms{x, weight, bias} : Terms{x, weight};
}

Window window_of_weight(Context& c, const Term& x, const Term& weight) {
  require(x.rank() >= 3 && weight.rank() == x.rank(), "Weight {} does not fit {}.", weight.dims,
          x.dims);
  return window_of(c, x, weight.dims.part(2, weight.rank()));
}

// Convolves x in the dtype of the computation.
Term convolution(Context& c, const Term& x, const Term& weight, const Term& bias) {
  Window w = window_of_weight(c, x, weight);
  const int64_t groups = c.integer("group", 1);
  const Dims dims = Dims{x.dims[0], weight.dims[0]}.joined(slid_over(c, x, w, false));
  return c.m.op("Conv", with_bias(x, weight, bias), attributes_of(w, {{"groups", groups}}), x.dtype,
                dims);
}

Term conv(Context& c) { return convolution(c, c.in(0), c.in(1), c.optional(2)); }

// Depthwise causal convolution over the past state and the input. The last elements of both become
// the state for the next run.
Term causal_conv(Context& c) {
  const Term x = c.in(0), weight = c.in(1);
  const bool silu =
      c.choice("activation", "none", "none silu swish", "Activation", Code::unsupported) != "none";
  const bool fits = x.rank() == 3 && weight.rank() == 3 && weight.dims[0] == x.dims[1] &&
                    weight.dims[1] == 1 && weight.dims[2] >= 1;
  require(fits, "Weight {} does not fit {}.", weight.dims, x.dims);
  const Dims seen = {x.dims[0], x.dims[1], weight.dims[2] - 1};
  const Term given = c.optional(3);
  require(!given || given.dims == seen, "The state {} is not {}.", given.dims, seen);
  const Term past = given || seen[2] == 0 ? given : c.m.filled(x.dtype, seen, 0);
  const Term all = seen[2] > 0 ? c.m.concat({past, x}, 2) : x;
  const Term y = c.m.op("Conv", with_bias(all, weight, c.optional(2)), {{"groups", x.dims[1]}},
                        x.dtype, x.dims);
  c.out(1, c.m.slice(all, 2, x.dims[2], seen[2]));
  return silu ? c.m.unary("Silu", y) : y;
}

// The pads come from output_shape or auto_pad: the size without pads minus the requested size.
Term conv_transpose(Context& c) {
  const Term x = c.in(0), weight = c.in(1);
  Window w = window_of_weight(c, x, weight);
  const int64_t groups = c.integer("group", 1);
  const std::string kind = auto_pad(c);
  std::vector<int64_t> more = sizes(c, "output_padding", w.axes(), 0, 0);
  std::vector<int64_t> wanted = c.list("output_shape");
  require_small("Output_shape", wanted);
  require(groups >= 1 && groups <= INT32_MAX, "Attribute group is {}.", groups);
  if (wanted.size() == x.rank()) {
    wanted.erase(wanted.begin(), wanted.begin() + 2);
  }
  require(wanted.empty() || wanted.size() == w.axes(), "Output_shape {} does not fit {}.", wanted,
          x.dims);
  Dims dims = {x.dims[0], weight.dims[1] * groups};
  for (size_t a = 0; a < w.axes(); ++a) {
    const int64_t in = x.dims[a + 2];
    require(in <= INT32_MAX, "Axis {} of {} is too long.", a + 2, x.dims);
    const int64_t whole = (in - 1) * w.strides[a] + w.reach(a) + more[a];
    const bool same = kind == "SAME_UPPER" || kind == "SAME_LOWER";
    if (kind == "VALID" && wanted.empty()) {
      share_pads(w, a, 0, true);
    } else if (!wanted.empty() || same) {
      const int64_t total = whole - (wanted.empty() ? in * w.strides[a] : wanted[a]);
      if (wanted.empty()) {
        require_pads(kind, w, a, total, 0);
      }
      more[a] += std::max<int64_t>(-total, 0);
      share_pads(w, a, std::max<int64_t>(total, 0), kind == "SAME_UPPER");
    }
    dims.push_back((in - 1) * w.strides[a] + w.reach(a) + more[a] - w.begin[a] - w.end[a]);
  }
  return c.m.op("ConvTranspose", with_bias(x, weight, c.optional(2)),
                attributes_of(w, {{"output_padding", graph_dims(more)}, {"groups", groups}}),
                x.dtype, dims);
}

Term pooled(Context& c, const char* op, const Term& x, std::vector<Attribute> attributes) {
  Window w = window_of(c, x, {});
  const bool ceil = c.flag("ceil_mode", false);
  const Dims dims = x.dims.part(0, 2).joined(slid_over(c, x, w, ceil));
  attributes.emplace_back("window", graph_dims(w.kernel));
  attributes.emplace_back("ceil", ceil);
  return c.m.op(op, {x}, attributes_of(w, attributes), x.dtype, dims);
}

// 8-bit integers are exact in f32.
Term max_pool(Context& c) {
  const Term x = c.in(0);
  const bool narrow = x.dtype == DType::u8 || x.dtype == DType::i8;
  if (!c.wants(1)) {
    c.ignore("storage_order");  // applies to the indices only
  }
  return cast(pooled(c, "MaxPool", narrow ? cast(x, DType::f32) : x, {}), x.dtype);
}

Term average_pool(Context& c) {
  return pooled(c, "AveragePool", c.in(0), {{"count_pads", c.flag("count_include_pad", false)}});
}

// (sum of |x|^p in the window)^(1/p). The sum is a depthwise convolution with ones.
Term lp_pool(Context& c) {
  const Term x = c.in(0);
  const int64_t p = c.integer("p", 2);
  const bool ceil = c.flag("ceil_mode", false);
  support(p >= 1 && p <= 64, "Attribute p is {}. It must be from 1 to 64.", p);
  Window w = window_of(c, x, {});
  const Dims spatial = slid_over(c, x, w, ceil);
  for (size_t a = 0; a < w.axes(); ++a) {
    // The last window may extend beyond the pads.
    const int64_t end = (spatial[a] - 1) * w.strides[a] + w.reach(a) - x.dims[a + 2] - w.begin[a];
    w.end[a] = std::max(w.end[a], end);
  }
  const Dims dims = x.dims.part(0, 2).joined(spatial), ones = Dims{x.dims[1], 1}.joined(w.kernel);
  const Term size = abs(x);
  const Term powers = p == 1 ? size : p == 2 ? square(x) : pow(size, p);
  const Term sum = c.m.op("Conv", {powers, c.m.filled(x.dtype, ones, 1)},
                          attributes_of(w, {{"groups", x.dims[1]}}), x.dtype, dims);
  return p == 1 ? sum : p == 2 ? sqrt(sum) : pow(sum, 1 / static_cast<double>(p));
}

// Adds column blocks [batch, channels * block, count] to their positions in the image: a transposed
// convolution whose filters have a single 1.
Term col_to_image(Context& c) {
  const Term x = c.in(0);
  const std::vector<int64_t> image = c.integers(1), block = c.integers(2);
  const size_t axes = image.size();
  require_small("Image_shape", image);
  require_small("Block_shape", block);
  int64_t cells = 1;
  for (const int64_t b : block) {
    support(b >= 1 && cells * b <= 4096, "Blocks {} are too large.", block);
    cells *= b;
  }
  const bool fits = x.rank() == 3 && axes >= 1 && block.size() == axes && x.dims[1] % cells == 0;
  require(fits, "Blocks {} of images {} do not fit {}.", block, image, x.dims);
  const Window w = window_with(c, block);
  const int64_t channels = x.dims[1] / cells;
  const Dims dims = Dims{x.dims[0], channels}.joined(image);
  Dims in = x.dims.part(0, 2);
  std::vector<int64_t> more;
  for (size_t a = 0; a < axes; ++a) {
    const int64_t room = image[a] + w.begin[a] + w.end[a] - w.reach(a);
    require(room >= 0, "Blocks {} are larger than images {}.", block, image);
    in.push_back(room / w.strides[a] + 1);
    more.push_back(room % w.strides[a]);
  }
  support(x.dims[1] * cells <= kMostComputed, "{} in blocks of {} has too many channels.", x.dims,
          block);
  const Term filters = c.m.table(x.dtype, Dims{x.dims[1], 1}.joined(block),
                                 [&](int64_t i) { return i / cells % cells == i % cells; });
  return c.m.op("ConvTranspose", {c.m.reshape(x, in), filters},
                attributes_of(w, {{"output_padding", graph_dims(more)}, {"groups", channels}}),
                x.dtype, dims);
}

std::vector<int64_t> spatial_axes(const Term& x) {
  require(x.rank() >= 3, "{} has no spatial axes.", x.dims);
  const std::vector<int64_t> axes = all_axes(x.rank());
  return {axes.begin() + 2, axes.end()};
}

Term global_average_pool(Context& c) {
  const Term x = c.in(0);
  Dims dims = x.dims;
  for (const int64_t axis : spatial_axes(x)) {
    dims[axis] = 1;
  }
  return c.m.op("GlobalAveragePool", {x}, {}, x.dtype, dims);
}

Term global_lp_pool(Context& c) {
  const Term x = c.in(0);
  const int64_t p = c.integer("p", 2);
  support(p == 1 || p == 2, "Attribute p is {}. It must be 1 or 2 for GlobalLpPool.", p);
  const Term sum = c.m.reduce("ReduceSum", p == 1 ? abs(x) : square(x), spatial_axes(x), true);
  return p == 1 ? sum : sqrt(sum);
}

Term global_max_pool(Context& c) {
  return c.m.reduce("ReduceMax", c.in(0), spatial_axes(c.in(0)), true);
}

// Writes the values to the positions that MaxPool found, zeros elsewhere. Positions index the whole
// output.
Term max_unpool(Context& c) {
  const Term x = c.in(0), places = c.in(1);
  const Window w = window_of(c, x, {});
  require(places.dims == x.dims, "Indices {} are not those of {}.", places.dims, x.dims);
  Dims inner = {x.dims[0], x.dims[1]};
  for (size_t a = 0; a < w.axes(); ++a) {
    require(x.dims[a + 2] <= INT32_MAX, "{} is too large.", x.dims);
    inner.push_back((x.dims[a + 2] - 1) * w.strides[a] + w.reach(a) - w.begin[a] - w.end[a]);
  }
  const int64_t cells = required(elements_of(inner));
  support(cells <= INT32_MAX, "{} is too large.", inner);
  const int64_t count = x.elements();
  const Term i = c.m.reshape(cast(places, DType::i32), {count});
  const Term y =
      c.m.op("ScatterElements", {c.m.filled(x.dtype, {cells}, 0), i, c.m.reshape(x, {count})},
             {{"axis", 0}}, x.dtype, {cells});
  const Term out = c.m.reshape(y, inner);
  if (!c.has(2)) {
    return out;
  }
  // The positions refer to the smaller shape. The rest of the larger shape is zeros at the end.
  const Dims outer = c.integers(2);
  require_small("Output_shape", outer);
  require(outer.size() == inner.size(), "Output_shape {} does not fit {}.", outer, inner);
  Dims end = outer;
  for (size_t a = 0; a < outer.size(); ++a) {
    support(outer[a] >= inner[a], "Output_shape {} is smaller than {}.", outer, inner);
    end[a] -= inner[a];
  }
  return c.m.pad(out, Dims(end.size(), 0), end);
}

// Convolves integers to i32. If f32 cannot hold the sum of all products exactly, the channels are
// split into several convolutions. x is padded after the zero point is subtracted.
Term of_integers(Context& c, const Term& x, const Term& weight, const Term& zero_x,
                 Term zero_weight) {
  require(weight.rank() >= 3, "Weight {} has no spatial axes.", weight.dims);
  const int64_t window = weight.dims.part(2, weight.rank()).product();
  const int64_t channels = weight.dims[1];
  const bool single = channels * window <= kExactProducts;
  const int64_t groups = c.integer("group", 1);
  support(single || (window <= kExactProducts && groups == 1),
          "Sums of {} products in {} groups are not exact in f32.", channels * window, groups);
  zero_weight = zero_weight ? c.m.along(zero_weight, 0, weight.rank()) : zero_weight;
  const Term left = centred(x, zero_x);
  const Term right = centred(weight, zero_weight);
  const int64_t step = single ? channels : kExactProducts / window;
  Term sum;
  for (int64_t start = 0; start < std::max<int64_t>(channels, 1);
       start += std::max<int64_t>(step, 1)) {
    const int64_t length = std::min(channels - start, step);
    const Term input = single ? left : c.m.slice(left, 1, start, length);
    const Term part = convolution(c, input, c.m.slice(right, 1, start, length), {});
    const Term whole = cast(part, DType::i32);
    sum = sum ? sum + whole : whole;
  }
  return sum;
}

Term conv_integer(Context& c) {
  return of_integers(c, c.in(0), c.in(1), c.optional(2), c.optional(3));
}

// saturate(round((conv + bias) scale_x scale_weight / scale_y) + zero_y)
Term qlinear_conv(Context& c) {
  Term t[8];
  for (size_t i = 0; i < 8; ++i) {
    t[i] = c.in(i);
  }
  Term sum = of_integers(c, t[0], t[3], t[2], t[5]);
  const auto beside = [&](const Term& v) { return c.m.along(v, 1, sum.rank()); };
  sum = c.has(8) ? sum + beside(c.in(8)) : sum;
  const Term scale = t[1] * beside(t[4]) / t[6];
  return saturated(cast(sum, DType::f32) * scale, t[7]);
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
