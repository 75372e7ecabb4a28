// Fusion of norms with the matrix products that read them: see graph/fuse.h.
//
//! makes FusedNormMatMul of LayerNorm RmsNorm
#include "core/products.h"
#include "graph/rewrites/rewriter.h"

namespace bowline::detail::graph {
namespace {

// A product of the norm, with its bias.
struct NormProduct {
  ValueId b = kNoValue, bias = kNoValue;
  ValueId v = kNoValue;  // the sums
  bool transpose_b = false;
};

// A FusedNormMatMul in the making.
struct NormProducts {
  std::vector<NormProduct> products;
  ProductActivation activation = ProductActivation::none;
  bool gate = false;
  std::vector<int64_t> sizes;
  std::vector<ValueId> outputs;
  std::vector<size_t> gone;  // the nodes that it replaces, except the norm
};

class NormFusion : public Rewriter {
 public:
  using Rewriter::Rewriter;

  void fuse_at(size_t n) {
    const Op op = graph_.nodes[n].op;
    if (op != Op::LayerNorm && op != Op::RmsNorm) {
      return;
    }
    const std::optional<NormProducts> bare = products_of(n);
    if (!bare) {
      return;
    }
    NormProducts whole = *bare;
    if (take_gate(whole) || take_split(whole) || take_activation(whole)) {
      if (fuse_into(n, whole)) {
        return;
      }
    }
    fuse_into(n, *bare);
  }

 private:
  // True if v exists where node n is.
  bool is_before(ValueId v, size_t n) const {
    return graph_[v].kind != ValueKind::result || graph_[v].node < n;
  }
  bool is_plain(ValueId v) const { return graph_[v].encoding.is_plain(); }

  // The products that read norm n, if nothing else does.
  std::optional<NormProducts> products_of(size_t n) const {
    const ValueId h = graph_.nodes[n].outputs[0];
    NormProducts out;
    for (const size_t reader : readers_[h]) {
      const std::optional<NormProduct> p =
          reader == kOutput ? std::nullopt : product_of(n, reader, out.gone);
      if (!p || out.products.size() == kMostNormProducts) {
        return {};
      }
      out.products.push_back(*p);
      out.outputs.push_back(p->v);
    }
    const auto differs = [&](const NormProduct& p) {
      const NormProduct& first = out.products[0];
      return p.transpose_b != first.transpose_b || (p.bias == kNoValue) != (first.bias == kNoValue);
    };
    const bool fits = !out.products.empty() && std::ranges::none_of(out.products, differs);
    return fits ? std::optional(std::move(out)) : std::nullopt;
  }

  // The product of norm n and a weight, with the bias behind it.
  std::optional<NormProduct> product_of(size_t n, size_t reader, std::vector<size_t>& gone) const {
    const BoundNode& node = graph_.nodes[reader];
    NormProduct p;
    if (node.op == Op::Linear) {
      p.transpose_b = true;
      p.bias = node.inputs.size() == 3 ? node.inputs[2] : kNoValue;
    } else if (node.op == Op::MatMul && !node.attributes.as<MatMulAttributes>().transpose_a()) {
      p.transpose_b = node.attributes.as<MatMulAttributes>().transpose_b();
    } else {
      return {};
    }
    p.b = node.inputs[1];
    p.v = node.outputs[0];
    const auto reads_norm = [&](ValueId v) { return v == graph_.nodes[n].outputs[0]; };
    if (std::ranges::count_if(node.inputs, reads_norm) != 1 || !reads_norm(node.inputs[0]) ||
        shape(p.b).rank() != 2 || !is_before(p.b, n) || shape(node.inputs[0]).rank() < 2) {
      return {};
    }
    gone.push_back(reader);
    const size_t next = only_reader(p.v);
    if (p.bias == kNoValue && next != kNone && graph_.nodes[next].op == Op::Add) {
      const BoundNode& add = graph_.nodes[next];
      const ValueId other = add.inputs[add.inputs[0] == p.v ? 1 : 0];
      if (shape(other) == Shape{shape(p.v).back()} && shape(add.outputs[0]) == shape(p.v)) {
        p.bias = other;
        p.v = add.outputs[0];
        gone.push_back(next);
      }
    }
    const bool takes_bias = p.bias == kNoValue || (is_before(p.bias, n) && is_plain(p.bias) &&
                                                   graph_[p.bias].dtype == graph_[p.v].dtype);
    return takes_bias ? std::optional(p) : std::nullopt;
  }

  std::optional<ProductActivation> activation_of(size_t n) const {
    if (n == kNone) {
      return {};
    }
    const BoundNode& node = graph_.nodes[n];
    if (node.op == Op::Gelu) {
      return node.attributes.as<GeluAttributes>().form() == GeluForm::erf
                 ? ProductActivation::gelu
                 : ProductActivation::gelu_tanh;
    }
    return node.op == Op::Silu   ? std::optional(ProductActivation::silu)
           : node.op == Op::Relu ? std::optional(ProductActivation::relu)
                                 : std::nullopt;
  }

  bool take_activation(NormProducts& p) const {
    const size_t reader = only_reader(p.outputs[0]);
    const std::optional<ProductActivation> found = activation_of(reader);
    if (p.products.size() != 1 || !found) {
      return false;
    }
    p.activation = *found;
    p.outputs = graph_.nodes[reader].outputs;
    p.gone.push_back(reader);
    return true;
  }

  // Two products of which one is activated and multiplied with the other.
  bool take_gate(NormProducts& p) const {
    for (size_t i = 0; i < 2 && p.products.size() == 2; ++i) {
      const size_t reader = only_reader(p.outputs[i]);
      const std::optional<ProductActivation> found = activation_of(reader);
      const size_t mul = found ? only_reader(graph_.nodes[reader].outputs[0]) : kNone;
      if (mul == kNone || graph_.nodes[mul].op != Op::Mul || only_reader(p.outputs[1 - i]) != mul ||
          !are_alike(p.products[0].b, p.products[1].b)) {
        continue;
      }
      p.activation = *found;
      p.gate = true;
      if (i == 1) {
        std::swap(p.products[0], p.products[1]);
      }
      p.outputs = graph_.nodes[mul].outputs;
      p.gone.insert(p.gone.end(), {reader, mul});
      return true;
    }
    return false;
  }

  // True if two weights have one shape, and one encoding in every iteration of a Repeat.
  bool are_alike(ValueId a, ValueId b) const {
    return shape(a) == shape(b) &&
           std::ranges::equal(graph_[a].uses, graph_[b].uses, std::equal_to<>(),
                              &StorageUse::encoding, &StorageUse::encoding);
  }

  bool take_split(NormProducts& p) const {
    const size_t reader = only_reader(p.outputs[0]);
    if (p.products.size() != 1 || reader == kNone || graph_.nodes[reader].op != Op::Split) {
      return false;
    }
    const BoundNode& split = graph_.nodes[reader];
    const int rank = shape(p.outputs[0]).rank();
    const int axis = positive_axis(split.attributes.as<SplitAttributes>().axis(), rank);
    if (axis != rank - 1 || split.outputs.size() < 2 || split.outputs.size() > kMostNormProducts) {
      return false;
    }
    p.outputs = split.outputs;
    for (const ValueId v : split.outputs) {
      p.sizes.push_back(shape(v).back());
    }
    p.gone.push_back(reader);
    return true;
  }

  // Replaces the nodes if the device has a kernel.
  bool fuse_into(size_t n, const NormProducts& p) {
    const BoundNode& norm = graph_.nodes[n];
    FusedNormMatMulAttributesT t;
    t.rms = norm.op == Op::RmsNorm;
    t.eps = t.rms ? norm.attributes.as<RmsNormAttributes>().eps()
                  : norm.attributes.as<LayerNormAttributes>().eps();
    t.weights = static_cast<int64_t>(p.products.size());
    t.transpose_b = p.products[0].transpose_b;
    t.bias = p.products[0].bias != kNoValue;
    t.activation = p.activation;
    t.gate = p.gate;
    t.sizes = p.sizes;
    std::vector<ValueId> inputs = {norm.inputs[0]};
    std::ranges::transform(p.products, std::back_inserter(inputs), &NormProduct::b);
    inputs.insert(inputs.end(), norm.inputs.begin() + 1, norm.inputs.end());
    if (t.bias) {
      std::ranges::transform(p.products, std::back_inserter(inputs), &NormProduct::bias);
    }
    BoundNode fused = BoundGraph::make_node(Op::FusedNormMatMul, Attributes::of(t),
                                            std::move(inputs), p.outputs, norm.name);
    const bool plain = std::ranges::all_of(norm.inputs, [&](ValueId v) { return is_plain(v); });
    if (!plain || !can_run(fused)) {
      return false;
    }
    graph_.nodes[n] = std::move(fused);
    for (const size_t g : p.gone) {
      is_gone_[g] = 1;
    }
    return true;
  }
};

}  // namespace

void fuse_norm_products(BoundGraph& graph, const device::OpenDevice& device) {
  if (has_op(Op::FusedNormMatMul)) {
    (void)rewrite_all<NormFusion>(graph, device, 0);
  }
}

}  // namespace bowline::detail::graph
