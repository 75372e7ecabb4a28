// GPT-2 as the importer builds it.
#pragma once

#include <functional>

#include "train/tiny_lm.h"

namespace bowline::test {

struct Gpt2Shape {
  int64_t layers, width, heads, vocabulary, positions;
};
// The vocabulary is padded to a multiple of 128.
constexpr Gpt2Shape kGpt2Shape = {12, 768, 12, 50304, 1024};

struct Gpt2 {
  Gpt2Shape s;
  Model model;
  Parameter tokens, positions, head, norm, norm_bias;
  ParameterList norm1, norm1_bias, qkv, qkv_bias, out, out_bias, norm2, norm2_bias, up, up_bias,
      down, down_bias;

  explicit Gpt2(const Gpt2Shape& shape) : s(shape) {
    const Init draw = Init::normal(0.1f);
    tokens = must(model.parameter("wte", {s.vocabulary, s.width}, draw));
    head = must(model.tied_parameter("lm_head", tokens));
    positions = must(model.parameter("wpe", {s.positions, s.width}, draw));
    norm = must(model.parameter("ln_f.weight", {s.width}, Init::ones()));
    norm_bias = must(model.parameter("ln_f.bias", {s.width}, Init::zeros()));
    const auto list = [&](const std::string& name, const Dims& dims) {
      return must(model.parameters("h.{}." + name, s.layers, dims, draw));
    };
    norm1 = list("ln_1.weight", {s.width});
    norm1_bias = list("ln_1.bias", {s.width});
    qkv = list("attn.c_attn.weight", {s.width, 3 * s.width});
    qkv_bias = list("attn.c_attn.bias", {3 * s.width});
    out = list("attn.c_proj.weight", {s.width, s.width});
    out_bias = list("attn.c_proj.bias", {s.width});
    norm2 = list("ln_2.weight", {s.width});
    norm2_bias = list("ln_2.bias", {s.width});
    up = list("mlp.c_fc.weight", {s.width, 4 * s.width});
    up_bias = list("mlp.c_fc.bias", {4 * s.width});
    down = list("mlp.c_proj.weight", {4 * s.width, s.width});
    down_bias = list("mlp.c_proj.bias", {s.width});
    add_loss();
  }

  // Attention over the heads of q, k and v.
  using Attend = std::function<Value(GraphBuilder&, Value q, Value k, Value v)>;

  Value layer(GraphBuilder& b, Value x, const GraphDim& batch, const GraphDim& seq,
              const Attend& attend) const {
    const auto product = [&](Value v, const ParameterList& w, const ParameterList& bias) {
      return b.op("Add", {b.op("MatMul", {v, b.parameter(w)}), b.parameter(bias)});
    };
    const Value h = b.op("LayerNorm", {x, b.parameter(norm1), b.parameter(norm1_bias)});
    (void)b.op("Split", {product(h, qkv, qkv_bias)},
               {{"axis", -1}, {"sizes", {s.width, s.width, s.width}}});
    const std::vector<Value> split = b.last_outputs();
    const auto heads = [&](Value v) {
      return b.op("Reshape", {v}, {{"dims", {batch, seq, s.heads, s.width / s.heads}}});
    };
    const Value q = heads(split.at(0)), k = heads(split.at(1)), v = heads(split.at(2));
    const Value a = attend(b, q, k, v);
    const Value merged = b.op("Reshape", {a}, {{"dims", {batch, seq, s.width}}});
    const Value y = b.op("Add", {x, product(merged, out, out_bias)});
    const Value n = b.op("LayerNorm", {y, b.parameter(norm2), b.parameter(norm2_bias)});
    const Value f = b.op("Gelu", {product(n, up, up_bias)}, {{"form", "tanh"}});
    return b.op("Add", {y, product(f, down, down_bias)});
  }

  void add_loss() {
    GraphBuilder g(model, "loss");
    const Value ids = g.input("tokens", DType::i32, {"batch", "seq"});
    const Value labels = g.input("labels", DType::i32, {"batch", "seq"});
    const Value at =
        g.op("Slice", {g.parameter(positions)}, {{"axis", 0}, {"start", 0}, {"length", "seq"}});
    const Value x0 = g.op("Add", {g.op("Embedding", {g.parameter(tokens), ids}), at});
    const Attend attend = [](GraphBuilder& b, Value q, Value k, Value v) {
      return b.op("Attention", {q, k, v}, {{"causal", 1}});
    };
    const auto x = g.repeat(s.layers, {x0}, [&](GraphBuilder& b, const std::vector<Value>& in) {
      return std::vector<Value>{layer(b, in[0], "batch", "seq", attend)};
    });
    g.output("loss", g.op("CrossEntropy", {logits(g, x.at(0)), labels}));
    EXPECT_OK(g.finish());
  }

  // Adds the KV cache and the entry point that generates a token.
  void add_decode() {
    must(model.set_dim_limits("kv_length", {.dynamic = true}));
    const auto cache = [&](const char* name) {
      return must(model.parameters(name, s.layers, {8, s.heads, s.width / s.heads}, Init::zeros(),
                                   StorageRole::kv_cache));
    };
    const ParameterList keys = cache("cache.{}.k"), values = cache("cache.{}.v");
    GraphBuilder g(model, "decode");
    const Value ids = g.input("tokens", DType::i32, {1, 1});
    const Value at = g.input("positions", DType::i32, {1});
    const Attend attend = [&](GraphBuilder& b, Value q, Value k, Value v) {
      const auto cached = [&](const ParameterList& list, Value rows) {
        const GraphDim size = s.width / s.heads;
        const Value flat = b.op("Reshape", {rows}, {{"dims", {1, s.heads, size}}});
        const Value all = b.op("WriteRows", {b.parameter(list), flat}, {{"axis", 0}});
        const Value some = b.op("Slice", {all}, {{"axis", 0}, {"length", "kv_length"}});
        return b.op("Reshape", {some}, {{"dims", {1, "kv_length", s.heads, size}}});
      };
      const Value written = cached(keys, k);
      return b.op("Attention", {q, written, cached(values, v)}, {{"causal", 1}});
    };
    const Value x0 = g.op("Add", {g.op("Embedding", {g.parameter(tokens), ids}),
                                  g.op("Embedding", {g.parameter(positions), at})});
    const auto x = g.repeat(s.layers, {x0}, [&](GraphBuilder& b, const std::vector<Value>& in) {
      return std::vector<Value>{layer(b, in[0], 1, 1, attend)};
    });
    const Value all = g.op("Reshape", {logits(g, x.at(0))}, {{"dims", {1, s.vocabulary}}});
    g.output("logits", all);
    g.output("top_logits", g.op("TopK", {all}, {{"k", 16}}));
    const Value top = g.last_outputs().at(1);
    g.output("top_ids", top);
    const Value first = g.op("Slice", {top}, {{"axis", 1}, {"length", 1}});
    (void)g.op("CrossEntropy", {all, g.op("Reshape", {first}, {{"dims", {1}}})},
               {{"reduction", "none"}});
    g.output("lse", g.last_outputs().at(1));
    EXPECT_OK(g.finish());
  }

 private:
  Value logits(GraphBuilder& g, Value x) const {
    const Value h = g.op("LayerNorm", {x, g.parameter(norm), g.parameter(norm_bias)});
    return g.op("Linear", {h, g.parameter(head)});
  }
};

}  // namespace bowline::test
