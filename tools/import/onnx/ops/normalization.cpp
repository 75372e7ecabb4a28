// Normalizations and Dropout.
#include "onnx/lowering.h"

namespace bowline::onnx {
namespace {

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
  const Term x = in_f32(given);
  Moments out;
  out.mean = c.m.reduce("ReduceMean", x, axes, true);
  out.centred = x - out.mean;
  out.variance = c.m.reduce("ReduceMean", square(out.centred), axes, true);
  return out;
}

struct BatchNorm {
  Term x, scale, bias, mean, variance;
  double eps = 0, momentum = 0;
};

BatchNorm batch_norm_of(Context& c) {
  BatchNorm b{c.in(0), c.in(1), c.in(2), c.in(3), c.in(4)};
  b.eps = c.real("epsilon", 1e-5);
  b.momentum = c.real("momentum", 0.9);
  require(b.x.rank() >= 2, "{} has no channels.", b.x.dims);
  for (size_t i = 1; i < 5; ++i) {
    const Dims dims = c.in(i).dims;
    require(dims == Dims{b.x.dims[1]}, "Input {} has the shape {}, x {}.", i, dims, b.x.dims);
  }
  b.mean = c.m.statistic(b.mean, c.m.name() + ".running_mean");
  b.variance = c.m.statistic(b.variance, c.m.name() + ".running_variance");
  return b;
}

// Inference: x * factor + shift from the running statistics of each channel. Computed in f32,
// because a mean far from 0 cancels most digits of x.
Term by_running_statistics(Context& c, const BatchNorm& b) {
  const size_t rank = b.x.rank();
  const Term deviation = rsqrt(in_f32(b.variance) + b.eps);
  const Term factor = in_f32(b.scale) * deviation;
  const Term shift = in_f32(b.bias) - in_f32(b.mean) * factor;
  const Term scaled = in_f32(b.x) * c.m.along(factor, 1, rank);
  return cast(scaled + c.m.along(shift, 1, rank), b.x.dtype);
}

// Training uses the statistics of the batch; outputs 1 and 2 are the running statistics. If no node
// reads these outputs, they become storages that a training step updates as PyTorch does.
Term batch_normalization(Context& c) {
  const BatchNorm b = batch_norm_of(c);
  if (!c.flag("training_mode", false)) {
    return by_running_statistics(c, b);
  }
  const size_t rank = b.x.rank();
  const bool moves = Maker::is_statistic(b.mean) && Maker::is_statistic(b.variance);
  if (moves && !c.wants(1) && !c.wants(2)) {
    std::vector<std::pair<DType, Dims>> outputs(5, {DType::f32, b.scale.dims});
    outputs[0] = {b.x.dtype, b.x.dims};
    c.m.note_once(
        "BatchNormalization in training mode: as in the file, a training step uses the statistics "
        "of "
        "the batch. 'bowline run' uses the running statistics, except with --step training=1.");
    return c.m.ops("BatchNorm", {b.x, b.scale, b.bias, b.mean, b.variance},
                   {{"eps", b.eps}, {"momentum", 1 - b.momentum}}, outputs)[0];
  }
  const Moments now = moments_of(c, b.x, without_channels(rank));
  const Term root = rsqrt(now.variance + b.eps);
  const Term y = now.centred * root * c.m.along(in_f32(b.scale), 1, rank);
  const auto running = [&](const Term& before, const Term& batch) {
    const Term moved =
        in_f32(before) * b.momentum + c.m.reshape(batch, before.dims) * (1 - b.momentum);
    return cast(moved, before.dtype);
  };
  c.out(1, running(b.mean, now.mean));
  c.out(2, running(b.variance, now.variance));
  return cast(y + c.m.along(in_f32(b.bias), 1, rank), b.x.dtype);
}

// Normalizes each channel of each batch row separately.
Term instance_normalization(Context& c) {
  const Term x = c.in(0), scale = c.in(1), bias = c.in(2);
  const double eps = c.real("epsilon", 1e-5);
  const bool fits = x.rank() >= 3 && scale.dims == Dims{x.dims[1]} && bias.dims == scale.dims;
  require(fits, "Scale {} and bias {} do not fit {}.", scale.dims, bias.dims, x.dims);
  return c.m.op("InstanceNorm", {x, scale, bias}, {{"eps", eps}}, x.dtype, x.dims);
}

double epsilon_of(Context& c) {
  const double eps = c.real("epsilon", 1e-5);
  const int64_t stash = c.integer("stash_type", 1);
  support(stash == 1, "Stash type {} is not supported; only f32 is.", stash);
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

NormRows rows_of(Context& c) {
  NormRows r;
  r.x = c.in(0);
  const int64_t axis = c.axis(r.x.rank(), -1);
  r.eps = epsilon_of(c);
  const std::vector<int64_t> every = all_axes(r.x.rank());
  r.axes.assign(every.begin() + axis, every.end());
  r.row.assign(r.x.dims.begin() + axis, r.x.dims.end());
  const int64_t n = r.row.product();
  r.flat = c.m.reshape(r.x, {n == 0 ? 0 : r.x.elements() / n, n});
  r.gain = r.as_row(c, c.in(1));
  return r;
}

Term layer_normalization(Context& c) {
  const NormRows r = rows_of(c);
  const Term bias = c.has(2) ? r.as_row(c, c.in(2)) : c.m.filled(r.x.dtype, r.gain.dims, 0);
  if (c.wants(1) || c.wants(2)) {
    const Moments now = moments_of(c, r.x, r.axes);
    c.out(1, now.mean);
    c.out(2, rsqrt(now.variance + r.eps));
  }
  return c.m.reshape(
      c.m.op("LayerNorm", {r.flat, r.gain, bias}, {{"eps", r.eps}}, r.x.dtype, r.flat.dims),
      r.x.dims);
}

// Normalizes groups of channels of each batch row. Scale and bias have an element per channel;
// before operator set 21 per group.
Term group_normalization(Context& c) {
  const Term x = c.in(0);
  Term factor[2];
  const int64_t groups = c.integer("num_groups", 0);
  const double eps = epsilon_of(c);
  const bool fits = x.rank() >= 2 && groups >= 1 && x.dims[1] % groups == 0;
  require(fits, "{} cannot be split into {} groups of channels.", x.dims, groups);
  const int64_t channels = x.dims[1];
  for (size_t i = 0; i < 2; ++i) {
    factor[i] = c.in(i + 1);
    const bool by_group = c.opset < 21;
    require(factor[i].dims == Dims{by_group ? groups : channels},
            "Input {} has the shape {}, x {} in {} groups.", i + 1, factor[i].dims, x.dims, groups);
    if (by_group) {
      const Term column = c.m.reshape(factor[i], {groups, 1});
      factor[i] = c.m.reshape(c.m.expand(column, {groups, channels / groups}), {channels});
    }
  }
  return c.m.op("GroupNorm", {x, factor[0], factor[1]}, {{"groups", groups}, {"eps", eps}}, x.dtype,
                x.dims);
}

// SimplifiedLayerNormalization of ONNX Runtime is the same, with 1 / rms as output 1.
Term rms_normalization(Context& c) {
  const NormRows r = rows_of(c);
  if (c.wants(1)) {
    const Term mean = c.m.reduce("ReduceMean", square(in_f32(r.x)), r.axes, true);
    c.out(1, rsqrt(mean + r.eps));
  }
  return c.m.reshape(c.m.op("RmsNorm", {r.flat, r.gain}, {{"eps", r.eps}}, r.x.dtype, r.flat.dims),
                     r.x.dims);
}

// x / (sum |x|^p)^(1/p) along an axis. Rows of zeros stay zero.
Term lp_normalization(Context& c) {
  const Term given_x = c.in(0);
  const Term x = in_f32(given_x);
  const int64_t axis = c.axis(x.rank(), -1);
  const int64_t p = c.integer("p", 2);
  require(p == 1 || p == 2, "Attribute p is {}. It must be 1 or 2.", p);
  const Term powers = c.m.unary(p == 1 ? "Abs" : "Square", x);
  const Term sum = c.m.reduce("ReduceSum", powers, {axis}, true);
  const Term none = sum == 0;
  const Term divisor = where(none, 1, sum);
  return cast(x / (p == 1 ? divisor : sqrt(divisor)), given_x.dtype);
}

// (x - mean) / (deviation + 1e-9)
Term mean_variance_normalization(Context& c) {
  const Term x = c.in(0);
  const std::vector<int64_t> axes =
      c.has_attribute("axes") ? c.list("axes") : std::vector<int64_t>{0, 2, 3};
  const Moments now = moments_of(c, x, axes);
  return cast(now.centred / (sqrt(now.variance) + 1e-9), x.dtype);
}

// x / (bias + alpha / size * (sum of squares of the neighbouring channels))^beta. The sum is a
// product with a band matrix.
Term lrn(Context& c) {
  const Term given = c.in(0);
  const Term x = in_f32(given);
  const double alpha = c.real("alpha", 0.0001);
  const double beta = c.real("beta", 0.75);
  const double bias = c.real("bias", 1);
  const int64_t size = c.integer("size", 0);
  require(x.rank() >= 2 && size >= 1, "Size {} does not fit {}.", size, x.dims);
  const int64_t channels = x.dims[1];
  support(channels <= 4096, "{} channels are too many.", channels);
  const Term sums = c.m.table(x.dtype, {channels, channels}, [&](int64_t at) {
    const int64_t i = at / channels, j = at % channels;
    const bool near = j >= i - (size - 1) / 2 && j <= i + size / 2;
    return near ? alpha / static_cast<double>(size) : 0;
  });
  const int64_t places = channels == 0 || x.dims[0] == 0 ? 0 : x.elements() / channels / x.dims[0];
  const Term squares = c.m.reshape(square(x), {x.dims[0], channels, places});
  const Term around = c.m.reshape(c.m.matmul(sums, squares), x.dims);
  const Term power = pow(around + bias, beta);
  return cast(x / power, given.dtype);
}

// Inference: the identity, with a mask of ones. If the mask is not used, Bowline's Dropout is
// added, so that the imported model can be trained. ONNX does not define the random generator, so
// dropout in every run is rejected.
Term dropout(Context& c) {
  const Term x = c.in(0);
  c.ignore("seed");
  c.ignore("is_test");
  c.ignore("consumed_inputs");
  double rate = c.opset < 12 ? c.real("ratio", 0.5) : 0.5;
  if (c.opset >= 12 && c.has(1)) {
    const Term ratio = c.in(1);
    rate = ratio.numbers() != nullptr && ratio.elements() == 1 ? ratio.numbers()->reals()[0] : -1;
  }
  const std::vector<int64_t> mode = c.has(2) ? c.integers(2) : std::vector<int64_t>();
  const bool training = mode.size() == 1 && mode[0] != 0;
  support(
      !training || rate == 0,
      "Random dropout (ratio {}) in every run is not supported: ONNX does not define its values.",
      rate);
  const bool mask = c.wants(1);
  if (mask) {
    c.out(1, c.m.filled(c.opset < 10 ? x.dtype : DType::boolean, x.dims, 1));
  }
  const bool droppable = !training && !mask && rate > 0 && rate < 1 && is_float(x.dtype);
  return droppable ? c.m.unary("Dropout", x, {{"rate", rate}}) : x;
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
