// Normalizations and Dropout.
#include "onnx/lowering.h"

namespace bowline::onnx {
namespace {

// Reshapes [n] to [1, n, 1, ..], to broadcast along axis 1.
Term beside_channels(Context& c, const Term& v, size_t rank) {
  Dims dims(rank, 1);
  dims[1] = v.elements();
  return c.m.reshape(v, dims);
}

std::vector<int64_t> without_channels(size_t rank) {
  std::vector<int64_t> axes = all_axes(rank);
  axes.erase(axes.begin() + 1);
  return axes;
}

// Computed in f32.
struct Moments {
  Term mean, centred, variance;  // with the axes kept
};

Moments moments_of(Context& c, const Term& given, const std::vector<int64_t>& axes) {
  const Term x = in_f32(c, given);
  Moments out;
  out.mean = c.m.reduce("ReduceMean", x, axes, true);
  out.centred = c.m.sub(x, out.mean);
  out.variance = c.m.reduce("ReduceMean", c.m.unary("Square", out.centred), axes, true);
  return out;
}

struct BatchNorm {
  Term x, scale, bias, mean, variance;
  double eps = 0, momentum = 0;
};

Result<BatchNorm> batch_norm_of(Context& c) {
  BatchNorm b;
  Term* const inputs[] = {&b.x, &b.scale, &b.bias, &b.mean, &b.variance};
  for (size_t i = 0; i < 5; ++i) {
    BOWLINE_TRY_ASSIGN(*inputs[i], c.in(i));
  }
  BOWLINE_TRY_ASSIGN(b.eps, c.real("epsilon", 1e-5));
  BOWLINE_TRY_ASSIGN(b.momentum, c.real("momentum", 0.9));
  BOWLINE_REQUIRE_CODE(b.x.rank() >= 2, Code::bad_file, "{} has no channels.",
                       shape_text(b.x.dims));
  for (size_t i = 1; i < 5; ++i) {
    BOWLINE_REQUIRE_CODE(inputs[i]->dims == Dims{b.x.dims[1]}, Code::bad_file,
                         "Input {} has the shape {}, x {}.", i, shape_text(inputs[i]->dims),
                         shape_text(b.x.dims));
  }
  b.mean = c.m.statistic(b.mean, c.m.name() + ".running_mean");
  b.variance = c.m.statistic(b.variance, c.m.name() + ".running_variance");
  return b;
}

// Inference: x * factor + shift from the running statistics of each channel. Computed in f32,
// because a mean far from 0 cancels most digits of x.
Term by_running_statistics(Context& c, const BatchNorm& b) {
  const size_t rank = b.x.rank();
  const Term deviation = c.m.unary("Rsqrt", c.m.add(in_f32(c, b.variance), b.eps));
  const Term factor = c.m.mul(in_f32(c, b.scale), deviation);
  const Term shift = c.m.sub(in_f32(c, b.bias), c.m.mul(in_f32(c, b.mean), factor));
  const Term scaled = c.m.mul(in_f32(c, b.x), beside_channels(c, factor, rank));
  return c.m.cast(c.m.add(scaled, beside_channels(c, shift, rank)), b.x.dtype);
}

// Training uses the statistics of the batch; outputs 1 and 2 are the running statistics. If no node
// reads these outputs, they become storages that a training step updates as PyTorch does.
Status batch_normalization(Context& c) {
  BOWLINE_TRY_ASSIGN(const BatchNorm b, batch_norm_of(c));
  BOWLINE_TRY_ASSIGN(const int64_t training, c.integer("training_mode", 0));
  if (training == 0) {
    c.out(0, by_running_statistics(c, b));
    return {};
  }
  const size_t rank = b.x.rank();
  const bool moves = Maker::is_statistic(b.mean) && Maker::is_statistic(b.variance);
  if (moves && !c.wants(1) && !c.wants(2)) {
    const Dims channels = b.scale.dims;
    c.m.note_once(
        "BatchNormalization in training mode: as in the file, a training step uses the statistics "
        "of "
        "the batch. 'bowline run' uses the running statistics, except with --step training=1.");
    c.out(0, c.m.ops("BatchNorm", {b.x, b.scale, b.bias, b.mean, b.variance},
                     {{"eps", b.eps}, {"momentum", 1 - b.momentum}},
                     {{b.x.dtype, b.x.dims},
                      {DType::f32, channels},
                      {DType::f32, channels},
                      {DType::f32, channels},
                      {DType::f32, channels}})[0]);
    return {};
  }
  const Moments now = moments_of(c, b.x, without_channels(rank));
  const Term root = c.m.unary("Rsqrt", c.m.add(now.variance, b.eps));
  const Term y = c.m.mul(c.m.mul(now.centred, root), beside_channels(c, in_f32(c, b.scale), rank));
  c.out(0, c.m.cast(c.m.add(y, beside_channels(c, in_f32(c, b.bias), rank)), b.x.dtype));
  const auto running = [&](const Term& before, const Term& batch) {
    const Term moved = c.m.add(c.m.mul(in_f32(c, before), b.momentum),
                               c.m.mul(c.m.reshape(batch, before.dims), 1 - b.momentum));
    return c.m.cast(moved, before.dtype);
  };
  c.out(1, running(b.mean, now.mean));
  c.out(2, running(b.variance, now.variance));
  return {};
}

// Normalizes each channel of each batch row separately.
Status instance_normalization(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const Term scale, c.in(1));
  BOWLINE_TRY_ASSIGN(const Term bias, c.in(2));
  BOWLINE_TRY_ASSIGN(const double eps, c.real("epsilon", 1e-5));
  const bool fits = x.rank() >= 3 && scale.dims == Dims{x.dims[1]} && bias.dims == scale.dims;
  BOWLINE_REQUIRE_CODE(fits, Code::bad_file, "Scale {} and bias {} do not fit {}.",
                       shape_text(scale.dims), shape_text(bias.dims), shape_text(x.dims));
  c.out(0, c.m.op("InstanceNorm", {x, scale, bias}, {{"eps", eps}}, x.dtype, x.dims));
  return {};
}

Result<double> epsilon_of(Context& c) {
  BOWLINE_TRY_ASSIGN(const double eps, c.real("epsilon", 1e-5));
  BOWLINE_TRY_ASSIGN(const int64_t stash, c.integer("stash_type", 1));
  BOWLINE_REQUIRE_CODE(stash == 1, Code::unsupported,
                       "Stash type {} is not supported; only f32 is.", stash);
  return eps;
}

// The input of a norm over all axes from `axis` on, as rows.
struct NormRows {
  Term x, flat, gain;  // as in the node, [rows, n], [n]
  Dims row;
  std::vector<int64_t> axes;  // axes of a row
  double eps = 0;

  // Reshapes a value that broadcasts to a row to [n].
  Term as_row(Context& c, const Term& t) const {
    return c.m.reshape(c.m.expand(t, row), {flat.dims[1]});
  }
};

Result<NormRows> rows_of(Context& c) {
  NormRows r;
  BOWLINE_TRY_ASSIGN(r.x, c.in(0));
  BOWLINE_TRY_ASSIGN(const Term scale, c.in(1));
  BOWLINE_TRY_ASSIGN(const int64_t given, c.integer("axis", -1));
  BOWLINE_TRY_ASSIGN(const int64_t axis, axis_of(given, r.x.rank()));
  BOWLINE_TRY_ASSIGN(r.eps, epsilon_of(c));
  const std::vector<int64_t> every = all_axes(r.x.rank());
  r.axes.assign(every.begin() + axis, every.end());
  r.row.assign(r.x.dims.begin() + axis, r.x.dims.end());
  const int64_t n = Term{r.x.dtype, r.row, nullptr}.elements();
  r.flat = c.m.reshape(r.x, {n == 0 ? 0 : r.x.elements() / n, n});
  r.gain = r.as_row(c, scale);
  return r;
}

Status layer_normalization(Context& c) {
  BOWLINE_TRY_ASSIGN(const NormRows r, rows_of(c));
  Term bias = c.m.filled(r.x.dtype, r.gain.dims, 0);
  if (c.has(2)) {
    BOWLINE_TRY_ASSIGN(bias, c.in(2));
    bias = r.as_row(c, bias);
  }
  const Term y =
      c.m.op("LayerNorm", {r.flat, r.gain, bias}, {{"eps", r.eps}}, r.x.dtype, r.flat.dims);
  c.out(0, c.m.reshape(y, r.x.dims));
  if (c.wants(1) || c.wants(2)) {
    const Moments now = moments_of(c, r.x, r.axes);
    c.out(1, now.mean);
    c.out(2, c.m.unary("Rsqrt", c.m.add(now.variance, r.eps)));
  }
  return {};
}

// Normalizes groups of channels of each batch row. Scale and bias have an element per channel;
// before operator set 21 per group.
Status group_normalization(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  Term factor[2];
  BOWLINE_TRY_ASSIGN(const int64_t groups, c.integer("num_groups", 0));
  BOWLINE_TRY_ASSIGN(const double eps, epsilon_of(c));
  const bool fits = x.rank() >= 2 && groups >= 1 && x.dims[1] % groups == 0;
  BOWLINE_REQUIRE_CODE(fits, Code::bad_file, "{} cannot be split into {} groups of channels.",
                       shape_text(x.dims), groups);
  const int64_t channels = x.dims[1];
  for (size_t i = 0; i < 2; ++i) {
    BOWLINE_TRY_ASSIGN(factor[i], c.in(i + 1));
    const bool by_group = c.opset < 21;
    BOWLINE_REQUIRE_CODE(factor[i].dims == Dims{by_group ? groups : channels}, Code::bad_file,
                         "Input {} has the shape {}, x {} in {} groups.", i + 1,
                         shape_text(factor[i].dims), shape_text(x.dims), groups);
    if (by_group) {
      const Term column = c.m.reshape(factor[i], {groups, 1});
      factor[i] = c.m.reshape(c.m.expand(column, {groups, channels / groups}), {channels});
    }
  }
  c.out(0, c.m.op("GroupNorm", {x, factor[0], factor[1]}, {{"groups", groups}, {"eps", eps}},
                  x.dtype, x.dims));
  return {};
}

// SimplifiedLayerNormalization of ONNX Runtime is the same, with 1 / rms as output 1.
Status rms_normalization(Context& c) {
  BOWLINE_TRY_ASSIGN(const NormRows r, rows_of(c));
  const Term y = c.m.op("RmsNorm", {r.flat, r.gain}, {{"eps", r.eps}}, r.x.dtype, r.flat.dims);
  c.out(0, c.m.reshape(y, r.x.dims));
  if (c.wants(1)) {
    const Term mean = c.m.reduce("ReduceMean", c.m.unary("Square", in_f32(c, r.x)), r.axes, true);
    c.out(1, c.m.unary("Rsqrt", c.m.add(mean, r.eps)));
  }
  return {};
}

// x / (sum |x|^p)^(1/p) along an axis. Rows of zeros stay zero.
Status lp_normalization(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term given_x, c.in(0));
  const Term x = in_f32(c, given_x);
  BOWLINE_TRY_ASSIGN(const int64_t given, c.integer("axis", -1));
  BOWLINE_TRY_ASSIGN(const int64_t axis, axis_of(given, x.rank()));
  BOWLINE_TRY_ASSIGN(const int64_t p, c.integer("p", 2));
  BOWLINE_REQUIRE_CODE(p == 1 || p == 2, Code::bad_file, "Attribute p is {}. It must be 1 or 2.",
                       p);
  const Term powers = c.m.unary(p == 1 ? "Abs" : "Square", x);
  const Term sum = c.m.reduce("ReduceSum", powers, {axis}, true);
  const Term none = c.m.compare("Equal", sum, c.m.scalar(x.dtype, 0));
  const Term divisor = c.m.where(none, c.m.scalar(x.dtype, 1), sum);
  c.out(0, c.m.cast(c.m.div(x, p == 1 ? divisor : c.m.unary("Sqrt", divisor)), given_x.dtype));
  return {};
}

// (x - mean) / (deviation + 1e-9)
Status mean_variance_normalization(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(std::vector<int64_t> axes, c.list("axes"));
  if (!c.has_attribute("axes")) {
    axes = {0, 2, 3};
  }
  const Moments now = moments_of(c, x, axes);
  const Term y = c.m.div(now.centred, c.m.add(c.m.unary("Sqrt", now.variance), 1e-9));
  c.out(0, c.m.cast(y, x.dtype));
  return {};
}

// x / (bias + alpha / size * (sum of squares of the neighbouring channels))^beta. The sum is a
// product with a band matrix.
Status lrn(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term given, c.in(0));
  const Term x = in_f32(c, given);
  BOWLINE_TRY_ASSIGN(const double alpha, c.real("alpha", 0.0001));
  BOWLINE_TRY_ASSIGN(const double beta, c.real("beta", 0.75));
  BOWLINE_TRY_ASSIGN(const double bias, c.real("bias", 1));
  BOWLINE_TRY_ASSIGN(const int64_t size, c.integer("size", 0));
  BOWLINE_REQUIRE_CODE(x.rank() >= 2 && size >= 1, Code::bad_file, "Size {} does not fit {}.", size,
                       shape_text(x.dims));
  const int64_t channels = x.dims[1];
  BOWLINE_REQUIRE_CODE(channels <= 4096, Code::unsupported, "{} channels are too many.", channels);
  std::vector<double> band;
  for (int64_t i = 0; i < channels; ++i) {
    for (int64_t j = 0; j < channels; ++j) {
      const bool near = j >= i - (size - 1) / 2 && j <= i + size / 2;
      band.push_back(near ? alpha / static_cast<double>(size) : 0);
    }
  }
  const Term sums = c.m.constant(ConstantTensor::of(x.dtype, {channels, channels}, band));
  const int64_t places = channels == 0 || x.dims[0] == 0 ? 0 : x.elements() / channels / x.dims[0];
  const Term squares = c.m.reshape(c.m.unary("Square", x), {x.dims[0], channels, places});
  const Term around = c.m.reshape(c.m.matmul(sums, squares), x.dims);
  const Term power = c.m.binary("Pow", c.m.add(around, bias), c.m.scalar(x.dtype, beta));
  c.out(0, c.m.cast(c.m.div(x, power), given.dtype));
  return {};
}

// Inference: the identity, with a mask of ones. If the mask is not used, Bowline's Dropout is
// added, so that the imported model can be trained. ONNX does not define the random generator, so
// dropout in every run is rejected.
Status dropout(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  double rate = 0.5;
  bool training = false;
  c.ignore("seed");
  c.ignore("is_test");
  c.ignore("consumed_inputs");
  if (c.opset < 12) {
    BOWLINE_TRY_ASSIGN(rate, c.real("ratio", 0.5));
  } else if (c.has(1)) {
    BOWLINE_TRY_ASSIGN(const Term ratio, c.in(1));
    rate = ratio.numbers() != nullptr && ratio.elements() == 1 ? ratio.numbers()->reals()[0] : -1;
  }
  if (c.has(2)) {
    BOWLINE_TRY_ASSIGN(const std::vector<int64_t> mode, c.integers(2));
    training = mode.size() == 1 && mode[0] != 0;
  }
  BOWLINE_REQUIRE_CODE(
      !training || rate == 0, Code::unsupported,
      "Random dropout (ratio {}) in every run is not supported: ONNX does not define its values.",
      rate);
  const bool mask = c.wants(1);
  const bool droppable = !training && !mask && rate > 0 && rate < 1 && is_float(x.dtype);
  c.out(0, droppable ? c.m.unary("Dropout", x, {{"rate", rate}}) : x);
  if (mask) {
    c.out(1, c.m.filled(c.opset < 10 ? x.dtype : DType::boolean, x.dims, 1));
  }
  return {};
}

constexpr Lowering kNormalizationLowerings[] = {
    {"BatchNormalization", batch_normalization},
    {"InstanceNormalization", instance_normalization},
    {"LayerNormalization", layer_normalization},
    {"GroupNormalization", group_normalization},
    {"RMSNormalization", rms_normalization},
    {"SimplifiedLayerNormalization", rms_normalization},
    {"SimplifiedLayerNormalization", rms_normalization, kMicrosoft},
    {"LpNormalization", lp_normalization},
    {"MeanVarianceNormalization", mean_variance_normalization},
    {"LRN", lrn},
    {"Dropout", dropout},
};

}  // namespace

std::span<const Lowering> lowerings_of_normalization() { return kNormalizationLowerings; }

}  // namespace bowline::onnx
