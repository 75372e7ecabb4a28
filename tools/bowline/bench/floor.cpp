#include "bench/floor.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/status.h"
#include "common/report.h"
#include "common/timing.h"

namespace bowline::command {
namespace {

// The reads and writes of twice as many bytes do not fit the caches of a GPU.
constexpr uint64_t kLeastGpuStream = 64 << 20;

double elements(const OperandInfo& o) {
  return std::accumulate(o.shape.begin(), o.shape.end(), 1.0,
                         [](double n, int64_t dim) { return n * static_cast<double>(dim); });
}

double bytes_of(const OperandInfo& o) {
  return elements(o) * static_cast<double>(size_of(o.dtype));
}

double dim_of(const OperandInfo& o, size_t axis) { return static_cast<double>(o.shape[axis]); }

// One forward and two backward products. Assumes that both operands need a gradient.
double product_flops(const RecordInfo& r) {
  const OperandInfo& a = r.inputs[0];
  return 3 * 2 * elements(r.outputs[0]) * dim_of(a, a.shape.size() - 1);
}

// Two forward and five backward products, because the backward pass recomputes the scores. Causal
// attention needs half.
double attention_flops(const RecordInfo& r) {
  const OperandInfo& keys = r.inputs[r.op == "PackedAttention" ? 0 : 1];
  const double one = 2.0 * elements(r.outputs[0]) * dim_of(keys, 1);
  const bool causal =
      std::ranges::find(r.attributes, Settings::value_type("causal", "true")) != r.attributes.end();
  return one * (2 + 5) * (causal ? 0.5 : 1);
}

void add_work(const RecordInfo& r, double times, Work& work) {
  if (r.op == "MatMul" || r.op == "Linear" || r.op == "FusedMatMul") {
    work.flops += times * product_flops(r);
  } else if (r.op == "Attention" || r.op == "PackedAttention") {
    work.flops += times * attention_flops(r);
  } else if (r.op == "RmsNorm" || r.op == "LayerNorm") {
    // Residual and norm are each read and written, in the forward and in the backward pass.
    work.activation_bytes += times * 8 * bytes_of(r.inputs[0]);
  } else if (r.op == "CrossEntropy") {
    work.activation_bytes += times * 2 * bytes_of(r.inputs[0]);
  }
}

// Returns the median time of `runs` runs. On a GPU it is the time of the kernels by the device's
// clock: the wall time would include the transfer of the output to the host. A GPU without a clock
// has only the wall time.
Result<double> device_seconds(const Device& device, Session& session, int runs, int warmup) {
  if (device.info().name == "cpu" || session.profile({}).status().code() == Code::unsupported) {
    return median_seconds(runs, warmup, [&] { return session.run({}, {}); });
  }
  return median_of(runs, warmup, [&]() -> Result<double> {
    BOWLINE_TRY_ASSIGN(const std::vector<NodeTime> nodes, session.profile({}));
    return 1e-9 * std::accumulate(nodes.begin(), nodes.end(), 0.0,
                                  [](double sum, const NodeTime& n) { return sum + n.ns; });
  });
}

// Returns the best rate of square products, in operations per second. Stops after a size that takes
// longer than 0.02 s.
Result<double> largest_rate(const Device& device, DType dtype, int64_t& best_size) {
  double best = 0;
  for (const int64_t size : {256, 512, 768, 1024, 2048, 4096}) {
    Result<Product> product = Product::create(device, size, size, size, "nt", dtype);
    if (!product.ok()) {
      return std::move(product).status();
    }
    Result<double> seconds = product.value().seconds(7, 2);
    if (!seconds.ok()) {
      return seconds;
    }
    const double rate =
        2 * static_cast<double>(size) * static_cast<double>(size * size) / seconds.value();
    if (rate > best) {
      best = rate;
      best_size = size;
    }
    if (seconds.value() > 0.02) {
      break;
    }
  }
  return best;
}

// Returns the bandwidth in bytes per second. Neg reads and writes each element once and computes so
// little that memory limits it.
Result<double> stream_rate(const Device& device, uint64_t bytes) {
  const auto elements = static_cast<int64_t>(bytes / size_of(DType::f32));
  Model model;
  BOWLINE_TRY_ASSIGN(const Parameter x, model.parameter("x", {elements}, Init::ones()));
  GraphBuilder g(model, "stream");
  g.output("y", g.op("Neg", {g.parameter(x)}));
  BOWLINE_TRY(g.finish());
  BOWLINE_TRY(model.materialize(1));
  BOWLINE_TRY(model.to(device));
  BOWLINE_TRY_ASSIGN(Session session, Session::create(model, device, "stream", {}));
  BOWLINE_TRY_ASSIGN(const double seconds, device_seconds(device, session, 9, 2));
  return 2 * static_cast<double>(bytes) / seconds;
}

}  // namespace

Result<double> Product::seconds(int runs, int warmup) {
  return device_seconds(*device_, *session_, runs, warmup);
}

Result<Product> Product::create(const Device& device, int64_t m, int64_t n, int64_t k,
                                const std::string& layout, DType dtype,
                                const std::string& encoding) {
  const bool transpose_a = layout == "tn";
  const bool transpose_b = layout == "nt";
  Product p;
  p.model_ = std::make_unique<Model>();
  const auto shape = [](int64_t rows, int64_t columns, bool turned) {
    return turned ? std::vector<int64_t>{columns, rows} : std::vector<int64_t>{rows, columns};
  };
  BOWLINE_TRY_ASSIGN(const Parameter a,
                     p.model_->parameter("a", shape(m, k, transpose_a), Init::normal(1),
                                         StorageRole::weight, dtype));
  BOWLINE_TRY_ASSIGN(const Parameter b,
                     p.model_->parameter("b", shape(k, n, transpose_b), Init::normal(1),
                                         StorageRole::weight, dtype));
  GraphBuilder g(*p.model_, "product");
  g.output("y", g.op("MatMul", {g.parameter(a), g.parameter(b)},
                     {{"transpose_a", transpose_a ? 1.0 : 0.0},
                      {"transpose_b", transpose_b ? 1.0 : 0.0}}));
  BOWLINE_TRY(g.finish());
  BOWLINE_TRY(p.model_->materialize(1));
  if (!encoding.empty()) {
    BOWLINE_TRY_ASSIGN(const QuantizeReport report, quantize(*p.model_, encoding, "b"));
    BOWLINE_REQUIRE(report.storages == 1, "The matrix stays plain: {}", report.text());
  }
  BOWLINE_TRY_ASSIGN(const ModelInfo info, p.model_->describe());
  p.b_bytes_ = info.storages[1].bytes;
  BOWLINE_TRY(p.model_->to(device));
  BOWLINE_TRY_ASSIGN(Session session, Session::create(*p.model_, device, "product", {}));
  p.session_ = std::make_unique<Session>(std::move(session));
  p.device_ = device;
  return p;
}

Result<Machine> measure_machine(const Device& device, uint64_t stream_bytes, DType dtype) {
  Machine machine;
  int64_t size = 0;
  const DeviceInfo info = device.info();
  if (info.name != "cpu" && !info.software) {
    stream_bytes = std::max(stream_bytes, kLeastGpuStream);
  }
  BOWLINE_TRY_ASSIGN(machine.flops, largest_rate(device, dtype, size));
  BOWLINE_TRY_ASSIGN(machine.bandwidth, stream_rate(device, stream_bytes));
  machine.source =
      fmt::format("F = {:.1f} GFLOP/s ({} product, {} x {} x {}), BW = {:.1f} GB/s (Neg of {})",
                  machine.flops / 1e9, name_of(dtype), size, size, size, machine.bandwidth / 1e9,
                  bytes_text(stream_bytes));
  return machine;
}

Work training_work(const ModelInfo& model, const PlanInfo& plan) {
  Work work;
  const auto forward = std::ranges::find(plan.segments, "forward", &SegmentInfo::name);
  double times = 1;
  for (const RecordInfo& r : forward->records) {
    if (r.kind == RecordInfo::Kind::op) {
      add_work(r, times, work);
    } else {
      times = r.kind == RecordInfo::Kind::repeat_begin ? static_cast<double>(r.count) : 1;
    }
  }
  double trained = 0;  // bytes
  for (const StorageInfo& s : model.storages) {
    trained +=
        s.trainable && !s.empty && s.role == StorageRole::weight ? static_cast<double>(s.bytes) : 0;
  }
  // The gradient is written and read. The weights and both moments are read and written.
  work.optimizer_bytes = trained * (2 + 2 + 4);
  return work;
}

}  // namespace bowline::command
