// Products of the rows that Embedding gathers from a short table: see graph/fuse.h.
#include <map>

#include "graph/fuse.h"

namespace bowline::detail::graph {
namespace {

// Multiplies the table itself, and gathers rows of the product. A row of the table is then
// multiplied once, however many ids name it, and so is its gradient.
class Tables {
 public:
  explicit Tables(BoundGraph& graph) : graph_(graph) {}

  bool rewrite() {
    std::vector<BoundNode> before = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (BoundNode& node : before) {
      if (pays(node)) {
        multiply(node);
      }
      add(std::move(node));
    }
    renumber(graph_);
    if (any_) {
      prune(graph_);
    }
    return any_;
  }

 private:
  struct Gathered {
    BoundNode node;     // an Embedding
    size_t writes = 0;  // earlier nodes that write a storage
  };

  void add(BoundNode node) {
    writes_ += writes_storage(node) ? 1 : 0;
    if (node.op == Op::Embedding) {
      gathered_[node.outputs[0]] = {node, writes_};
    }
    graph_.nodes.push_back(std::move(node));
  }

  // In 16 bits the gradients that are summed per row would be rounded once more. A product with
  // quantized weights may depend on the number of rows.
  bool is_plain(ValueId v) const {
    const BoundValue& info = graph_[v];
    return info.encoding.is_plain() && info.counted.empty() &&
           (info.dtype == DType::f32 || !is_float(info.dtype));
  }

  static bool multiplies_rows(const BoundNode& node) {
    return node.op == Op::Linear ||
           (node.op == Op::MatMul && !node.attributes.as<file::MatMulAttributes>().transpose_a());
  }

  // True if there are at least twice as many ids as rows. A smaller saving can be lost, because
  // wider rows are gathered and summed.
  bool pays(const BoundNode& node) const {
    if (!multiplies_rows(node) || graph_[node.inputs[1]].shape.rank() != 2) {
      return false;
    }
    const auto from = gathered_.find(node.inputs[0]);
    if (from == gathered_.end() || from->second.writes != writes_) {
      return false;  // a node in between may have written the table
    }
    const ValueId table = from->second.node.inputs[0], ids = from->second.node.inputs[1];
    return std::ranges::all_of(node.inputs, [&](ValueId v) { return is_plain(v); }) &&
           is_plain(table) && is_plain(ids) &&
           graph_[table].shape[0] <= graph_[ids].shape.elements() / 2;
  }

  // Puts the Embedding in the place of `node`, after the product.
  void multiply(BoundNode& node) {
    BoundNode gather = gathered_.at(node.inputs[0]).node;
    const ValueId table = gather.inputs[0], y = node.outputs[0];
    BoundValue product;
    product.dtype = graph_[y].dtype;
    product.shape = {graph_[table].shape[0], graph_[y].shape.back()};
    gather.inputs[0] = graph_.add_value(std::move(product));
    gather.outputs = {y};
    node.inputs[0] = table;
    node.outputs = {gather.inputs[0]};
    add(std::move(node));
    node = std::move(gather);
    any_ = true;
  }

  BoundGraph& graph_;
  std::map<ValueId, Gathered> gathered_;  // by result
  size_t writes_ = 0;
  bool any_ = false;
};

}  // namespace

bool multiply_tables(BoundGraph& graph) { return Tables(graph).rewrite(); }

}  // namespace bowline::detail::graph
