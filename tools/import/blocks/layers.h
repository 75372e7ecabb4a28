// What layers of all architectures are made of.
#pragma once

#include <optional>
#include <string>

#include "blocks/weights.h"

namespace bowline::import {

struct Linear {
  Weight weight;  // [out, in]
  std::optional<Weight> bias;
  bool input_first = false;  // the weight is [in, out], as GPT-2 has it
};

struct Norm {
  enum class Kind : uint8_t { layer, rms };
  Kind kind = Kind::layer;
  Weight gamma;
  std::optional<Weight> beta;  // of a layer norm
  double eps = 1e-5;
  std::optional<Weight> offset =
      {};  // what is added to gamma: of scales that are told by how far they are from it
};

struct Activation {
  std::string op;
  std::vector<Attribute> attributes;
};
// By the name that configs give it. Errors  unsupported: it is not known; those that are are named.
Result<Activation> activation_of(const std::string& name);

// In the body of a Repeat over groups of `group` layers: layer `index` of the group, whose weights
// are every `group`-th of a list.
struct LayerOfGroup {
  size_t index = 0;
  size_t group = 1;
};

// Adds layers to a graph that computes in `dtype`.
class Layers {
 public:
  Layers(GraphBuilder& graph, DType dtype, LayerOfGroup layer = {})
      : g(graph), dtype_(dtype), layer_(layer) {}

  Value read(const Weight& weight);
  // Without a cast to the dtype of the graph.
  Value read_stored(const Weight& weight);
  Value cast(Value x, DType from, DType to);
  Value linear(Value x, const Linear& layer);
  Value norm(Value x, const Norm& norm);
  Value embed(const Weight& table, Value ids);
  Value activate(Value x, const Activation& activation);
  Value add(Value a, Value b) { return g.op("Add", {a, b}); }
  Value mul(Value a, Value b) { return g.op("Mul", {a, b}); }
  Value reshape(Value x, std::vector<GraphDim> dims);
  // Of a training; `stream` tells apart those of one graph. A rate of 0 is none.
  Value dropout(Value x, double rate, int stream);

  GraphBuilder& g;

 private:
  DType dtype_;
  LayerOfGroup layer_;
};

}  // namespace bowline::import
