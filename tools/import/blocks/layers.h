// Building blocks of the layers of all architectures.
#pragma once

#include <optional>
#include <string>

#include "blocks/weights.h"

namespace bowline::import {

// The limit of all sizes. The product of two sizes fits in 64 bits.
inline constexpr int64_t kMostSize = int64_t{1} << 24;

struct Linear {
  Weight weight;  // [out, in]
  std::optional<Weight> bias;
  bool input_first = false;  // the weight is [in, out], as in GPT-2
};

struct Norm {
  enum class Kind : uint8_t { layer, rms };
  Kind kind = Kind::layer;
  Weight gamma;
  std::optional<Weight> beta;  // a layer norm needs it, an RMS norm has none
  double eps = 1e-5;
  std::optional<Weight> offset = {};  // added to gamma: 1 if the source stores gamma - 1
};

struct Activation {
  std::string op;
  std::vector<Attribute> attributes;
  bool is_squared = false;
};
// Returns the activation with this name in configs.
// Errors  unsupported: the message lists the supported activations.
Result<Activation> activation_of(const std::string& name);

// Layer `index` in the body of a Repeat over groups of `group` layers, behind the first `skipped`
// layers. It uses every `group`-th weight of a list. `is_alone`: the first layer, outside of a
// Repeat.
struct LayerOfGroup {
  size_t index = 0;
  size_t group = 1;
  size_t skipped = 0;
  bool is_alone = false;
};

// Adds layers to a graph with the compute dtype `dtype`.
class Layers {
 public:
  Layers(GraphBuilder& graph, DType dtype, LayerOfGroup layer = {})
      : g(graph), dtype_(dtype), layer_(layer) {}

  Value read(const Weight& weight);
  // As read(), without a cast to the compute dtype.
  Value read_stored(const Weight& weight);
  Value cast(Value x, DType from, DType to);
  Value linear(Value x, const Linear& layer);
  Value norm(Value x, const Norm& norm);
  Value embed(const Weight& table, Value ids);
  Value activate(Value x, const Activation& activation);
  Value add(Value a, Value b) { return g.op("Add", {a, b}); }
  Value mul(Value a, Value b) { return g.op("Mul", {a, b}); }
  Value reshape(Value x, std::vector<GraphDim> dims);
  // Dropout during training. `stream` gives each dropout of a graph its own random values. A rate
  // of 0 adds nothing.
  Value dropout(Value x, double rate, int stream);

  GraphBuilder& g;

 private:
  DType dtype_;
  LayerOfGroup layer_;
};

}  // namespace bowline::import
