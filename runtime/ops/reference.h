// The reference implementation of an operator that is computed with those of others.
#pragma once

#include <utility>
#include <vector>

#include "ops/op.h"

namespace bowline {

// The results of another reference implementation.
struct Reference {
  std::vector<OracleContext::Array> outputs;
  std::vector<std::vector<double>> magnitude;
  OracleContext::Outcome outcome = {};
};

inline Reference reference_of(const OpDef& def, const Attributes& attributes,
                              const std::vector<OracleContext::Array>& inputs,
                              const std::vector<Shape>& outputs) {
  Reference out;
  for (const Shape& s : outputs) {
    out.outputs.push_back({s, std::vector<double>(static_cast<size_t>(s.elements()))});
  }
  out.magnitude.resize(outputs.size());
  def.oracle(OracleContext(attributes, inputs, out.outputs, out.magnitude, {}, {}, out.outcome));
  return out;
}

inline OracleContext::Array input_of(const OracleContext& c, int i) {
  return {c.shape(i), {c.in(i).begin(), c.in(i).end()}};
}

// Adds the results of output `from` to output `to`.
inline void add_output(const OracleContext& c, int to, const Reference& results, size_t from) {
  const auto& values = results.outputs[from].values;
  const auto& lost = results.magnitude[from];
  for (size_t i = 0; i < values.size(); ++i) {
    c.out(to)[i] += values[i];
    c.magnitude(to)[i] += lost[i];
  }
}

}  // namespace bowline
