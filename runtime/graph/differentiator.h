// The reverse walk, as gradient.cpp and gradient_repeat.cpp share it. Internal to graph/.
#pragma once

#include "graph/gradient.h"

namespace bowline::detail::graph {

// One for each value of a graph, or for each input of a node: not 0 if it is meant.
using Marks = std::vector<char>;

inline Attributes no_attributes() { return Attributes::of(NoAttributesT{}); }

// The reverse walk over one graph: the outer one, or the body of a Repeat.
class Differentiator {
 public:
  // `path`: of the Repeats around the graph. `kept` grows by what could be run again.
  Differentiator(BoundGraph& graph, const GradientOptions& options, std::vector<uint32_t> path,
                 uint64_t iterations, std::map<ForwardNode, Kept>& kept)
      : graph_(graph),
        options_(options),
        gradients_(graph.values.size(), kNoValue),
        path_(std::move(path)),
        iterations_(iterations),
        kept_(kept) {}

  // Marks the values that a trainable storage or one of the marked inputs reaches: those that need
  // a gradient.
  void find_needed(const Marks& inputs) { needed_ = reached(graph_, inputs); }
  bool needed(ValueId v) const { return v < needed_.size() && needed_[v]; }
  // The inputs of the body of a Repeat of this graph that need a gradient, in some iteration.
  Marks needed_inputs(const BoundNode& repeat) const { return reached_inputs(repeat, needed_); }

  Status contribute(ValueId v, ValueId gradient);
  // Walks nodes [0, count) backwards.
  Status walk(size_t count);
  ValueId gradient(ValueId v) const { return v < gradients_.size() ? gradients_[v] : kNoValue; }

  // Whether a value depends on an input of the graph.
  bool from_batch(ValueId v) const;
  // The gradient that the backward part begins with, and what `out` says of the weights of the
  // loss.
  Result<ValueId> seed(ValueId loss, TrainingGraph& out);

  // Appends a node, infers its outputs.
  Result<std::vector<ValueId>> append(Op op, std::vector<ValueId> inputs,
                                      const Attributes& attributes, std::string name);
  // The same for a rule of an operator. Empty, and `failed` says why, if the node cannot be added.
  GradientValues append_for(Op op, const GradientValues& inputs, const Attributes& attributes,
                            std::string name, Status& failed);
  Result<ValueId> filled(float value, const Shape& shape, DType dtype);
  // v * factor.
  Result<ValueId> scaled(ValueId v, double factor);
  // Whether a node of the forward part `whole` runs again in the backward one, instead of what it
  // gives being kept.
  bool runs_again(const BoundGraph& whole, uint32_t node) const;
  // The backward part reads `v`, which a node of the forward part gives.
  void note_kept(const BoundGraph& whole, ValueId v);
  const std::vector<uint32_t>& path() const { return path_; }
  uint64_t iterations() const { return iterations_; }
  std::map<ForwardNode, Kept>& kept() { return kept_; }

  // Zeros for a value that the loss does not reach.
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

// Appends the gradient of a Repeat: a Repeat that runs backwards, over values that the forward one
// then keeps.
Status walk_repeat(Differentiator& outer, BoundGraph& graph, size_t index,
                   const GradientOptions& options);

}  // namespace bowline::detail::graph
