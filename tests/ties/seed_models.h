// The hand-checkable models of structural weight sharing, with what a wrong number means.
#pragma once

#include <gtest/gtest.h>

#include <cstring>

#include "bowline.h"
#include "graph/model_state.h"
#include "params/table.h"

namespace bowline::test {

inline Status status_of(Status status) { return status; }
template <class T>
Status status_of(Result<T> result) {
  return std::move(result).status();
}

#define ASSERT_OK(call)                                                   \
  do {                                                                    \
    const ::bowline::Status ok_status = ::bowline::test::status_of(call); \
    ASSERT_TRUE(ok_status.ok()) << ok_status.message();                   \
  } while (false)
#define EXPECT_OK(call)                                                   \
  do {                                                                    \
    const ::bowline::Status ok_status = ::bowline::test::status_of(call); \
    EXPECT_TRUE(ok_status.ok()) << ok_status.message();                   \
  } while (false)

// The value of a Result that the test counts on.
template <class T>
T must(Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.status().message();
  if (!result.ok()) {
    std::abort();
  }
  return std::move(result).value();
}

struct Wrong {
  double value;
  const char* looks_like;
};

// 1e-6 relative; a number from the list of wrong ones is named.
inline void expect_number(double value, double right, std::initializer_list<Wrong> signatures = {},
                          double tolerance = 1e-6) {
  const auto near = [&](double other) {
    return std::abs(value - other) <= tolerance * std::max(1.0, std::abs(other));
  };
  if (near(right)) {
    return;
  }
  for (const Wrong& w : signatures) {
    if (near(w.value)) {
      ADD_FAILURE() << "got " << value << " instead of " << right
                    << ", looks like: " << w.looks_like;
      return;
    }
  }
  ADD_FAILURE() << "got " << value << " instead of " << right;
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
  EXPECT_NE(row, info.parameters.end()) << name;
  Floats out(static_cast<size_t>(Shape(row->shape).elements()));
  const Dims dims(row->shape.begin(), row->shape.end());
  EXPECT_OK(model.get_value(name, tensor("", dims, out)));
  return out;
}

inline Status set(Model& model, std::string_view name, const Dims& shape, Floats data) {
  return model.set_value(name, tensor("", shape, data));
}

// A model with the batch that it is trained on.
struct Seed {
  Model model;
  Dims shape;  // of the f32 input "x"
  Floats x;
  std::vector<int32_t> ids;  // or of the i32 input "x"

  std::vector<Tensor> batch() {
    return {ids.empty() ? tensor("x", shape, x) : tensor("x", shape, ids)};
  }
};

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
  EXPECT_OK(g.finish());
  EXPECT_OK(s.model.materialize(1));
  return s;
}

// E is embedding and head; one token; L = sum of logits.
inline Seed lm32() {
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
  EXPECT_OK(g.finish());
  EXPECT_OK(s.model.materialize(1));
  EXPECT_OK(set(s.model, "embed", shape, {1, 0, 0, 1, 1, 1}));
  return s;
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
  EXPECT_OK(g.finish());
  EXPECT_OK(s.model.materialize(1));
  EXPECT_OK(set(s.model, "encoder", shape, {1, 2, 3, 4, 5, 6}));
  return s;
}

// y = w^n x in a Repeat; the n names of w are one storage.
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
  EXPECT_EQ(y.size(), 1u);
  g.output("loss", g.op("ReduceSum", {y.at(0)}));
  EXPECT_OK(g.finish());
  EXPECT_OK(s.model.materialize(1));
  if (width == 1) {
    EXPECT_OK(set(s.model, "layer.0.w", shape, {w}));
  }
  return s;
}

inline TrainOptions plain_sgd(float learning_rate) {
  TrainOptions o;
  o.optimizer.kind = Optimizer::Kind::sgd;
  o.optimizer.weight_decay = 0;
  o.schedule.learning_rate = learning_rate;
  return o;
}

inline StepReport step(Trainer& trainer, Seed& s) {
  const std::vector<Tensor> batch = s.batch();
  const std::span<const Tensor> batches[] = {batch};
  return must(trainer.step(batches));
}

inline float loss(Trainer& trainer, Seed& s) { return must(trainer.evaluate(s.batch())); }

// Payload bytes of the weights.
inline uint64_t weight_bytes(const Model& model) {
  uint64_t bytes = 0;
  for (const StorageInfo& storage : must(model.describe()).storages) {
    bytes += storage.role == StorageRole::weight ? storage.bytes : 0;
  }
  return bytes;
}

}  // namespace bowline::test
