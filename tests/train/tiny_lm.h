// A small tied language model with a Repeat, dropout and attention, like the sample.
#pragma once

#include "base/random.h"
#include "ties/seed_models.h"

namespace bowline::test {

struct TinyLm {
  Model model;
  int batch = 2;
  int seq = 12;
  std::vector<int32_t> tokens;
  std::vector<int32_t> labels;
  Dims shape;

  // Returns random tokens that follow from `number`.
  std::vector<Tensor> data(uint32_t number) {
    const auto n = static_cast<size_t>(batch * seq);
    tokens.resize(n);
    labels.resize(n);
    shape = {batch, seq};
    for (uint32_t i = 0; i < n; ++i) {
      const RandomBlock r = philox({i, number, 0, 0}, {7, 7});
      tokens[i] = static_cast<int32_t>(r[0] % 29);
      labels[i] = static_cast<int32_t>((r[0] * 5 + 1) % 29);
    }
    return {tensor("tokens", shape, tokens), tensor("labels", shape, labels)};
  }
  std::vector<BoundDim> dims() const { return {{"batch", batch}, {"seq", seq}}; }
};

inline TinyLm tiny_lm(int layers = 3, float dropout = 0.1f, uint64_t seed = 1,
                      int64_t channels = 16) {
  constexpr int64_t kVocab = 29;
  constexpr int64_t kHeads = 2;
  TinyLm lm;
  Model& m = lm.model;
  const auto make = [&](std::string_view name, Dims shape, Init init) {
    return must(m.parameters(name, layers, shape, init));
  };
  const Dims table = {kVocab, channels};
  const Dims row = {channels};
  const Parameter embedding = must(m.parameter("embed.weight", table, Init::normal(0.1f)));
  const Parameter head = must(m.tied_parameter("head.weight", embedding));
  const ParameterList norm1 = make("layers.{}.norm1", row, Init::ones());
  const ParameterList q = make("layers.{}.q", {channels, channels}, Init::normal(0.1f));
  const ParameterList k = make("layers.{}.k", {channels / 2, channels}, Init::normal(0.1f));
  const ParameterList v = make("layers.{}.v", {channels / 2, channels}, Init::normal(0.1f));
  const ParameterList out = make("layers.{}.out", {channels, channels}, Init::normal(0.1f));
  const ParameterList norm2 = make("layers.{}.norm2", row, Init::ones());
  const ParameterList up = make("layers.{}.up", {4 * channels, channels}, Init::normal(0.1f));
  const ParameterList down = make("layers.{}.down", {channels, 4 * channels}, Init::normal(0.1f));
  const Parameter last = must(m.parameter("norm", row, Init::ones()));

  GraphBuilder g(m, "loss");
  const Value tokens = g.input("tokens", DType::i32, {"batch", "seq"});
  const Value labels = g.input("labels", DType::i32, {"batch", "seq"});
  const Value x0 = g.op("Embedding", {g.parameter(embedding), tokens});
  const auto body = [&](GraphBuilder& b, const std::vector<Value>& carried) {
    const auto heads = [&](Value y, int64_t count) {
      return b.op("Reshape", {y}, {{"dims", {"batch", "seq", count, channels / kHeads}}});
    };
    const Value x = carried[0];
    const Value h = b.op("RmsNorm", {x, b.parameter(norm1)});
    const Value qs = b.op("Rope", {heads(b.op("Linear", {h, b.parameter(q)}), kHeads)});
    const Value ks = b.op("Rope", {heads(b.op("Linear", {h, b.parameter(k)}), kHeads / 2)});
    const Value vs = heads(b.op("Linear", {h, b.parameter(v)}), kHeads / 2);
    const Value a = b.op("Attention", {qs, ks, vs}, {{"causal", 1}});
    const Value merged = b.op("Reshape", {a}, {{"dims", {"batch", "seq", channels}}});
    const Value mixed = b.op("Linear", {merged, b.parameter(out)});
    const Value dropped = b.op("Dropout", {mixed}, {{"rate", static_cast<double>(dropout)}});
    const Value y = b.op("Add", {x, dropped});
    const Value n = b.op("RmsNorm", {y, b.parameter(norm2)});
    const Value f = b.op("Gelu", {b.op("Linear", {n, b.parameter(up)})});
    return std::vector<Value>{b.op("Add", {y, b.op("Linear", {f, b.parameter(down)})})};
  };
  const auto x = g.repeat(layers, {x0}, body);
  EXPECT_EQ(x.size(), 1u);
  const Value logits =
      g.op("Linear", {g.op("RmsNorm", {x.at(0), g.parameter(last)}), g.parameter(head)});
  g.output("loss", g.op("CrossEntropy", {logits, labels}));
  g.output("logits", logits);
  EXPECT_OK(g.finish());
  EXPECT_OK(m.materialize(seed));
  return lm;
}

inline TrainOptions adamw(const TinyLm& lm) {
  TrainOptions o;
  o.dims = lm.dims();
  o.schedule.learning_rate = 3e-3f;
  o.clip_norm = 1;
  o.seed = 5;
  return o;
}

// Takes one step on the batches `first`, first + 1, ... of the accumulation.
inline Result<StepReport> train_step(Trainer& t, TinyLm& lm, uint32_t first,
                                     uint32_t accumulation = 1) {
  std::optional<StepReport> report;
  for (uint32_t i = 0; i < accumulation; ++i) {
    auto r = t.micro_step(lm.data(first + i));
    if (!r.ok()) {
      return r.status();
    }
    report = r.value();
  }
  return *report;
}

// Returns all bytes of the weights and optimizer rows, one after the other.
inline std::vector<std::byte> all_bytes(const Model& model) {
  std::vector<std::byte> out;
  for (const StorageInfo& s : must(model.describe()).storages) {
    if (!s.empty) {
      const auto bytes = must(model.storage_bytes(s.tie));
      out.insert(out.end(), bytes.begin(), bytes.end());
    }
  }
  return out;
}

}  // namespace bowline::test
