#include "blocks/encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/escape.h"
#include "base/status.h"

namespace bowline::import {
namespace {

class Encoder {
 public:
  Encoder(const EncoderParts& parts, DType dtype) : p_(parts), s_(parts.sizes), dtype_(dtype) {}

  HiddenRows rows(GraphBuilder& g, const RowsOf& of) {
    rates_ = of.trains ? p_.dropout : EncoderParts::Dropout();
    first_stream_ = of.first_stream;
    HiddenRows r;
    r.tokens = g.input(of.prefix + "tokens", DType::i32, {"batch", "seq"});
    r.lengths = g.input(of.prefix + "lengths", DType::i32, {"batch"});
    Layers l(g, dtype_);
    Value x = l.embed(p_.words, r.tokens);
    if (p_.types) {
      x = l.add(x, g.op("Slice", {l.read(*p_.types)}, {{"length", 1}}));
    }
    x = l.add(x, position_rows(l, r.tokens));
    x = l.dropout(l.norm(x, p_.embedding_norm), rates_.embedding, first_stream_);
    if (p_.embedding_projection) {
      x = l.linear(x, *p_.embedding_projection);
    }
    x = g.repeat(static_cast<int>(s_.layers), {x},
                 [&](GraphBuilder& body, const std::vector<Value>& carried) {
                   return std::vector{layer(body, carried[0], body.capture(*r.lengths))};
                 })
            .at(0);
    r.hidden = l.cast(x, dtype_, DType::f32);
    return r;
  }

 private:
  // [seq, width], or [batch, seq, width] if the positions depend on the tokens.
  Value position_rows(Layers& l, Value tokens) {
    GraphBuilder& g = l.g;
    const Value table = l.read(p_.positions);
    if (!p_.padding) {
      return g.op("Slice", {table}, {{"start", s_.first_position}, {"length", "seq"}});
    }
    const Value ids = g.op("Cast", {tokens}, {{"to", "f32"}});
    const Value is_padding = g.op("Equal", {ids, l.read_stored(*p_.padding)});
    const Value counted = g.op("Cast", {g.op("Not", {is_padding})}, {{"to", "i32"}});
    const Value index = l.mul(g.op("CumSum", {counted}, {{"axis", 1}}), counted);
    const int64_t first = s_.first_position - 1;
    const Value rows = g.op("Slice", {table}, {{"start", first}, {"length", s_.positions - first}});
    return g.op("Embedding", {rows, index});
  }

  Value layer(GraphBuilder& g, Value x, Value lengths) {
    Layers l(g, dtype_);
    const int64_t head_dim = s_.width / s_.heads;
    const auto heads = [&](const Linear& part) {
      return l.reshape(l.linear(x, part), {"batch", "seq", s_.heads, head_dim});
    };
    const Value seen =
        g.op("Attention", {heads(p_.q), heads(p_.k), heads(p_.v), lengths}, {{"mask", "lengths"}});
    const Value attended = l.linear(l.reshape(seen, {"batch", "seq", s_.width}), p_.out);
    x = l.norm(l.add(l.dropout(attended, rates_.attention, first_stream_ + 1), x),
               p_.attention_norm);
    const Value inner = l.activate(l.linear(x, p_.up), p_.activation);
    const Value changed =
        l.dropout(l.linear(inner, p_.down), rates_.feed_forward, first_stream_ + 2);
    return l.norm(l.add(changed, x), p_.feed_forward_norm);
  }

  const EncoderParts& p_;
  const EncoderSizes& s_;
  DType dtype_;
  // Of the current graph:
  EncoderParts::Dropout rates_ = {};
  int first_stream_ = 0;
};

// Creates a parameter per prefix. Layers with the same prefix share it.
Weight shared_list(Weights& weights, const std::vector<std::string>& of_layer,
                   const std::string& part, const std::vector<int64_t>& shape) {
  std::map<std::string, Weight> made;
  std::vector<Parameter> all;
  for (const std::string& begin : of_layer) {
    const auto [at, is_new] = made.try_emplace(begin);
    if (is_new) {
      at->second = weights.one(begin + part, shape);
    }
    if (at->second.dtype != made.begin()->second.dtype) {
      weights.fail(Code::unsupported, "The tensors of {} have different dtypes.",
                   listed_name(part));
    }
    all.push_back(std::get<Parameter>(at->second.of));
  }
  return {ParameterList{std::move(all)}, made.begin()->second.dtype};
}

}  // namespace

Result<EncoderParts> encoder_of(Fields& config, const EncoderKeys& keys) {
  EncoderParts p;
  EncoderSizes& s = p.sizes;
  s.layers = config.integer(keys.layers, 1, 4096);
  s.width = config.integer(keys.width, 1, kMostSize);
  s.heads = config.integer(keys.heads, 1, 65536);
  s.inner = config.integer(keys.inner, 1, kMostSize);
  s.vocabulary = config.integer("vocab_size", 1, kMostSize);
  s.positions = config.integer("max_position_embeddings", 1, kMostSize);
  s.eps = config.number_or(keys.eps, 1e-12, 1, s.eps);
  const std::string activation = config.text_or(keys.activation, keys.default_activation);
  BOWLINE_TRY(Status(config.status()));
  BOWLINE_TRY_ASSIGN(p.activation, activation_of(activation));
  return p;
}

void declare_encoder(Weights& weights, const EncoderNames& names, bool has_types, EncoderParts& p) {
  const EncoderSizes& sizes = p.sizes;
  const int64_t width = sizes.width, inner = sizes.inner;
  const int64_t narrow = sizes.embedding_width != 0 ? sizes.embedding_width : width;
  p.words = weights.one("embeddings.word_embeddings.weight", {sizes.vocabulary, narrow});
  p.positions = weights.one("embeddings.position_embeddings.weight", {sizes.positions, narrow});
  if (has_types) {
    const std::string types = "embeddings.token_type_embeddings.weight";
    p.types = weights.one(types, {std::max<int64_t>(weights.rows_of(types), 1), narrow});
  }
  p.embedding_norm = {Norm::Kind::layer, weights.one("embeddings.LayerNorm.weight", {narrow}),
                      weights.one("embeddings.LayerNorm.bias", {narrow}), sizes.eps};
  const auto list = [&](const char* name, const char* part, std::vector<int64_t> shape) {
    return names.of_layer.empty()
               ? weights.list(fmt::format("{}.{{}}.{}.{}", names.layers, name, part), sizes.layers,
                              std::move(shape))
               : shared_list(weights, names.of_layer, fmt::format(".{}.{}", name, part), shape);
  };
  const auto linear = [&](const char* name, int64_t out, int64_t in) {
    return Linear{list(name, "weight", {out, in}), list(name, "bias", {out})};
  };
  const auto norm = [&](const char* name) {
    return Norm{Norm::Kind::layer, list(name, "weight", {width}), list(name, "bias", {width}),
                sizes.eps};
  };
  p.q = linear(names.q, width, width);
  p.k = linear(names.k, width, width);
  p.v = linear(names.v, width, width);
  p.out = linear(names.out, width, width);
  p.attention_norm = norm(names.attention_norm);
  p.up = linear(names.up, inner, width);
  p.down = linear(names.down, width, inner);
  p.feed_forward_norm = norm(names.feed_forward_norm);
}

Result<Built> build_encoder(const Source& source, const TextImportOptions& options,
                            const EncoderForm& form) {
  BOWLINE_REQUIRE_CODE(
      !options.skeleton, Code::unsupported,
      "A skeleton of an encoder is not supported: its head depends on the tensors.");
  Built out;
  Weights weights(source, options, out.model);
  Fields config("The config", source.config);
  BOWLINE_TRY_ASSIGN(const EncoderParts parts, form.declare(weights, config));
  BOWLINE_TRY(Status(weights.status()));
  const EncoderSizes& s = parts.sizes;
  BOWLINE_REQUIRE_CODE(s.width % s.heads == 0, Code::bad_file,
                       "The config has {} attention heads for a width of {}.", s.heads, s.width);
  BOWLINE_REQUIRE_CODE(s.first_position < s.positions, Code::bad_file,
                       "The config has {} positions, but the first token has position {}.",
                       s.positions, s.first_position);
  BOWLINE_REQUIRE_CODE(options.task != ImportTask::generate, Code::unsupported,
                       "An encoder can classify, tag or embed texts, but not generate text.");
  BOWLINE_TRY_ASSIGN(TextHead head,
                     declare_head(source, options, form.head, s.width, weights, out.model));
  head.dropout = parts.dropout.pooled;
  out.task = head.task;
  weights.drop("*position_ids", "positions are computed");
  for (const std::string_view pattern : form.other_heads) {
    weights.drop(pattern, "it belongs to a head for another task");
  }

  const int64_t positions = s.positions - s.first_position;
  BOWLINE_TRY(out.model.set_dim_limits("seq", {.max = positions}));
  Encoder encoder(parts, weights.dtype());
  const AddRows rows = [&](GraphBuilder& g, const RowsOf& of) { return encoder.rows(g, of); };
  BOWLINE_TRY(add_head(out.model, weights.dtype(), head, rows, s.width, options));
  BOWLINE_TRY(weights.finish(out));
  BOWLINE_TRY(describe_head(source, head, s.width, positions, s.vocabulary, out.model));
  return out;
}

}  // namespace bowline::import
