#include "bench/floor.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "common/report.h"
#include "device/device.h"
#include "graph/bind.h"

namespace bowline::command {
namespace {

using graph::Graph;
using graph::Node;
using graph::ValueId;

constexpr double kElement = 4;  // bytes of an f32

double elements(const Graph& g, ValueId v) { return static_cast<double>(g[v].shape.elements()); }

// Forward products, then one for each side that needs a gradient. All but weights do.
double product_flops(const Graph& g, const Node& node) {
  const ValueId a = node.inputs[0];
  const double k = static_cast<double>(g[a].shape.back());
  const double rows = elements(g, node.outputs[0]);
  return 3 * 2 * rows * k;
}

// Two products forward, five backward (the scores are made again); the causal half.
double attention_flops(const Graph& g, const Node& node) {
  const Shape& q = g[node.inputs[0]].shape;
  const Shape& k = g[node.inputs[1]].shape;
  const double one = 2.0 * static_cast<double>(q.elements()) * static_cast<double>(k[1]);
  const bool causal = node.attributes.as<AttentionAttributes>().causal();
  return one * (2 + 5) * (causal ? 0.5 : 1);
}

void add_work(const Graph& g, double times, Work& work) {
  for (const Node& node : g.nodes) {
    switch (node.op) {
      case Op::MatMul:
      case Op::Linear:
        work.flops += times * product_flops(g, node);
        break;
      case Op::Attention:
        work.flops += times * attention_flops(g, node);
        break;
      case Op::RmsNorm:
      case Op::LayerNorm:
        // Residual and norm, read and written forward and backward.
        work.activation_bytes += times * 8 * elements(g, node.inputs[0]) * kElement;
        break;
      case Op::CrossEntropy:
        work.activation_bytes += times * 2 * elements(g, node.inputs[0]) * kElement;
        break;
      case Op::Repeat:
        add_work(*node.repeat->body, times * node.repeat->count, work);
        break;
      default:
        break;
    }
  }
}

// The best rate of square products; larger ones until a call takes long.
Result<double> largest_rate(const Device& device, int64_t& best_size) {
  double best = 0;
  for (const int64_t size : {256, 512, 768, 1024}) {
    Result<Product> product = Product::create(device, size, size, size, "nt");
    if (!product.ok()) {
      return std::move(product).status();
    }
    Result<double> seconds = median_seconds(7, 2, [&] { return product.value().run(); });
    if (!seconds.ok()) {
      return seconds;
    }
    const double rate =
        2 * static_cast<double>(size) * static_cast<double>(size * size) / seconds.value();
    if (rate > best) {
      best = rate;
      best_size = size;
    }
    if (seconds.value() > 0.2) {
      break;
    }
  }
  return best;
}

Result<double> copy_rate(const Device& device, uint64_t bytes) {
  device::OpenDevice& open = *device.handle();
  BOWLINE_ASSIGN(const auto from,
                 device::Block::allocate(device.handle(), bytes, device::MemoryKind::device));
  BOWLINE_ASSIGN(const auto to,
                 device::Block::allocate(device.handle(), bytes, device::MemoryKind::device));
  BOWLINE_TRY(open.fill(from->buffer(), 0, bytes, std::byte{1}));
  BOWLINE_ASSIGN(const double seconds, median_seconds(9, 2, [&]() -> Status {
                   BOWLINE_TRY(open.copy(to->buffer(), 0, from->buffer(), 0, bytes));
                   return open.wait();
                 }));
  return 2 * static_cast<double>(bytes) / seconds;
}

}  // namespace

Result<double> median_seconds(int runs, int warmup, const std::function<Status()>& call) {
  std::vector<double> times;
  for (int i = 0; i < warmup + runs; ++i) {
    const auto start = std::chrono::steady_clock::now();
    BOWLINE_TRY(call());
    if (i >= warmup) {
      times.push_back(
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
  }
  std::ranges::sort(times);
  return times[times.size() / 2];
}

Result<Product> Product::create(const Device& device, int64_t m, int64_t n, int64_t k,
                                const std::string& layout) {
  const bool transpose_a = layout == "tn";
  const bool transpose_b = layout == "nt";
  Product p;
  p.model_ = std::make_unique<Model>();
  const auto shape = [](int64_t rows, int64_t columns, bool turned) {
    return turned ? std::vector<int64_t>{columns, rows} : std::vector<int64_t>{rows, columns};
  };
  BOWLINE_ASSIGN(const Parameter a,
                 p.model_->parameter("a", shape(m, k, transpose_a), Init::normal(1)));
  BOWLINE_ASSIGN(const Parameter b,
                 p.model_->parameter("b", shape(k, n, transpose_b), Init::normal(1)));
  GraphBuilder g(*p.model_, "product");
  g.output("y", g.op("MatMul", {g.parameter(a), g.parameter(b)},
                     {{"transpose_a", transpose_a ? 1.0 : 0.0},
                      {"transpose_b", transpose_b ? 1.0 : 0.0}}));
  BOWLINE_TRY(g.finish());
  BOWLINE_TRY(p.model_->materialize(1));
  BOWLINE_TRY(p.model_->to(device));
  BOWLINE_ASSIGN(Session session, Session::create(*p.model_, device, "product", {}));
  p.session_ = std::make_unique<Session>(std::move(session));
  return p;
}

Result<Machine> measure_machine(const Device& device, uint64_t copy_bytes) {
  Machine machine;
  int64_t size = 0;
  BOWLINE_ASSIGN(machine.flops, largest_rate(device, size));
  BOWLINE_ASSIGN(machine.bandwidth, copy_rate(device, copy_bytes));
  machine.source =
      fmt::format("F = {:.1f} GFLOP/s ({} cubed), BW = {:.1f} GB/s (copy of {})",
                  machine.flops / 1e9, size, machine.bandwidth / 1e9, bytes_text(copy_bytes));
  return machine;
}

Result<Work> training_work(const Model& model, std::span<const BoundDim> dims, bool adamw) {
  const Graph* generic = model.state()->find_graph("loss");
  BOWLINE_REQUIRE(generic != nullptr, "The model has no entry point \"loss\".");
  BOWLINE_ASSIGN(const Graph bound, graph::bind(*generic, *model.state(), dims));
  Work work;
  add_work(bound, 1, work);
  double trained = 0;
  for (const params::Storage& s : model.state()->table.storages) {
    trained += s.trainable && !s.empty && s.role == params::Role::weight
                   ? static_cast<double>(s.shape.elements())
                   : 0;
  }
  // The gradient written and read; weights, and for AdamW both moments, read and written.
  work.optimizer_bytes = trained * kElement * (2 + 2 + (adamw ? 4 : 0));
  return work;
}

}  // namespace bowline::command
