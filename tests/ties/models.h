// Small models with shared weights whose results can be checked by hand. A failed call throws.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "base/float16.h"
#include "base/format.h"
#include "bowline.h"
#include "core/shape.h"

namespace bowline::test {

inline void require(bool holds, std::string_view what) {
  if (!holds) {
    throw std::runtime_error(std::string(what));
  }
}

inline void must(const Status& status) { require(status.ok(), status.message()); }
// Returns the value of a Result, or throws.
template <class T>
T must(Result<T> result) {
  must(result.status());
  return std::move(result).value();
}

struct Wrong {
  double value;
  const char* looks_like;
};

// Returns an empty text if `value` equals `right` within `tolerance` (relative above 1). Otherwise
// returns the error, and names the fault if `value` is in the list of known wrong values.
inline std::string wrong_number(double value, double right,
                                std::initializer_list<Wrong> signatures = {},
                                double tolerance = 1e-6) {
  const auto near = [&](double other) {
    return std::abs(value - other) <= tolerance * std::max(1.0, std::abs(other));
  };
  if (near(right)) {
    return {};
  }
  std::string out = format("{} instead of {}", value, right);
  const auto known =
      std::ranges::find_if(signatures, [&](const Wrong& w) { return near(w.value); });
  return known == signatures.end() ? out : out + format(", looks like: {}", known->looks_like);
}

using Floats = std::vector<float>;
using Dims = std::vector<int64_t>;

inline Tensor tensor(std::string_view name, const Dims& shape, Floats& data) {
  return {name, DType::f32, shape, data.data()};
}
inline Tensor tensor(std::string_view name, const Dims& shape, std::vector<int32_t>& data) {
  return {name, DType::i32, shape, data.data()};
}

// The values of a parameter, through its view.
inline Floats values(const Model& model, std::string_view name) {
  const ModelInfo info = must(model.describe());
  const auto row = std::ranges::find(info.parameters, name, &ParameterInfo::name);
  require(row != info.parameters.end(), name);
  Floats out(static_cast<size_t>(Shape(row->shape).elements()));
  const Dims dims(row->shape.begin(), row->shape.end());
  must(model.get_value(name, tensor("", dims, out)));
  return out;
}

inline Status set(Model& model, std::string_view name, const Dims& shape, Floats data) {
  return model.set_value(name, tensor("", shape, data));
}

// A model and its training batch.
struct Seed {
  Model model;
  Dims shape;  // of the f32 input "x"
  Floats x;
  std::vector<int32_t> ids;  // or of the i32 input "x"

  std::vector<Tensor> batch() {
    return {ids.empty() ? tensor("x", shape, x) : tensor("x", shape, ids)};
  }
};

inline uint16_t bf16_bits(float x) { return from_f32<bf16>(x).bits; }

// y = a x + b x, a tied to b, init 1, L = y.
inline Seed scalar2(float x) {
  Seed s;
  s.shape = {1};
  s.x = {x};
  const Dims one = {1};
  const Parameter a = must(s.model.parameter("a", one, Init::ones()));
  const Parameter b = must(s.model.tied_parameter("b", a));
  GraphBuilder g(s.model, "loss");
  const Value in = g.input("x", DType::f32, {1});
  const Value y =
      g.op("Add", {g.op("Mul", {g.parameter(a), in}), g.op("Mul", {g.parameter(b), in})});
  g.output("loss", g.op("ReduceSum", {y}));
  must(g.finish());
  must(s.model.materialize(1));
  return s;
}

// The shapes of LM32 without values. E is embedding and head, the input is one token, L = sum of
// logits.
inline Seed lm32_skeleton() {
  Seed s;
  s.shape = {1};
  s.ids = {2};
  const Dims shape = {3, 2};
  const Parameter embedding = must(s.model.parameter("embed", shape, Init::zeros()));
  const Parameter head = must(s.model.tied_parameter("head", embedding));
  GraphBuilder g(s.model, "loss");
  const Value x = g.input("x", DType::i32, {1});
  const Value logits =
      g.op("Linear", {g.op("Embedding", {g.parameter(embedding), x}), g.parameter(head)});
  g.output("loss", g.op("ReduceSum", {logits}));
  g.output("logits", logits);
  must(g.finish());
  return s;
}

inline Seed lm32() {
  Seed s = lm32_skeleton();
  must(s.model.materialize(1));
  must(set(s.model, "embed", {3, 2}, {1, 0, 0, 1, 1, 1}));
  return s;
}

// Returns the logits of LM32.
inline Floats logits_of(Session& session, Seed& s, int64_t vocabulary = 3) {
  Floats logits(static_cast<size_t>(vocabulary));
  const Tensor out[] = {tensor("logits", {1, vocabulary}, logits)};
  must(session.run(s.batch(), out));
  return logits;
}
inline Floats logits_of(Seed& s, const Device& device) {
  Session session = must(Session::create(s.model, device, "loss", {}));
  return logits_of(session, s);
}

// y = W x, z = transpose(W) y through a declared view, L = sum z.
inline Seed ae23() {
  Seed s;
  s.shape = {1, 3};
  s.x = {1, 0, 0};
  const Dims shape = {2, 3};
  const Parameter w = must(s.model.parameter("encoder", shape, Init::zeros()));
  View transposed;
  transposed.transpose = true;
  const Parameter wt = must(s.model.tied_parameter("decoder", w, transposed));
  GraphBuilder g(s.model, "loss");
  const Value x = g.input("x", DType::f32, {1, 3});
  const Value y = g.op("Linear", {x, g.parameter(w)});
  const Value z = g.op("Linear", {y, g.parameter(wt)});
  g.output("loss", g.op("ReduceSum", {z}));
  g.output("y", y);
  g.output("z", z);
  must(g.finish());
  must(s.model.materialize(1));
  must(set(s.model, "encoder", shape, {1, 2, 3, 4, 5, 6}));
  return s;
}

// y = w^n x in a Repeat. The n names of w share one storage.
inline Seed universal(int n, int64_t width = 1, float w = 1.1f) {
  Seed s;
  s.shape = {1, width};
  s.x = Floats(static_cast<size_t>(width), 1.0f);
  const Dims shape = {width, width};
  ParameterList list;
  list.items.push_back(must(s.model.parameter("layer.0.w", shape, Init::normal(0.1f))));
  for (int i = 1; i < n; ++i) {
    list.items.push_back(
        must(s.model.tied_parameter("layer." + std::to_string(i) + ".w", list.items[0])));
  }
  GraphBuilder g(s.model, "loss");
  const Value x = g.input("x", DType::f32, {1, width});
  const auto y = g.repeat(n, {x}, [&](GraphBuilder& body, const std::vector<Value>& carried) {
    return std::vector<Value>{body.op("Linear", {carried[0], body.parameter(list)})};
  });
  g.output("loss", g.op("ReduceSum", {y.at(0)}));
  must(g.finish());
  must(s.model.materialize(1));
  if (width == 1) {
    must(set(s.model, "layer.0.w", shape, {w}));
  }
  return s;
}

inline TrainOptions plain_sgd(float learning_rate) {
  TrainOptions o;
  o.optimizer = {"sgd"};
  o.schedule.learning_rate = learning_rate;
  return o;
}

inline StepReport step(Trainer& trainer, Seed& s) {
  const std::vector<Tensor> batch = s.batch();
  const std::span<const Tensor> batches[] = {batch};
  return must(trainer.step(batches));
}

inline float loss(Trainer& trainer, Seed& s) { return must(trainer.evaluate(s.batch())); }

// L = theta, in 16 bits.
inline Model theta_model(DType dtype = DType::bf16) {
  Model m;
  const Parameter theta = must(m.parameter("theta", {1}, Init::ones(), StorageRole::weight, dtype));
  GraphBuilder g(m, "loss");
  g.output("loss", g.op("ReduceSum", {g.parameter(theta)}));
  must(g.finish());
  must(m.materialize(1));
  return m;
}

inline void run_steps(Trainer& trainer, int n) {
  const std::span<const Tensor> batches[] = {{}};
  for (int i = 0; i < n; ++i) {
    require(!must(trainer.step(batches)).skipped, "a step is applied");
  }
}

inline TrainOptions adam(float learning_rate) {
  TrainOptions o;
  o.optimizer.settings["weight_decay"] = 0;
  o.schedule.learning_rate = learning_rate;
  return o;
}

// A table that is vocabulary and head of a language model, without graphs.
inline Model tied_table(int64_t rows, int64_t width) {
  Model m;
  const Parameter e = must(m.parameter("embed", {rows, width}, Init::normal(0.02f)));
  must(m.tied_parameter("head", e));
  must(m.materialize(3));
  return m;
}

// Returns the storages of a role, without empty entries.
inline std::vector<StorageInfo> storages_of(const Model& model, StorageRole role) {
  std::vector<StorageInfo> out;
  for (const StorageInfo& storage : must(model.describe()).storages) {
    if (!storage.empty && storage.role == role) {
      out.push_back(storage);
    }
  }
  return out;
}

// E is embedding and head. "forward" returns a row of E and the logits of x.
inline Model lookup_and_head(const Dims& shape, Floats numbers = {}) {
  Model m;
  const Parameter embedding = must(m.parameter("embed", shape, Init::normal(0.5f)));
  const Parameter head = must(m.tied_parameter("head", embedding));
  GraphBuilder g(m, "forward");
  const Value id = g.input("id", DType::i32, {1});
  const Value x = g.input("x", DType::f32, {1, shape[1]});
  g.output("row", g.op("Embedding", {g.parameter(embedding), id}));
  g.output("logits", g.op("Linear", {x, g.parameter(head)}));
  must(g.finish());
  must(m.materialize(1));
  if (!numbers.empty()) {
    must(set(m, "embed", shape, std::move(numbers)));
  }
  return m;
}

struct RowAndLogits {
  Floats row;
  Floats logits;
};

// Runs a model of lookup_and_head().
inline RowAndLogits run_lookup_and_head(const Model& model, const Device& device, int32_t id,
                                        Floats x) {
  const ModelInfo info = must(model.describe());
  const auto rows = info.storages[0].shape[0];
  const auto columns = info.storages[0].shape[1];
  Session session = must(Session::create(model, device, "forward", {}));
  RowAndLogits out{Floats(static_cast<size_t>(columns)), Floats(static_cast<size_t>(rows))};
  std::vector<int32_t> ids = {id};
  const Dims one = {1}, wide = {1, columns}, logits = {1, rows};
  const Tensor in[] = {tensor("id", one, ids), tensor("x", wide, x)};
  const Tensor results[] = {tensor("row", wide, out.row), tensor("logits", logits, out.logits)};
  must(session.run(in, results));
  return out;
}

// Returns the f32 row of a role that belongs to storage 0.
inline Floats row_of(const Model& model, StorageRole role, uint32_t slot = 0) {
  for (const StorageInfo& row : storages_of(model, role)) {
    if (row.owner == 0 && row.slot == slot) {
      require(row.dtype == DType::f32, "an f32 row");
      const auto bytes = must(model.storage_bytes(row.tie));
      Floats out(bytes.size() / sizeof(float));
      std::memcpy(out.data(), bytes.data(), bytes.size());
      return out;
    }
  }
  require(false, "Storage 0 has no such row.");
  return {};
}

// Returns the bytes of the weights.
inline uint64_t weight_bytes(const Model& model) {
  uint64_t bytes = 0;
  for (const StorageInfo& storage : storages_of(model, StorageRole::weight)) {
    bytes += storage.bytes;
  }
  return bytes;
}

}  // namespace bowline::test
