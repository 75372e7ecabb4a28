#include "blocks/decoder.h"

#include <algorithm>
#include <cmath>

#include "base/escape.h"
#include "base/status.h"
#include "blocks/text_head.h"

namespace bowline::import {
namespace {

constexpr int64_t kMostCandidates = 256;  // candidates that decode returns
// Cache rows in a file. A generating program requests the rows that it needs (Model::resize). Fewer
// rows than the trial sizes that check the graphs (2 rows, 3 in the cache) are rejected.
constexpr int64_t kFirstRows = 4;
// Added to the scores of hidden tokens. f16 has this number.
constexpr double kHidden = -3e4;
// Streams of dropout from this one on are for the feed-forward parts. Others have lower numbers.
constexpr int kInnerStreams = 1 << 16;

// How a graph runs the layers: on rows [batch, rows], from the first position or at `positions`,
// with or without the cache.
struct Site {
  GraphDim batch;
  GraphDim rows;
  std::optional<Value> positions = {};
  bool cached = false;
  size_t layer = 0;       // index in the body
  bool is_first = false;  // the layer before the Repeat
  // Of a bidirectional model: lengths of the texts, and the mask of windows.
  std::optional<Value> lengths = {}, mask = {};
};

class Decoder {
 public:
  Decoder(Model& model, const DecoderParts& parts, DType dtype, DType kv_dtype)
      : model_(model),
        p_(parts),
        s_(parts.sizes),
        dtype_(dtype),
        kv_dtype_(kv_dtype == DType::i8 ? dtype_ : kv_dtype) {}

  void add_caches(Weights& weights, DType kv_dtype) {
    const std::vector<int64_t> rows = {kFirstRows, s_.kv_heads, s_.head_dim};
    const std::string_view encoding = kv_dtype == DType::i8 ? "int8 block row" : "plain";
    keys_ = weights.caches("cache.{}.k", s_.layers, rows, kv_dtype_, encoding);
    values_ = weights.caches("cache.{}.v", s_.layers, rows, kv_dtype_, encoding);
  }

  Status add_loss(bool dropout) {
    GraphBuilder g(model_, "loss");
    set_dropout(dropout);
    const Value logits = whole(g);
    set_dropout(false);
    const Value labels = g.input("labels", DType::i32, {"batch", "seq"});
    g.output("loss", g.op("CrossEntropy", {logits, labels}));
    return g.finish();
  }

  // The normalized rows of texts. Rows behind the end of a text do not change those before.
  HiddenRows rows(GraphBuilder& g, const RowsOf& of) {
    set_dropout(of.trains);
    first_stream_ = of.first_stream;
    Layers l(g, dtype_);
    const Value tokens = g.input(of.prefix + "tokens", DType::i32, {"batch", "seq"});
    Site site = {.batch = "batch", .rows = "seq"};
    if (p_.is_bidirectional) {
      site.lengths = g.input(of.prefix + "lengths", DType::i32, {"batch"});
      site.mask = window_mask(g, tokens, *site.lengths);
    }
    const Value x = normalized(l, layers(g, tokens, site));
    return {tokens, l.cast(x, dtype_, DType::f32), site.lengths};
  }

  Status add_forward() {
    GraphBuilder g(model_, "forward");
    g.output("logits", Layers(g, dtype_).cast(whole(g), dtype_, DType::f32));
    return g.finish();
  }

  Status add_prefill() {
    GraphBuilder g(model_, "prefill");
    const Value tokens = g.input("tokens", DType::i32, {1, "rows"});
    const Value positions = g.input("positions", DType::i32, {"rows"});
    const Value x = layers(g, tokens, {1, "rows", positions, true});
    const Value squares = Layers(g, dtype_).cast(g.op("Square", {x}), dtype_, DType::f32);
    g.output("hidden_norm", g.op("ReduceSum", {squares}));
    return g.finish();
  }

  Status add_decode() {
    GraphBuilder g(model_, "decode");
    const Value tokens = g.input("tokens", DType::i32, {1, 1});
    const Value positions = g.input("positions", DType::i32, {1});
    Layers l(g, dtype_);
    const Value x = layers(g, tokens, {1, 1, positions, true});
    const Value logits = l.cast(l.reshape(head(l, x), {1, s_.vocabulary}), dtype_, DType::f32);
    g.output("logits", logits);
    const int64_t k = std::min(s_.vocabulary, kMostCandidates);
    const Value top = g.op("TopK", {logits}, {{"k", k}});
    const Value ids = g.last_outputs()[1];
    g.output("top_logits", top);
    g.output("top_ids", ids);
    const Value first = g.op("Slice", {ids}, {{"axis", 1}, {"length", 1}});
    (void)g.op("CrossEntropy", {logits, l.reshape(first, {1})}, {{"reduction", "none"}});
    g.output("lse", g.last_outputs()[1]);
    return g.finish();
  }

 private:
  void set_dropout(bool trains) {
    embedding_dropout_ = trains ? p_.embedding_dropout : 0;
    residual_dropout_ = trains ? p_.residual_dropout : 0;
    inner_dropout_ = trains ? p_.inner_dropout : 0;
  }

  // Logits of all tokens.
  Value whole(GraphBuilder& g) {
    const Value tokens = g.input("tokens", DType::i32, {"batch", "seq"});
    Layers l(g, dtype_);
    return head(l, layers(g, tokens, {.batch = "batch", .rows = "seq"}));
  }

  Value normalized(Layers& l, Value x) { return p_.final_norm ? l.norm(x, *p_.final_norm) : x; }

  Value head(Layers& l, Value x) {
    Value logits = l.linear(normalized(l, x), {.weight = *p_.head, .bias = p_.head_bias});
    if (p_.logit_divisor) {
      logits = l.g.op("Div", {logits, l.read(*p_.logit_divisor)});
    }
    if (!p_.logit_softcap) {
      return logits;
    }
    const Value cap = l.read(*p_.logit_softcap);
    return l.mul(l.g.op("Tanh", {l.g.op("Div", {logits, cap})}), cap);
  }

  Value layers(GraphBuilder& g, Value tokens, const Site& site) {
    Layers l(g, dtype_);
    Value x = l.embed(p_.embedding, tokens);
    if (p_.embedding_scale) {
      x = l.mul(x, l.read(*p_.embedding_scale));
    }
    if (p_.positions) {
      x = l.add(x, position_rows(l, site));
    }
    if (p_.types) {
      x = l.add(x, g.op("Slice", {l.read(*p_.types)}, {{"length", 1}}));
    }
    x = p_.embedding_norm ? l.norm(x, *p_.embedding_norm) : x;
    x = l.dropout(x, embedding_dropout_, first_stream_);
    int64_t count = s_.layers;
    if (p_.first) {
      Site first = site;
      first.is_first = true;
      x = layer(g, x, first);
      --count;
    }
    if (count == 0) {
      return x;
    }
    return g
        .repeat(
            static_cast<int>(count) / static_cast<int>(p_.kinds.size()), {x},
            [&](GraphBuilder& body, const std::vector<Value>& carried) {
              Site inner = site;
              for (std::optional<Value>* seen : {&inner.positions, &inner.lengths, &inner.mask}) {
                if (*seen) {
                  *seen = body.capture(**seen);
                }
              }
              Value y = carried[0];
              for (inner.layer = 0; inner.layer < p_.kinds.size(); ++inner.layer) {
                y = layer(body, y, inner);
              }
              return std::vector{y};
            })
        .at(0);
  }

  // [rows, width]
  Value position_rows(Layers& l, const Site& site) {
    const Value table = l.read(*p_.positions);
    const int64_t first = p_.first_position;
    if (!site.positions) {
      return l.g.op("Slice", {table}, {{"start", first}, {"length", "seq"}});
    }
    const Value rows =
        first == 0 ? table : l.g.op("Slice", {table}, {{"start", first}, {"length", s_.context}});
    return l.g.op("Embedding", {rows, *site.positions});
  }

  Value layer(GraphBuilder& g, Value x, const Site& site) {
    const LayerOfGroup place = {site.layer, p_.kinds.size(), p_.first ? 1u : 0u, site.is_first};
    Layers l(g, dtype_, place);
    // Each dropout of a graph needs its own stream.
    const size_t number = site.is_first ? p_.kinds.size() : site.layer;
    const int stream = first_stream_ + 1 + 2 * static_cast<int>(number);
    const int inner_stream = first_stream_ + kInnerStreams + static_cast<int>(number);
    const bool has_norm = p_.attention_norm && !site.is_first;
    const Value seen = has_norm ? l.norm(x, *p_.attention_norm) : x;
    const Value attended = attention(l, seen, site);
    const Value y = with(l, x, attended, p_.attention_out_norm, stream);
    Value read = p_.is_parallel ? seen : y;
    if (p_.feed_forward_norm) {
      read = l.norm(p_.is_parallel ? x : y, *p_.feed_forward_norm);
    }
    const Value inner = l.dropout(inner_rows(l, read), inner_dropout_, inner_stream);
    return with(l, y, l.linear(inner, p_.down), p_.feed_forward_out_norm, stream + 1);
  }

  // Adds the output of a part of a layer to x.
  Value with(Layers& l, Value x, Value output, const std::optional<Norm>& norm, int stream) {
    Value added = norm && !p_.norms_sums ? l.norm(output, *norm) : output;
    if (p_.residual_scale) {
      added = l.mul(added, l.read(*p_.residual_scale));
    }
    const Value sum = l.add(x, l.dropout(added, residual_dropout_, stream));
    return norm && p_.norms_sums ? l.norm(sum, *norm) : sum;
  }

  // The input of the last product of the feed-forward part.
  Value inner_rows(Layers& l, Value x) {
    if (p_.gate_up) {
      const std::vector<GraphDim> sizes = {s_.inner, s_.inner};
      (void)l.g.op("Split", {l.linear(x, *p_.gate_up)}, {{"axis", -1}, {"sizes", sizes}});
      std::vector<Value> parts = l.g.last_outputs();
      if (p_.up_before_gate) {
        std::swap(parts[0], parts[1]);
      }
      return l.mul(l.activate(parts[0], p_.activation), parts[1]);
    }
    const Value up = l.linear(x, *p_.up);
    return p_.gate ? l.mul(l.activate(l.linear(x, *p_.gate), p_.activation), up)
                   : l.activate(up, p_.activation);
  }

  Value attention(Layers& l, Value x, const Site& site) {
    const std::vector<Value> parts =
        p_.qkv ? fused(l, l.linear(x, *p_.qkv), site)
               : std::vector{l.linear(x, *p_.q), l.linear(x, *p_.k), l.linear(x, *p_.v)};
    const auto unless_rotated = [&](const std::optional<Norm>& norm) {
      return p_.norms_rotated ? std::nullopt : norm;
    };
    const auto if_rotated = [&](Value rows, const std::optional<Norm>& norm) {
      return norm && p_.norms_rotated ? l.norm(rows, *norm) : rows;
    };
    const Value q_heads = heads(l, parts[0], s_.heads, unless_rotated(p_.q_norm), site);
    const Value k_heads = heads(l, parts[1], s_.kv_heads, unless_rotated(p_.k_norm), site);
    const Value q = if_rotated(queries(l, q_heads, site), p_.q_norm);
    const Value k = if_rotated(rotated(l, k_heads, site), p_.k_norm);
    const Value v = heads(l, parts[2], s_.kv_heads, std::nullopt, site);
    const std::vector<GraphDim> flat = {site.batch, site.rows, s_.heads * s_.head_dim};
    const Value seen = site.cached    ? cached(l, q, k, v, site)
                       : site.lengths ? of_whole_text(l, {q, k, v}, site)
                                      : l.g.op("Attention", {q, k, v}, seeing(site));
    return l.linear(l.reshape(seen, flat), p_.out);
  }

  const LayerKind& kind_of(const Site& site) const {
    return site.is_first ? *p_.first : p_.kinds[site.layer];
  }

  // Attention in both directions.
  Value of_whole_text(Layers& l, std::vector<Value> operands, const Site& site) {
    const bool has_window = kind_of(site).window != 0;
    operands.push_back(has_window ? *site.mask : *site.lengths);
    return l.g.op("Attention", operands,
                  {{"mask", has_window ? "additive" : "lengths"}, {"scale", scale_of(site)}});
  }

  // 0 for the tokens of a text within the window of a token, else a number so low that a softmax
  // gives 0: [batch, 1, seq, seq]. Empty if no layer has a window. All windows are equal.
  std::optional<Value> window_mask(GraphBuilder& g, Value tokens, Value lengths) {
    int64_t window = p_.first ? p_.first->window : 0;
    for (const LayerKind& kind : p_.kinds) {
      window = std::max(window, kind.window);
    }
    if (window == 0) {
      return std::nullopt;
    }
    const auto f32 = [&](Value x) { return g.op("Cast", {x}, {{"to", "f32"}}); };
    const auto shaped = [&](Value x, std::vector<GraphDim> dims) {
      return g.op("Reshape", {x}, {{"dims", std::move(dims)}});
    };
    const Value ones = f32(g.op("Equal", {tokens, tokens}));
    const Value index = g.op("CumSum", {ones}, {{"axis", 1}, {"exclusive", true}});
    const Value keys = shaped(index, {"batch", 1, 1, "seq"});
    const Value distance =
        g.op("Abs", {g.op("Sub", {shaped(index, {"batch", 1, "seq", 1}), keys})});
    const Value limited = g.op("Clip", {distance}, {{"max", static_cast<double>(window)}});
    const Value near = f32(g.op("Equal", {limited, distance}));
    const Value ends = shaped(f32(lengths), {"batch", 1, 1, 1});
    const Value seen = g.op("Mul", {near, f32(g.op("Less", {keys, ends}))});
    const Value mask = g.op("Clip", {g.op("Log", {seen})}, {{"min", kHidden}});
    return Layers(g, dtype_).cast(mask, DType::f32, dtype_);
  }

  // Queries, keys and values of a fused product. With groups, the heads stay in order:
  // [batch, rows, groups, channels].
  std::vector<Value> fused(Layers& l, Value x, const Site& site) {
    const int64_t groups = p_.qkv_groups;
    const int64_t q = s_.heads * s_.head_dim / groups, kv = s_.kv_heads * s_.head_dim / groups;
    const Value rows = groups == 1 ? x : l.reshape(x, {site.batch, site.rows, groups, q + 2 * kv});
    const std::vector<GraphDim> sizes = {q, kv, kv};
    (void)l.g.op("Split", {rows}, {{"axis", -1}, {"sizes", sizes}});
    std::vector<Value> out = l.g.last_outputs();
    if (p_.values_before_keys) {
      std::swap(out[1], out[2]);
    }
    return out;
  }

  double scale_of(const Site& site) const {
    const LayerKind& kind = kind_of(site);
    const double scale = p_.attention_scale;
    if (!kind.rotation || !kind.rotation->scales_all()) {
      return scale;
    }
    const double own = 1 / std::sqrt(static_cast<double>(s_.head_dim));
    const double factor = kind.rotation->attention_factor;
    return (scale == 0 ? own : scale) * factor * factor;
  }

  // Attributes of the attention of a layer.
  std::vector<Attribute> seeing(const Site& site) const {
    return {{"causal", true},
            {"scale", scale_of(site)},
            {"softcap", p_.attention_softcap},
            {"window", kind_of(site).window}};
  }

  Value heads(Layers& l, Value x, int64_t count, const std::optional<Norm>& norm,
              const Site& site) {
    const Value all = norm && p_.norms_all_heads ? l.norm(x, *norm) : x;
    const Value split = l.reshape(all, {site.batch, site.rows, count, s_.head_dim});
    return norm && !p_.norms_all_heads ? l.norm(split, *norm) : split;
  }

  // Scores are products of a query and a key, so the queries get the factors of both.
  Value queries(Layers& l, Value x, const Site& site) {
    const std::optional<Rotation>& r = kind_of(site).rotation;
    const bool scales = r && r->attention_factor != 1 && !r->scales_all();
    return rotated(l, scales ? l.mul(x, l.read(*p_.query_factors)) : x, site);
  }

  Value rotated(Layers& l, Value x, const Site& site) {
    const std::optional<Rotation>& r = kind_of(site).rotation;
    if (!r) {
      return x;
    }
    std::vector<Value> inputs = {x};
    if (site.positions) {
      inputs.push_back(*site.positions);
    }
    return l.g.op("Rope", inputs,
                  {{"base", r->base},
                   {"rotary_dims", r->dims},
                   {"interleaved", r->interleaved},
                   {"factor", r->factor},
                   {"low_frequency_factor", r->low_frequency_factor},
                   {"high_frequency_factor", r->high_frequency_factor},
                   {"original_length", r->original_length},
                   {"frequencies", r->frequencies}});
  }

  // Attention over the cached rows and the new rows. It runs in the dtype of the cache, so the
  // cache is not converted.
  Value cached(Layers& l, Value q, Value k, Value v, const Site& site) {
    const auto all = [&](const Weight& cache, Value rows) {
      const Value flat = l.reshape(rows, {site.rows, s_.kv_heads, s_.head_dim});
      const Value state = l.read_stored(cache);
      const Value written =
          l.g.op("WriteRows", {state, l.cast(flat, dtype_, kv_dtype_)}, {{"axis", 0}});
      const Value there = l.g.op("Slice", {written}, {{"axis", 0}, {"length", "kv_length"}});
      return l.reshape(there, {1, "kv_length", s_.kv_heads, s_.head_dim});
    };
    const Value keys = all(keys_, k);
    const Value values = all(values_, v);
    const Value seen =
        l.g.op("Attention", {l.cast(q, dtype_, kv_dtype_), keys, values}, seeing(site));
    return l.cast(seen, kv_dtype_, dtype_);
  }

  Model& model_;
  const DecoderParts& p_;
  const DecoderSizes& s_;
  DType dtype_;
  DType kv_dtype_;
  // Of the current graph:
  int first_stream_ = 0;
  double embedding_dropout_ = 0;
  double residual_dropout_ = 0;
  double inner_dropout_ = 0;
  Weight keys_;
  Weight values_;
};

}  // namespace

Status add_decoder(Model& model, Weights& weights, const DecoderParts& parts,
                   const TextImportOptions& options) {
  BOWLINE_TRY(model.set_dim_limits("rows", {.dynamic = true}));
  BOWLINE_TRY(model.set_dim_limits("kv_length", {.dynamic = true}));
  Decoder decoder(model, parts, weights.dtype(), options.kv_dtype);
  decoder.add_caches(weights, options.kv_dtype);
  BOWLINE_TRY(Status(weights.status()));
  BOWLINE_TRY(decoder.add_loss(options.dropout));
  BOWLINE_TRY(decoder.add_forward());
  BOWLINE_TRY(decoder.add_prefill());
  return decoder.add_decode();
}

namespace {

constexpr std::string_view kScore = "score.weight", kOtherHead = "classifier.weight";

bool has_tensor(const Source& source, std::string_view name) {
  return std::ranges::find(source.tensors, name, &SourceTensor::name) != source.tensors.end();
}

// The task of the options, or that of the source: its head, or the pooling of
// sentence-transformers.
Result<ImportTask> task_of(const Source& source, const TextImportOptions& options) {
  const bool has_score = has_tensor(source, kScore);
  const bool has_other = has_tensor(source, kOtherHead);
  const bool pools = std::ranges::find(source.metadata, "pooling", &Settings::value_type::first) !=
                     source.metadata.end();
  const std::optional<ImportTask> head = task_of_head(source);
  // The heads of tokens have one of two names.
  const bool labels = (has_score && head) || (has_other && head == ImportTask::tag);
  const ImportTask own = labels ? *head : pools ? ImportTask::embed : ImportTask::generate;
  const ImportTask task = options.task.value_or(own);
  BOWLINE_REQUIRE_CODE(
      options.task || labels || !(has_score || has_other), Code::unsupported,
      "The source is a decoder with a head ({}) for another task than the classification of texts "
      "or tokens, which is not supported. To import it without this head, choose the task: bowline "
      "import DECODER --task embed --out MODEL.",
      has_score ? kScore : kOtherHead);
  BOWLINE_REQUIRE_CODE(task != ImportTask::generate || !has_score, Code::unsupported,
                       "The source has a classification head ({}) in place of the head of a "
                       "language model, so it cannot generate text.",
                       kScore);
  BOWLINE_REQUIRE_CODE(task == ImportTask::generate || !options.skeleton, Code::unsupported,
                       "A skeleton of a decoder generates text and cannot {}.", name_of(task));
  return task;
}

// The entry points and metadata of a decoder whose rows represent texts.
Status add_text_task(const Source& source, const TextImportOptions& options,
                     const DecoderParts& parts, Weights& weights, Built& out) {
  const DecoderSizes& s = parts.sizes;
  HeadForm form = parts.head_form;
  form.projection.activation = parts.head_activation;
  BOWLINE_TRY_ASSIGN(TextHead head,
                     declare_head(source, options, form, s.width, weights, out.model));
  head.dropout = parts.pooled_dropout;
  out.task = head.task;
  if (parts.positions) {
    BOWLINE_TRY(out.model.set_dim_limits("seq", {.max = s.context}));
  }
  Decoder decoder(out.model, parts, weights.dtype(), DType::f32);
  const AddRows rows = [&](GraphBuilder& g, const RowsOf& of) { return decoder.rows(g, of); };
  BOWLINE_TRY(add_head(out.model, weights.dtype(), head, rows, s.width, options));
  BOWLINE_TRY(weights.finish(out));
  BOWLINE_TRY(describe_head(source, head, s.width, s.context, s.vocabulary, out.model));
  // An export names the head and the class of a decoder in another way.
  return parts.is_bidirectional ? Status() : out.model.set_metadata("causal", "true");
}

}  // namespace

Result<Built> build_text_encoder(const Source& source, const TextImportOptions& options,
                                 DeclareDecoder declare) {
  BOWLINE_REQUIRE_CODE(options.task != ImportTask::generate, Code::unsupported,
                       "An encoder can classify, tag or embed texts, but not generate text.");
  BOWLINE_REQUIRE_CODE(
      !options.skeleton, Code::unsupported,
      "A skeleton of an encoder is not supported: its head depends on the tensors.");
  Built out;
  Weights weights(source, options, out.model, false);
  Fields config("The config", source.config);
  BOWLINE_TRY_ASSIGN(const DecoderParts parts, declare(weights, config));
  BOWLINE_TRY(Status(weights.status()));
  BOWLINE_TRY(add_text_task(source, options, parts, weights, out));
  return out;
}

Result<Built> build_decoder(const Source& source, const TextImportOptions& options,
                            DeclareDecoder declare) {
  BOWLINE_TRY_ASSIGN(const ImportTask task, task_of(source, options));
  Built out;
  Weights weights(source, options, out.model, task == ImportTask::generate);
  if (task_of_head(source)) {
    weights.rename(kScore, "classifier.weight");
    weights.rename("score.bias", "classifier.bias");
  }
  weights.drop("score.*", "it belongs to a head for another task");
  Fields config("The config", source.config);
  BOWLINE_TRY_ASSIGN(const DecoderParts parts, declare(weights, config));
  BOWLINE_TRY(Status(weights.status()));
  if (task != ImportTask::generate) {
    BOWLINE_TRY(add_text_task(source, options, parts, weights, out));
    return out;
  }
  BOWLINE_TRY(add_decoder(out.model, weights, parts, options));
  BOWLINE_TRY(weights.finish(out));
  BOWLINE_TRY(out.model.set_metadata("context_length", std::to_string(parts.sizes.context)));
  if (parts.positions) {  // the position table limits the length
    BOWLINE_TRY(out.model.set_metadata("position_rows", std::to_string(parts.sizes.context)));
  }
  BOWLINE_TRY(out.model.set_metadata("vocabulary", std::to_string(parts.sizes.vocabulary)));
  return out;
}

}  // namespace bowline::import
