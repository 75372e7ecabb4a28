// Fusion of matrix products with the operators that read their results: see graph/fuse.h.
//
//! makes FusedMatMul of Linear MatMul
#include "graph/rewrites/rewriter.h"

namespace bowline::detail::graph {
namespace {

// A FusedMatMul in the making.
struct Product {
  ValueId a = kNoValue, b = kNoValue;
  ValueId addend = kNoValue, slope = kNoValue, bias = kNoValue;
  ValueId v = kNoValue;     // the sums
  ValueId gelu = kNoValue;  // (optional) Gelu of the sums
  bool transpose_a = false, transpose_b = false;
  size_t node = 0;  // the node in whose place the FusedMatMul comes

  bool is_plain() const {
    return addend == kNoValue && slope == kNoValue && gelu == kNoValue && bias == kNoValue;
  }
};

class Products : public Rewriter {
 public:
  using Rewriter::Rewriter;

  void fuse_at(size_t n) {
    const std::optional<Product> found = is_gone_[n] != 0 ? std::nullopt : product_of(n);
    if (!found) {
      return;
    }
    Product p = *found;
    if (!take_gelu_grad(p)) {
      while (take_add(p)) {
      }
      take_gelu(p);
    }
    if (p.gelu != kNoValue && !can_run(node_of(p))) {
      p.gelu = kNoValue;
    }
    if (p.node == n && p.gelu == kNoValue) {
      return;
    }
    BoundNode node = node_of(p);
    if (!can_run(node)) {
      return;
    }
    // The nodes from the product to the place of the FusedMatMul, and Gelu.
    ValueId v = found->v;
    is_gone_[n] = 1;
    while (v != p.v) {
      const size_t next = readers_[v][0];
      is_gone_[next] = 1;
      v = graph_.nodes[next].outputs[0];
    }
    if (p.gelu != kNoValue) {
      is_gone_[graph_[p.gelu].node] = 1;
    }
    is_gone_[p.node] = 0;
    graph_.nodes[p.node] = std::move(node);
  }

 private:
  // The product of a node of two matrices, or nullopt.
  std::optional<Product> product_of(size_t n) const {
    const BoundNode& node = graph_.nodes[n];
    if (node.op != Op::MatMul && node.op != Op::Linear) {
      return std::nullopt;
    }
    Product p;
    p.a = node.inputs[0];
    p.b = node.inputs[1];
    p.v = node.outputs[0];
    p.node = n;
    p.transpose_b = node.op == Op::Linear;
    if (node.op == Op::MatMul) {
      const auto& t = node.attributes.as<MatMulAttributes>();
      p.transpose_a = t.transpose_a();
      p.transpose_b = t.transpose_b();
    } else if (node.inputs.size() == 3) {
      p.bias = node.inputs[2];
    }
    const int rank = shape(p.a).rank();
    const bool fits = rank >= 2 && shape(p.b).rank() == 2 && (!p.transpose_a || rank == 2);
    return fits && graph_[p.a].encoding.is_plain() ? std::optional(p) : std::nullopt;
  }

  // Takes the Add behind the product into it.
  bool take_add(Product& p) const {
    const size_t reader = only_reader(p.v);
    if (reader == kNone) {
      return false;
    }
    const BoundNode& add = graph_.nodes[reader];
    if (add.op != Op::Add || add.inputs[0] == add.inputs[1] ||
        shape(add.outputs[0]) != shape(p.v)) {
      return false;
    }
    const ValueId other = add.inputs[add.inputs[0] == p.v ? 1 : 0];
    const bool is_bias =
        p.bias == kNoValue && p.addend == kNoValue && shape(other) == Shape{shape(p.v).back()};
    const bool is_addend = p.addend == kNoValue && shape(other) == shape(p.v);
    if ((!is_bias && !is_addend) || graph_[other].dtype != graph_[p.v].dtype ||
        !graph_[other].encoding.is_plain()) {
      return false;
    }
    (is_bias ? p.bias : p.addend) = other;
    p.v = add.outputs[0];
    p.node = reader;
    return true;
  }

  // The Gelu of v, if v is not also added to something. v may have other readers.
  bool take_gelu(Product& p) const {
    if (p.addend != kNoValue) {
      return false;
    }
    for (const size_t n : readers_[p.v]) {
      if (n != kOutput && is_tanh_gelu(graph_.nodes[n], Op::Gelu)) {
        p.gelu = graph_.nodes[n].outputs[0];
        return true;
      }
    }
    return false;
  }

  bool take_gelu_grad(Product& p) const {
    const size_t reader = only_reader(p.v);
    if (!p.is_plain() || reader == kNone) {
      return false;
    }
    const BoundNode& grad = graph_.nodes[reader];
    if (!is_tanh_gelu(grad, Op::GeluGrad) || grad.inputs[1] != p.v) {
      return false;
    }
    p.slope = grad.inputs[0];
    p.v = grad.outputs[0];
    p.node = reader;
    return true;
  }

  static bool is_tanh_gelu(const BoundNode& node, Op op) {
    return node.op == op && node.attributes.as<GeluAttributes>().form() == GeluForm::tanh;
  }

  BoundNode node_of(const Product& p) const {
    FusedMatMulAttributesT t;
    t.transpose_a = p.transpose_a;
    t.transpose_b = p.transpose_b;
    t.addend = p.addend != kNoValue;
    t.gelu_grad = p.slope != kNoValue;
    t.bias = p.bias != kNoValue;
    t.gelu = p.gelu != kNoValue;
    std::vector<ValueId> inputs = {p.a, p.b};
    for (const ValueId v : {p.addend, p.slope, p.bias}) {
      if (v != kNoValue) {
        inputs.push_back(v);
      }
    }
    std::vector<ValueId> outputs = {p.v};
    if (t.gelu) {
      outputs = {p.gelu, p.v};
    }
    return BoundGraph::make_node(Op::FusedMatMul, Attributes::of(t), std::move(inputs),
                                 std::move(outputs), graph_.nodes[p.node].name);
  }
};

}  // namespace

size_t fuse_products(BoundGraph& graph, const device::OpenDevice& device, size_t begin) {
  return has_op(Op::FusedMatMul) ? rewrite_all<Products>(graph, device, begin) : begin;
}

}  // namespace bowline::detail::graph
