#include "blocks/layers.h"

#include <fmt/format.h>

#include <map>

#include "base/escape.h"
#include "base/projected.h"
#include "base/status.h"

namespace bowline::import {

Result<Activation> activation_of(const std::string& name) {
  const Activation erf = {"Gelu", {}}, tanh = {"Gelu", {{"form", "tanh"}}}, silu = {"Silu", {}};
  const std::map<std::string, Activation> known = {
      {"gelu", erf},          {"gelu_python", erf},         {"gelu_new", tanh},
      {"gelu_fast", tanh},    {"gelu_pytorch_tanh", tanh},  {"silu", silu},
      {"swish", silu},        {"relu", {"Relu", {}}},       {"relu2", {"Relu", {}, true}},
      {"tanh", {"Tanh", {}}}, {"sigmoid", {"Sigmoid", {}}},
  };
  const auto found = known.find(name);
  const auto name_of = [](const auto& entry) { return entry.first; };
  BOWLINE_REQUIRE_CODE(found != known.end(), Code::unsupported,
                       "The activation \"{}\" is not supported. Supported: {}.", escaped(name),
                       fmt::format("{}", fmt::join(projected(known, name_of), ", ")));
  return found->second;
}

Value Layers::read(const Weight& weight) { return cast(read_stored(weight), weight.dtype, dtype_); }

Value Layers::read_stored(const Weight& weight) {
  const auto* const all = std::get_if<ParameterList>(&weight.of);
  if (all == nullptr) {
    return g.parameter(std::get<Parameter>(weight.of));
  }
  if (layer_.is_alone) {
    return g.parameter(all->items.at(0));
  }
  ParameterList own;
  for (size_t i = layer_.skipped + layer_.index; i < all->items.size(); i += layer_.group) {
    own.items.push_back(all->items[i]);
  }
  return g.parameter(own);
}

Value Layers::cast(Value x, DType from, DType to) {
  return from == to ? x : g.op("Cast", {x}, {{"to", name_of(to)}});
}

Value Layers::linear(Value x, const Linear& layer) {
  const Value w = read(layer.weight);
  if (layer.input_first) {
    const Value y = g.op("MatMul", {x, w});
    return layer.bias ? add(y, read(*layer.bias)) : y;
  }
  return layer.bias ? g.op("Linear", {x, w, read(*layer.bias)}) : g.op("Linear", {x, w});
}

Value Layers::norm(Value x, const Norm& norm) {
  Value gamma = read(norm.gamma);
  if (norm.offset) {
    gamma = add(gamma, read(*norm.offset));
  }
  if (norm.kind == Norm::Kind::rms) {
    return g.op("RmsNorm", {x, gamma}, {{"eps", norm.eps}});
  }
  return g.op("LayerNorm", {x, gamma, read(*norm.beta)}, {{"eps", norm.eps}});
}

Value Layers::embed(const Weight& table, Value ids) {
  return g.op("Embedding", {read(table), ids});
}

Value Layers::activate(Value x, const Activation& activation) {
  const Value y = g.op(activation.op, {x}, activation.attributes);
  return activation.is_squared ? g.op("Square", {y}) : y;
}

Value Layers::dropout(Value x, double rate, int stream) {
  return rate == 0 ? x : g.op("Dropout", {x}, {{"rate", rate}, {"stream", stream}});
}

Value Layers::reshape(Value x, std::vector<GraphDim> dims) {
  return g.op("Reshape", {x}, {{"dims", std::move(dims)}});
}

}  // namespace bowline::import
