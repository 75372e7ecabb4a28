// Helpers of the seed programs: end with a message if a call fails, and read and write values.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "bowline.h"

using namespace bowline;

inline void must(const Status& status) {
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.message().c_str());
    std::exit(1);
  }
}
template <class T>
T must(Result<T> result) {
  must(result.status());
  return std::move(result).value();
}

using Floats = std::vector<float>;

inline Tensor tensor(std::string_view name, const TensorShape& shape, Floats& data) {
  return {name, DType::f32, shape, data.data()};
}

inline ParameterInfo info_of(const Model& model, std::string_view name) {
  for (const ParameterInfo& p : must(model.describe()).parameters) {
    if (p.name == name) {
      return p;
    }
  }
  std::fprintf(stderr, "There is no parameter %s.\n", std::string(name).c_str());
  std::exit(1);
}

inline Floats values(const Model& model, std::string_view name) {
  const TensorShape shape = info_of(model, name).shape;
  size_t elements = 1;
  for (const int64_t dim : shape) {
    elements *= static_cast<size_t>(dim);
  }
  Floats out(elements);
  must(model.get_value(name, tensor("", shape, out)));
  return out;
}

inline void set(Model& model, std::string_view name, Floats data) {
  must(model.set_value(name, tensor("", info_of(model, name).shape, data)));
}

// "[1, 2.5]"
inline std::string text(const Floats& numbers) {
  std::string out = "[";
  for (const float n : numbers) {
    char one[32];
    std::snprintf(one, sizeof(one), "%s%g", out.size() > 1 ? ", " : "", static_cast<double>(n));
    out += one;
  }
  return out + "]";
}

// Runs a training step and returns the loss before it.
inline float step(Trainer& trainer, std::span<const Tensor> batch) {
  return must(trainer.micro_step(batch))->loss;
}
