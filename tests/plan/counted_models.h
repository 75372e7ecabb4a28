// Models with a dynamic dimension "seq", and the same models with a bound dimension.
#pragma once

#include <limits>

#include "ties/seed_models.h"

namespace bowline::test {

constexpr int64_t kCapacity = 16;
constexpr int64_t kClasses = 11;
constexpr int64_t kWidth = 8;

using Ids = std::vector<int32_t>;

// Random small numbers that follow from a seed.
class Draw {
 public:
  explicit Draw(uint64_t seed) : state_(seed * 2654435761u + 88172645463325252u) {}
  int64_t below(int64_t n) {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<int64_t>(state_ % static_cast<uint64_t>(n));
  }
  template <class T>
  const T& of(const std::vector<T>& list) {
    return list[static_cast<size_t>(below(static_cast<int64_t>(list.size())))];
  }
  Floats floats(int64_t n, float size = 1) {
    Floats out;
    for (int64_t i = 0; i < n; ++i) {
      out.push_back(size * static_cast<float>(below(2001) - 1000) / 1000);
    }
    return out;
  }
  Ids ids(int64_t n, int64_t most) {
    Ids out;
    for (int64_t i = 0; i < n; ++i) {
      out.push_back(static_cast<int32_t>(below(most)));
    }
    return out;
  }

 private:
  uint64_t state_;
};

inline Model with_seq(bool counted, int64_t min = 1) {
  Model model;
  EXPECT_OK(model.set_dim_limits("seq", {.min = min, .dynamic = counted}));
  return model;
}

// Returns a table with NaN in row 0. The ids of a run are not 0, but the ids behind the actual
// length are 0.
inline Parameter poisonous_table(Model& model) {
  return must(model.parameter("poison", {3, 4}, Init::uniform(1)));
}
inline void poison(Model& model) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_OK(set(model, "poison", {3, 4}, {nan, nan, nan, nan, 1, -0.5f, 0.25f, 0, 0.5f, 1, -1, 2}));
}

// Decoder layers over values of shape [.., kWidth].
class Decoder {
 public:
  explicit Decoder(Model& model) : model_(model) {
    for (const char* name : {"ln1", "ln2", "ln3"}) {
      (void)must(model.parameter(format("{}.gamma", name), {kWidth}, Init::ones()));
      (void)must(model.parameter(format("{}.beta", name), {kWidth}, Init::normal(0.1f)));
    }
    for (const char* name : {"q", "k", "v", "o"}) {
      (void)must(model.parameter(name, {kWidth, kWidth}, Init::normal(0.5f)));
    }
    (void)must(model.parameter("up", {2 * kWidth, kWidth}, Init::normal(0.4f)));
    (void)must(model.parameter("down", {kWidth, 2 * kWidth}, Init::normal(0.4f)));
    (void)must(model.parameter("emb", {kClasses, kWidth}, Init::normal(0.7f)));
    (void)must(model.parameter("pos", {kCapacity, kWidth}, Init::normal(0.3f)));
  }

  Value norm(GraphBuilder& g, Value x, const std::string& name) {
    return g.op("LayerNorm", {x, own(g, name + ".gamma"), own(g, name + ".beta")});
  }
  Value linear(GraphBuilder& g, Value x, const std::string& name) {
    return g.op("Linear", {x, own(g, name)});
  }
  Value heads(GraphBuilder& g, Value x, const GraphDim& batch, const GraphDim& seq) {
    return g.op("Reshape", {x}, {{"dims", {batch, seq, 2, kWidth / 2}}});
  }
  // Computes the rest of the layer from x and the output of the attention heads.
  Value rest(GraphBuilder& g, Value x, Value attended, const GraphDim& batch, const GraphDim& seq) {
    const Value flat = g.op("Reshape", {attended}, {{"dims", {batch, seq, kWidth}}});
    x = g.op("Add", {x, linear(g, flat, "o")});
    const Value hidden = g.op("Gelu", {linear(g, norm(g, x, "ln2"), "up")});
    x = g.op("Add", {x, linear(g, hidden, "down")});
    return linear(g, norm(g, x, "ln3"), "emb");
  }
  Value own(GraphBuilder& g, const std::string& name) {
    return g.parameter(must(model_.find(name)));
  }

 private:
  Model& model_;
};

// ids [batch, seq] -> logits [batch, seq, kClasses].
inline void add_prefill(Model& model, Decoder& d) {
  GraphBuilder g(model, "prefill");
  const GraphDim batch("batch"), seq("seq");
  const Value ids = g.input("ids", DType::i32, {batch, seq});
  const Value pos = g.op("Slice", {d.own(g, "pos")}, {{"axis", 0}, {"length", "seq"}});
  const Value x = g.op("Add", {g.op("Embedding", {d.own(g, "emb"), ids}), pos});
  const Value n = d.norm(g, x, "ln1");
  const auto part = [&](const char* name) { return d.heads(g, d.linear(g, n, name), batch, seq); };
  const Value a = g.op("Attention", {part("q"), part("k"), part("v")}, {{"causal", true}});
  g.output("logits", d.rest(g, x, a, batch, seq));
  EXPECT_OK(g.finish());
}

// Token id [1, 1] at a position -> logits [1, 1, kClasses]. States hold the keys and values of
// earlier tokens, in "kv_length" valid rows.
inline void add_decode(Model& model, Decoder& d) {
  EXPECT_OK(model.set_dim_limits("kv_length", {.dynamic = true}));
  const Dims cache = {1, kCapacity, 2, kWidth / 2};
  const Parameter keys =
      must(model.parameter("cache.k", cache, Init::zeros(), StorageRole::kv_cache));
  const Parameter kept =
      must(model.parameter("cache.v", cache, Init::zeros(), StorageRole::kv_cache));
  GraphBuilder g(model, "decode");
  const Value id = g.input("id", DType::i32, {1, 1});
  const Value at = g.input("at", DType::i32, {1, 1});
  const Value x = g.op(
      "Add", {g.op("Embedding", {d.own(g, "emb"), id}), g.op("Embedding", {d.own(g, "pos"), at})});
  const Value n = d.norm(g, x, "ln1");
  const auto part = [&](const char* name) { return d.heads(g, d.linear(g, n, name), 1, 1); };
  const auto all = [&](Parameter state, Value rows) {
    const Value written = g.op("WriteRows", {g.parameter(state), rows}, {{"axis", 1}});
    return g.op("Slice", {written}, {{"axis", 1}, {"length", "kv_length"}});
  };
  const Value q = part("q");
  const Value k = all(keys, part("k"));
  const Value v = all(kept, part("v"));
  const Value a = g.op("Attention", {q, k, v}, {{"causal", true}});
  g.output("logits", d.rest(g, x, a, 1, 1));
  EXPECT_OK(g.finish());
}

}  // namespace bowline::test
