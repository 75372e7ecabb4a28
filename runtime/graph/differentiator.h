// The reverse walk that computes gradients, for gradient.cpp and gradient_repeat.cpp. Internal to
// graph/.
#pragma once

#include "graph/gradient.h"
#include "ops/build.h"

namespace bowline::detail::graph {

// One flag per value of a graph or per input of a node. Not 0: marked.
using Marks = std::vector<char>;

// The reverse walk over one graph: the outer one, or the body of a Repeat.
class Differentiator {
 public:
  // `path`: the Repeats around the graph. The walk adds forward nodes that could be recomputed to
  // `kept`.
  Differentiator(BoundGraph& graph, const GradientOptions& options, std::vector<uint32_t> path,
                 uint64_t iterations, std::map<ForwardNode, Kept>& kept)
      : graph_(graph),
        options_(options),
        gradients_(graph.values.size(), kNoValue),
        path_(std::move(path)),
        iterations_(iterations),
        kept_(kept) {}

  // Marks the values that need a gradient: those that depend on a trainable storage or on a marked
  // input.
  void find_needed(const Marks& inputs) { needed_ = reached(graph_, inputs); }
  bool needed(ValueId v) const { return v < needed_.size() && needed_[v]; }
  // The inputs of the body of `repeat` that need a gradient in at least one iteration.
  Marks needed_inputs(const BoundNode& repeat) const { return reached_inputs(repeat, needed_); }

  Status contribute(ValueId v, ValueId gradient);
  // Walks nodes [0, count) backwards.
  Status walk(size_t count);
  ValueId gradient(ValueId v) const { return v < gradients_.size() ? gradients_[v] : kNoValue; }

  // Whether a value depends on an input of the graph.
  bool from_batch(ValueId v) const;
  // Returns the gradient of the loss, with which the backward part starts. Sets the fields of `out`
  // about the loss weight.
  Result<ValueId> seed(ValueId loss, TrainingGraph& out);

  // Appends a node and infers its outputs. Returns output 0.
  Result<ValueId> append(Op op, std::vector<ValueId> inputs, const Attributes& attributes,
                         std::string name);
  // The same for the gradient function of an operator. On failure, returns an empty list and sets
  // `failed`.
  GradientValues append_for(Op op, const GradientValues& inputs, const Attributes& attributes,
                            std::string name, Status& failed);
  Result<ValueId> filled(float value, const Shape& shape, DType dtype);
  // v * factor.
  Result<ValueId> scaled(ValueId v, double factor);
  // Whether the backward part recomputes a node of the forward part `whole`. Otherwise, its result
  // is kept.
  bool runs_again(const BoundGraph& whole, uint32_t node) const;
  // Notes that the backward part reads `v`, a result of the forward part.
  void note_kept(const BoundGraph& whole, ValueId v);
  const std::vector<uint32_t>& path() const { return path_; }
  uint64_t iterations() const { return iterations_; }
  std::map<ForwardNode, Kept>& kept() { return kept_; }

  // The gradient of `v`, or zeros if the loss does not depend on `v`.
  Result<ValueId> gradient_or_zero(ValueId v);

 private:
  Status walk_node(size_t node);
  Marks reached(const BoundGraph& graph, const Marks& inputs) const;
  Marks reached_inputs(const BoundNode& repeat, const Marks& around) const;
  bool has_trainable(const BoundValue& info) const;
  ValueId before_cast(ValueId v) const;
  ValueId gradient_list(const BoundValue& parameter);

  BoundGraph& graph_;
  const GradientOptions& options_;
  std::vector<ValueId> gradients_;
  Marks needed_;
  std::vector<uint32_t> path_;
  uint64_t iterations_;
  std::map<ForwardNode, Kept>& kept_;
};

// Appends the gradient of a Repeat: a Repeat that runs backwards. The forward Repeat then keeps the
// values that it reads.
Status walk_repeat(Differentiator& outer, BoundGraph& graph, size_t index,
                   const GradientOptions& options);

}  // namespace bowline::detail::graph
