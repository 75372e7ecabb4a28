// A Llama decoder as the importer builds it, with random weights.
#pragma once

#include <optional>

#include "ties/models.h"

namespace bowline::test {

struct DecoderShape {
  int layers = 3;
  int64_t width = 32;
  int64_t heads = 4;
  int64_t kv_heads = 2;
  int64_t ffn = 48;
  int64_t vocabulary = 300;
  int64_t context = 512;
  DType dtype = DType::f32;  // of weights, activations and cache
  bool int8_cache = false;
  double deviation = 0.3;  // standard deviation of the weights
};

// Adds parameters and entry points.
class DecoderModel {
 public:
  DecoderModel(Model& model, const DecoderShape& shape) : model_(model), s_(shape) {
    const int64_t head = s_.width / s_.heads;
    const Init draw = Init::normal(static_cast<float>(s_.deviation));
    // The dims come first: graphs are checked with small trial sizes, which the cache must hold.
    must(model.set_dim_limits("rows", {.dynamic = true}));
    must(model.set_dim_limits("kv_length", {.dynamic = true}));
    embed_ = must(model.parameter("model.embed_tokens.weight", {s_.vocabulary, s_.width}, draw,
                                  StorageRole::weight, s_.dtype));
    norm1_ = list("input_layernorm.weight", {s_.width}, Init::ones());
    q_ = list("self_attn.q_proj.weight", {s_.heads * head, s_.width}, draw);
    k_ = list("self_attn.k_proj.weight", {s_.kv_heads * head, s_.width}, draw);
    v_ = list("self_attn.v_proj.weight", {s_.kv_heads * head, s_.width}, draw);
    o_ = list("self_attn.o_proj.weight", {s_.width, s_.heads * head}, draw);
    norm2_ = list("post_attention_layernorm.weight", {s_.width}, Init::ones());
    gate_ = list("mlp.gate_proj.weight", {s_.ffn, s_.width}, draw);
    up_ = list("mlp.up_proj.weight", {s_.ffn, s_.width}, draw);
    down_ = list("mlp.down_proj.weight", {s_.width, s_.ffn}, draw);
    norm_ = must(model.parameter("model.norm.weight", {s_.width}, Init::ones(), StorageRole::weight,
                                 s_.dtype));
    head_ = must(model.tied_parameter("lm_head.weight", embed_));
    keys_ = must(model.parameters("cache.{}.k", s_.layers, {kCacheRows, s_.kv_heads, head},
                                  Init::zeros(), StorageRole::kv_cache, s_.dtype));
    values_ = must(model.parameters("cache.{}.v", s_.layers, {kCacheRows, s_.kv_heads, head},
                                    Init::zeros(), StorageRole::kv_cache, s_.dtype));
    for (int i = 0; i < s_.layers && s_.int8_cache; ++i) {
      for (const char* name : {"cache.{}.k", "cache.{}.v"}) {
        must(model.set_source(format(name, i), zeros, "int8 block row"));
      }
    }
  }

  void add_loss() {
    GraphBuilder g(model_, "loss");
    const Value tokens = g.input("tokens", DType::i32, {"batch", "seq"});
    const Value labels = g.input("labels", DType::i32, {"batch", "seq"});
    const Value x = layers(g, tokens, "batch", "seq", {});
    g.output("loss", g.op("CrossEntropy", {logits(g, x), labels}));
    must(g.finish());
  }
  void add_forward() {
    GraphBuilder g(model_, "forward");
    const Value tokens = g.input("tokens", DType::i32, {"batch", "seq"});
    g.output("logits", logits(g, layers(g, tokens, "batch", "seq", {})));
    must(g.finish());
  }
  void add_prefill() {
    GraphBuilder g(model_, "prefill");
    const Value tokens = g.input("tokens", DType::i32, {1, "rows"});
    const Value positions = g.input("positions", DType::i32, {"rows"});
    const Value x = layers(g, tokens, 1, "rows", positions);
    g.output("hidden_norm",
             g.op("ReduceSum", {g.op("Square", {in_f32(g, x)})}, {{"axes", {0, 1, 2}}}));
    must(g.finish());
  }
  void add_decode() {
    GraphBuilder g(model_, "decode");
    const Value tokens = g.input("tokens", DType::i32, {1, 1});
    const Value positions = g.input("positions", DType::i32, {1});
    const Value all = g.op("Reshape", {logits(g, layers(g, tokens, 1, 1, positions))},
                           {{"dims", {1, s_.vocabulary}}});
    const int64_t k = std::min<int64_t>(s_.vocabulary, 256);
    (void)g.op("TopK", {all}, {{"k", k}, {"axis", -1}});
    const std::vector<Value> top = g.last_outputs();
    const auto first = [&](Value v) {
      return g.op("Reshape", {g.op("Slice", {v}, {{"axis", 1}, {"start", 0}, {"length", 1}})},
                  {{"dims", {1}}});
    };
    // -log of the probability of the largest logit. Only a reduction then reads all logits.
    const Value loss = g.op("CrossEntropy", {all, first(top.at(1))}, {{"reduction", "none"}});
    g.output("logits", all);
    g.output("top_logits", top.at(0));
    g.output("top_ids", top.at(1));
    g.output("lse", g.op("Add", {first(top.at(0)), loss}));
    must(g.finish());
  }

 private:
  static constexpr int64_t kCacheRows = 4;

  static Status zeros(uint64_t, std::span<std::byte> out) {
    std::ranges::fill(out, std::byte{0});
    return {};
  }

  ParameterList list(const std::string& name, const Dims& shape, Init init) {
    return must(model_.parameters("model.layers.{}." + name, s_.layers, shape, init,
                                  StorageRole::weight, s_.dtype));
  }
  Value in_f32(GraphBuilder& g, Value v) const {
    return s_.dtype == DType::f32 ? v : g.op("Cast", {v}, {{"to", "f32"}});
  }

  // `positions` is set if the cache is used.
  Value layers(GraphBuilder& g, Value tokens, const GraphDim& batch, const GraphDim& rows,
               const std::optional<Value>& positions) {
    const int64_t head = s_.width / s_.heads;
    const auto body = [&](GraphBuilder& b, const std::vector<Value>& in) {
      const auto linear = [&](Value x, const ParameterList& w) {
        return b.op("Linear", {x, b.parameter(w)});
      };
      const auto heads = [&](Value x, int64_t n) {
        return b.op("Reshape", {x}, {{"dims", {batch, rows, n, head}}});
      };
      const auto turned = [&](Value x) {
        return positions ? b.op("Rope", {x, b.capture(*positions)}) : b.op("Rope", {x});
      };
      // Writes the rows to the cache and returns its filled part.
      const auto cached = [&](const ParameterList& cache, Value x) {
        if (!positions) {
          return x;
        }
        const Value flat = b.op("Reshape", {x}, {{"dims", {rows, s_.kv_heads, head}}});
        const Value written = b.op("WriteRows", {b.parameter(cache), flat}, {{"axis", 0}});
        const Value some = b.op("Slice", {written}, {{"axis", 0}, {"length", "kv_length"}});
        return b.op("Reshape", {some}, {{"dims", {1, "kv_length", s_.kv_heads, head}}});
      };
      const Value n = b.op("RmsNorm", {in[0], b.parameter(norm1_)});
      const Value q = turned(heads(linear(n, q_), s_.heads));
      const Value k = cached(keys_, turned(heads(linear(n, k_), s_.kv_heads)));
      const Value v = cached(values_, heads(linear(n, v_), s_.kv_heads));
      const Value attended = b.op("Attention", {q, k, v}, {{"causal", true}});
      const Value flat = b.op("Reshape", {attended}, {{"dims", {batch, rows, s_.heads * head}}});
      const Value x = b.op("Add", {in[0], linear(flat, o_)});
      const Value m = b.op("RmsNorm", {x, b.parameter(norm2_)});
      const Value gated = b.op("Mul", {b.op("Silu", {linear(m, gate_)}), linear(m, up_)});
      return std::vector<Value>{b.op("Add", {x, linear(gated, down_)})};
    };
    const std::vector<Value> x =
        g.repeat(s_.layers, {g.op("Embedding", {g.parameter(embed_), tokens})}, body);
    require(x.size() == 1, "The layers have no result.");
    return x[0];
  }
  Value logits(GraphBuilder& g, Value x) {
    const Value n = g.op("RmsNorm", {x, g.parameter(norm_)});
    return in_f32(g, g.op("Linear", {n, g.parameter(head_)}));
  }

  Model& model_;
  DecoderShape s_;
  Parameter embed_, norm_, head_;
  ParameterList norm1_, norm2_, q_, k_, v_, o_, gate_, up_, down_, keys_, values_;
};

// Without values.
inline Model decoder_shapes(const DecoderShape& shape = {}) {
  Model model;
  DecoderModel decoder(model, shape);
  decoder.add_loss();
  decoder.add_forward();
  decoder.add_prefill();
  decoder.add_decode();
  must(model.set_metadata("task", "generate"));
  must(model.set_metadata("architecture", "llama"));
  must(model.set_metadata("vocabulary", std::to_string(shape.vocabulary)));
  must(model.set_metadata("context_length", std::to_string(shape.context)));
  return model;
}

inline Model decoder_model(const DecoderShape& shape = {}, uint64_t seed = 1) {
  Model model = decoder_shapes(shape);
  must(model.materialize(seed));
  return model;
}

}  // namespace bowline::test
