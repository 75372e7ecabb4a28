#include "bench/modelled.h"

#include <algorithm>
#include <numeric>

#include "common/strings.h"

namespace bowline::command {
namespace {

double elements_of(const OperandInfo& o) {
  return std::accumulate(o.shape.begin(), o.shape.end(), 1.0,
                         [](double n, int64_t dim) { return n * static_cast<double>(dim); });
}

bool has(const RecordInfo& r, std::string_view name) {
  return std::ranges::find(r.attributes, Settings::value_type(name, "true")) != r.attributes.end();
}

// The axis along which a product sums, from the back.
double summed(const RecordInfo& r) {
  const TensorShape& a = r.inputs[0].shape;
  const bool transposed = r.op != "Linear" && has(r, "transpose_a");
  return static_cast<double>(a[a.size() - (transposed ? 2 : 1)]);
}

// Scores and their use are a product each. Causal attention needs half.
double scores_flops(const RecordInfo& r, double products, const OperandInfo& q, int64_t keys) {
  const double one = 2 * elements_of(q) * static_cast<double>(keys);
  return products * one * (has(r, "causal") ? 0.5 : 1);
}

// Each element of the result of a convolution sums over the weights of its channel.
double convolution_flops(const OperandInfo& result, const OperandInfo& weight) {
  return 2 * elements_of(result) * elements_of(weight) / static_cast<double>(weight.shape[0]);
}

// The products of FusedLinearCrossEntropy: the logits, and the gradients of x and of the weight.
double linear_loss_flops(const RecordInfo& r) {
  const double products = static_cast<double>(r.outputs.size());
  return products * 2 * elements_of(r.inputs[0]) * static_cast<double>(r.inputs[1].shape[0]);
}

// Bytes that a record moves while it does not multiply: FusedLinearCrossEntropy reads and writes
// its logits between the products. They have the dtype of x.
double bytes_between_products(const RecordInfo& r) {
  if (r.op != "FusedLinearCrossEntropy") {
    return 0;
  }
  const TensorShape& w = r.inputs[1].shape;
  return 2 * static_cast<double>(r.inputs[0].bytes) * static_cast<double>(w[0]) /
         static_cast<double>(w[1]);
}

Part part_of(const RecordInfo& r, const SegmentInfo& segment) {
  return segment.name == "update"                      ? Part::optimizer
         : r.op.find("Attention") != std::string::npos ? Part::attention
         : flops_of(r) > 0                             ? Part::products
                                                       : Part::memory;
}

// True if the rate is of the kernel, or of all variants of a shader: "matvec" of
// "matvec_f32_plain".
bool is_of(const KernelRate& rate, std::string_view kernel) {
  return kernel == rate.kernel || (rate.is_shader && kernel.starts_with(rate.kernel));
}

// The rate of the kernel of a record that multiplies.
const KernelRate& rate_of(const RecordInfo& r, std::set<std::string>& unknown) {
  for (const std::string& kernel : r.kernels) {
    const auto found = std::ranges::find_if(
        kernel_rates(), [&](const KernelRate& rate) { return is_of(rate, kernel); });
    if (found != kernel_rates().end()) {
      return *found;
    }
  }
  if (!r.kernels.empty()) {
    unknown.insert(joined(r.kernels));
  }
  return *std::ranges::find(kernel_rates(), "", &KernelRate::kernel);
}

// True for a kernel of Bowline. Only these start early, and only after one of these (Launch in
// backends/cuda/kernel.h).
bool is_own_kernel(std::string_view name) {
  return !name.starts_with("cublasLt") && name != "a copy" && name != "a fill";
}

ModelledRecord modelled(const RecordInfo& r, const SegmentInfo& segment, const DeviceClass& device,
                        double runs, std::set<std::string>& unknown) {
  ModelledRecord out;
  out.op = r.op;
  out.kernels = joined(r.kernels);
  out.part = part_of(r, segment);
  out.runs = runs;
  out.flops = flops_of(r);
  out.bytes = static_cast<double>(r.read_bytes + r.written_bytes);
  const double moving = out.bytes / (device.bandwidth * kBandwidthShare);
  double computing = 0;
  if (out.flops > 0) {
    const KernelRate& rate = rate_of(r, unknown);
    computing = out.flops / (rate.share * (rate.unit == Unit::f32 ? device.f32 : device.matrix));
  }
  const double between = bytes_between_products(r);
  out.bytes += between;
  out.seconds = std::max(moving, computing) + between / (device.bandwidth * kBandwidthShare);
  return out;
}

}  // namespace

std::string_view name_of(Part part) {
  constexpr std::string_view kNames[] = {"products", "attention", "memory", "optimizer",
                                         "launches"};
  return kNames[static_cast<size_t>(part)];
}

double ModelledTime::seconds() const {
  return std::accumulate(std::begin(parts), std::end(parts), 0.0,
                         [](double sum, const PartTime& p) { return sum + p.seconds; });
}

double flops_of(const RecordInfo& r) {
  if (r.op == "MatMul" || r.op == "Linear" || r.op == "FusedMatMul") {
    return 2 * elements_of(r.outputs[0]) * summed(r);
  }
  if (r.op == "FusedNormMatMul") {  // weights are matrices, other operands vectors
    double elements = 0;
    for (size_t i = 1; i < r.inputs.size(); ++i) {
      elements += r.inputs[i].shape.size() == 2 ? elements_of(r.inputs[i]) : 0;
    }
    return 2 * elements * elements_of(r.inputs[0]) / summed(r);
  }
  if (r.op == "Attention") {
    return scores_flops(r, 2, r.inputs[0], r.inputs[1].shape[1]);
  }
  if (r.op == "PackedAttention") {  // the result has the shape of q
    return scores_flops(r, 2, r.outputs[0], r.inputs[0].shape[1]);
  }
  if (r.op == "AttentionGrad") {  // recomputes the scores
    return scores_flops(r, 5, r.inputs[0], r.inputs[1].shape[1]);
  }
  if (r.op == "PackedAttentionGrad") {
    return scores_flops(r, 5, r.inputs[1], r.inputs[0].shape[1]);
  }
  if (r.op == "FusedLinearCrossEntropy") {
    return linear_loss_flops(r);
  }
  if (r.op == "Conv" || r.op == "FusedConv") {
    return convolution_flops(r.outputs[0], r.inputs[1]);
  }
  return 0;
}

void add_segment(const SegmentInfo& segment, const DeviceClass& device, ModelledTime& time) {
  double runs = 1;
  uint64_t launches = 0;
  uint64_t early = 0;
  bool follows_kernel = false;
  for (const RecordInfo& r : segment.records) {
    if (r.kind != RecordInfo::Kind::op) {
      runs = r.kind == RecordInfo::Kind::repeat_begin ? static_cast<double>(r.count) : 1;
      continue;
    }
    const ModelledRecord& m =
        time.records.emplace_back(modelled(r, segment, device, runs, time.unknown));
    PartTime& part = time[m.part];
    part.seconds += runs * m.seconds;
    part.flops += runs * m.flops;
    part.bytes += runs * m.bytes;
    part.records += static_cast<uint64_t>(runs);
    launches += static_cast<uint64_t>(runs);
    for (const std::string& kernel : r.kernels) {
      const bool is_kernel = is_own_kernel(kernel);
      early += is_kernel && follows_kernel ? static_cast<uint64_t>(runs) : 0;
      follows_kernel = is_kernel;
    }
  }
  // A device that does not count launches has at least one per record.
  launches = segment.launches == 0 ? launches : segment.launches;
  PartTime& gaps = time[Part::launches];
  early = device.early_gap > 0 ? std::min(early, launches) : 0;
  gaps.records += launches;
  gaps.early += early;
  gaps.seconds += static_cast<double>(launches - early) * device.launch_gap +
                  static_cast<double>(early) * device.early_gap;
}

}  // namespace bowline::command
