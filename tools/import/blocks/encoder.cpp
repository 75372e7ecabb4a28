#include "blocks/encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/escape.h"
#include "base/status.h"
#include "blocks/pooling.h"

namespace bowline::import {
namespace {

const std::string* entry_of(const Settings& settings, std::string_view key) {
  const auto at = std::ranges::find(settings, key, &Settings::value_type::first);
  return at == settings.end() ? nullptr : &at->second;
}

struct Plan {
  ImportTask task = ImportTask::embed;
  std::string pooling;
  bool normalize = false;
  bool multi_label = false;  // a row can have any number of classes
  bool has_head = false;     // the source has the head
  bool has_project = false;  // the tensors of the projection are used
};

struct Head {
  std::optional<Linear> projection;
  Activation activation;
  bool drops_before_projection = false;
  Linear classifier;
  int64_t classes = 0;
  Weight class_weights;
};

// The hidden rows of a graph, f32 [batch, seq, width], and their inputs.
struct Rows {
  Value tokens, lengths, hidden;
};

class Encoder {
 public:
  Encoder(Model& model, const EncoderParts& parts, DType dtype)
      : model_(model), p_(parts), s_(parts.sizes), dtype_(dtype) {}

  Status add_forward() {
    GraphBuilder g(model_, "forward");
    g.output("hidden", rows(g).hidden);
    return g.finish();
  }

  Status add_embed(const std::string& pooling, bool normalize) {
    GraphBuilder g(model_, "embed");
    const Rows r = rows(g);
    const Value pooled = pool(g, r.hidden, r.tokens, r.lengths, pooling, s_.width);
    g.output("embedding", normalize ? normalized(g, pooled) : pooled);
    return g.finish();
  }

  Status add_classify(const std::string& pooling, const Head& head) {
    GraphBuilder g(model_, "classify");
    g.output("logits", logits(g, pooling, head));
    return g.finish();
  }

  Status add_loss(const Plan& plan, const Head& head, const TextImportOptions& options) {
    GraphBuilder g(model_, "loss");
    rates_ = options.dropout ? p_.dropout : EncoderParts::Dropout();
    const Value scores = logits(g, plan.pooling, head);
    const Value weights = g.parameter(std::get<Parameter>(head.class_weights.of));
    if (plan.multi_label) {
      const Value targets = g.input("targets", DType::f32, {"batch", head.classes});
      const Value each = g.op("BinaryCrossEntropy", {scores, targets}, {{"reduction", "none"}});
      g.output("loss", g.op("ReduceMean", {g.op("Mul", {each, weights})}));
      return g.finish();
    }
    const Value labels = g.input("labels", DType::i32, {"batch"});
    const Value each = g.op("CrossEntropy", {scores, labels},
                            {{"reduction", "none"}, {"label_smoothing", options.label_smoothing}});
    g.output("loss", weighted_mean(g, each, labels, weights, head.classes));
    return g.finish();
  }

 private:
  Rows rows(GraphBuilder& g) {
    Rows r;
    r.tokens = g.input("tokens", DType::i32, {"batch", "seq"});
    r.lengths = g.input("lengths", DType::i32, {"batch"});
    Layers l(g, dtype_);
    Value x = l.embed(p_.words, r.tokens);
    if (p_.types) {
      x = l.add(x, g.op("Slice", {l.read(*p_.types)}, {{"length", 1}}));
    }
    x = l.add(x, position_rows(l, r.tokens));
    x = l.dropout(l.norm(x, p_.embedding_norm), rates_.embedding, 0);
    if (p_.embedding_projection) {
      x = l.linear(x, *p_.embedding_projection);
    }
    x = g.repeat(static_cast<int>(s_.layers), {x},
                 [&](GraphBuilder& body, const std::vector<Value>& carried) {
                   return std::vector{layer(body, carried[0], body.capture(r.lengths))};
                 })
            .at(0);
    r.hidden = l.cast(x, dtype_, DType::f32);
    return r;
  }

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
    x = l.norm(l.add(l.dropout(attended, rates_.attention, 1), x), p_.attention_norm);
    const Value inner = l.activate(l.linear(x, p_.up), p_.activation);
    const Value changed = l.dropout(l.linear(inner, p_.down), rates_.feed_forward, 2);
    return l.norm(l.add(changed, x), p_.feed_forward_norm);
  }

  Value logits(GraphBuilder& g, const std::string& pooling, const Head& head) {
    const Rows r = rows(g);
    Layers l(g, dtype_);
    Value x = pool(g, r.hidden, r.tokens, r.lengths, pooling, s_.width);
    x = l.cast(x, DType::f32, dtype_);
    if (head.projection) {
      x = head.drops_before_projection ? l.dropout(x, rates_.pooled, 4) : x;
      x = l.activate(l.linear(x, *head.projection), head.activation);
    }
    x = l.dropout(x, rates_.pooled, 3);
    return l.cast(l.linear(x, head.classifier), dtype_, DType::f32);
  }

  // Mean of the terms, weighted by class. Rows with a label below 0 are ignored.
  static Value weighted_mean(GraphBuilder& g, Value terms, Value labels, Value weights,
                             int64_t classes) {
    const auto f32 = [&](Value x) { return g.op("Cast", {x}, {{"to", "f32"}}); };
    const std::vector<GraphDim> last = {1};
    const Value one_hot = g.op("OneHot", {labels}, {{"depth", classes}});
    const Value of_class =
        g.op("ReduceSum", {g.op("Mul", {one_hot, f32(weights)})}, {{"axes", last}});
    const Value below = g.op("Clip", {f32(labels)}, {{"min", -1.0}, {"max", 0.0}});
    const Value counted = f32(g.op("Not", {g.op("Cast", {below}, {{"to", "boolean"}})}));
    const Value weight = g.op("Mul", {of_class, counted});
    const Value sum = g.op("ReduceSum", {g.op("Mul", {terms, weight})});
    return g.op("Div", {sum, g.op("Clip", {g.op("ReduceSum", {weight})}, {{"min", 1e-12}})});
  }

  Model& model_;
  const EncoderParts& p_;
  const EncoderSizes& s_;
  DType dtype_;
  EncoderParts::Dropout rates_ = {};  // of the current graph
};

// True if the source has a classification head for whole sequences.
bool has_classes(const Source& source, const Weights& weights) {
  if (!weights.has("classifier.weight")) {
    return false;
  }
  const auto names = source.config.find("architectures");
  if (names == source.config.end() || !names->is_array() || names->empty()) {
    return true;
  }
  const auto& first = (*names)[0];
  return first.is_string() &&
         first.get_ref<const std::string&>().find("ForSequenceClassification") != std::string::npos;
}

// Reads the class names of the head.
Result<std::vector<std::string>> labels_in(const Source& source, size_t n) {
  std::vector<std::string> labels;
  for (size_t i = 0; i < n; ++i) {
    labels.push_back(fmt::format("LABEL_{}", i));
  }
  const auto names = source.config.find("id2label");
  if (names == source.config.end() || !names->is_object()) {
    return labels;
  }
  BOWLINE_REQUIRE_CODE(names->size() == n, Code::bad_file,
                       "The config has {} labels, but \"classifier.weight\" has {} rows.",
                       names->size(), n);
  for (size_t i = 0; i < n; ++i) {
    const auto at = names->find(std::to_string(i));
    BOWLINE_REQUIRE_CODE(at != names->end() && at->is_string(), Code::bad_file,
                         "The config has no label for class {}.", i);
    labels[i] = at->get<std::string>();
  }
  return labels;
}

// The labels of the options, or of the source's head.
Result<std::vector<std::string>> labels_of(const Source& source, const TextImportOptions& options,
                                           int64_t rows) {
  if (rows == 0) {
    BOWLINE_REQUIRE(!options.labels.empty(),
                    "The source has no classification head. Name the classes with --labels.");
    return options.labels;
  }
  const auto n = static_cast<size_t>(rows);
  const Result<std::vector<std::string>> labels = labels_in(source, n);
  if (options.labels.empty()) {
    return labels;
  }
  BOWLINE_REQUIRE(options.labels.size() == n,
                  "--labels has {} labels, but the head has {} classes.", options.labels.size(), n);
  for (size_t i = 0; i < n && labels.ok(); ++i) {
    const std::string& label = options.labels[i];
    const auto at = std::ranges::find(labels.value(), label);
    BOWLINE_REQUIRE(
        at == labels.value().end() || label == labels.value()[i],
        "--labels names class {} {}, which is the name of class {} in the source. Use the order "
        "of the head, or leave out --labels to keep the names of the source.",
        i, listed_name(label), at - labels.value().begin());
  }
  return options.labels;
}

Status check_labels(const std::vector<std::string>& labels, bool multi_label) {
  BOWLINE_REQUIRE(
      multi_label || labels.size() >= 2,
      "A head with a single class cannot classify. --multi-label gives its probability, and "
      "--task embed imports the model without the head.");
  std::vector<std::string> sorted = labels;
  std::ranges::sort(sorted);
  const auto twice = std::ranges::adjacent_find(sorted);
  BOWLINE_REQUIRE(twice == sorted.end(), "The label {} occurs twice.", listed_name(*twice));
  for (const std::string& label : labels) {
    BOWLINE_REQUIRE(!label.empty() && label.find('\n') == std::string::npos,
                    "The label {} is empty or has several lines.", listed_name(label));
  }
  return {};
}

// True if the source's head has an independent probability per class.
Result<bool> judges_each(const Source& source) {
  Fields config("The config", source.config);
  const std::string type = config.text_or("problem_type", "single_label_classification");
  BOWLINE_TRY(Status(config.status()));
  BOWLINE_REQUIRE_CODE(
      type == "single_label_classification" || type == "multi_label_classification",
      Code::unsupported,
      "The head of the source is for \"{}\" (\"problem_type\" of the config). Supported are "
      "single_label_classification and multi_label_classification. Import the encoder without its "
      "head: --task embed.",
      escaped(type));
  return type == "multi_label_classification";
}

Result<Plan> plan_of(const Source& source, const TextImportOptions& options, const Weights& weights,
                     const EncoderForm& form) {
  Plan p;
  p.has_head = has_classes(source, weights);
  p.task = options.task.value_or(p.has_head ? ImportTask::classify : ImportTask::embed);
  BOWLINE_REQUIRE_CODE(p.task != ImportTask::generate, Code::unsupported,
                       "An encoder can classify or embed, but not generate text.");
  const std::string* normalize = entry_of(source.metadata, "normalize");
  p.normalize = normalize != nullptr && *normalize == "true";
  p.multi_label = options.multi_label;
  const std::string* pooling = entry_of(source.metadata, "pooling");
  p.pooling = !options.pooling.empty() ? options.pooling : pooling != nullptr ? *pooling : "";
  const bool projects = weights.has(std::string(form.projection.name) + ".weight");
  if (p.task == ImportTask::classify && p.has_head) {
    BOWLINE_REQUIRE(options.pooling.empty() || options.pooling == "cls",
                    "The head of the source reads the first token: --pooling {} contradicts it.",
                    options.pooling);
    p.pooling = "cls";
    p.has_project = true;
    BOWLINE_TRY_ASSIGN(const bool each, judges_each(source));
    p.multi_label = p.multi_label || each;
  } else if (p.task == ImportTask::classify && p.pooling.empty() && projects) {
    p.pooling = "cls";
    p.has_project = true;
  } else if (p.pooling.empty()) {
    p.pooling = "mean";
  }
  return p;
}

Result<Head> declare_head(const Source& source, const TextImportOptions& options, const Plan& plan,
                          const EncoderForm& form, int64_t width, Weights& weights, Model& model) {
  Head head;
  const int64_t rows = plan.has_head ? weights.rows_of("classifier.weight") : 0;
  BOWLINE_TRY_ASSIGN(const std::vector<std::string> labels, labels_of(source, options, rows));
  BOWLINE_TRY(check_labels(labels, plan.multi_label));
  BOWLINE_REQUIRE(
      !plan.multi_label || options.label_smoothing == 0,
      "--label-smoothing {} needs exclusive classes, but these are multi-label classes.",
      options.label_smoothing);
  head.classes = static_cast<int64_t>(labels.size());
  if (plan.has_project) {
    const std::string name = form.projection.name;
    head.projection =
        Linear{weights.one(name + ".weight", {width, width}), weights.one(name + ".bias", {width})};
    BOWLINE_TRY_ASSIGN(head.activation, activation_of(form.projection.activation));
    head.drops_before_projection = form.projection.drops_before;
  }
  if (plan.has_head) {
    head.classifier = {weights.one("classifier.weight", {head.classes, width}),
                       weights.one("classifier.bias", {head.classes})};
  } else {
    head.classifier = {
        weights.fresh("classifier.weight", {head.classes, width}, Init::normal(0.02f)),
        weights.fresh("classifier.bias", {head.classes}, Init::zeros())};
    weights.note(
        fmt::format("The classification head of {} classes is new: random weights of seed {}.",
                    head.classes, options.seed));
  }
  head.class_weights = weights.fresh("class_weights", {head.classes}, Init::ones(),
                                     StorageRole::constant, DType::f32);
  const std::string text = fmt::format("{}\n", fmt::join(labels, "\n"));
  BOWLINE_TRY(model.set_asset("labels", "text/plain", std::as_bytes(std::span(text))));
  return head;
}

// Sets the maximum length in tokens: the limit of the source, at most the number of positions.
Status set_limits(const Source& source, const EncoderSizes& s, Model& model) {
  const int64_t most = s.positions - s.first_position;
  int64_t tokens = most;
  for (const char* key : {"max_tokens", "model_max_length"}) {
    if (const std::string* limit = entry_of(source.metadata, key)) {
      tokens = std::min<int64_t>(most, std::atoll(limit->c_str()));
      break;
    }
  }
  BOWLINE_TRY(model.set_metadata("max_tokens", std::to_string(tokens)));
  BOWLINE_TRY(model.set_metadata("context_length", std::to_string(most)));
  return model.set_metadata("vocabulary", std::to_string(s.vocabulary));
}

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
  BOWLINE_REQUIRE_CODE(
      entry_of(source.metadata, "truncation_side") == nullptr, Code::unsupported,
      "tokenizer_config.json has \"truncation_side\": \"left\", which cuts off the "
      "start of a long text. Only \"right\", which cuts off the end, is supported.");
  Fields config("The config", source.config);
  BOWLINE_TRY_ASSIGN(const EncoderParts parts, form.declare(weights, config));
  BOWLINE_TRY(Status(weights.status()));
  const EncoderSizes& s = parts.sizes;
  BOWLINE_REQUIRE_CODE(s.width % s.heads == 0, Code::bad_file,
                       "The config has {} attention heads for a width of {}.", s.heads, s.width);
  BOWLINE_REQUIRE_CODE(s.first_position < s.positions, Code::bad_file,
                       "The config has {} positions, but the first token has position {}.",
                       s.positions, s.first_position);
  BOWLINE_TRY_ASSIGN(const Plan plan, plan_of(source, options, weights, form));
  out.task = plan.task;
  std::optional<Head> head;
  if (plan.task == ImportTask::classify) {
    BOWLINE_TRY_ASSIGN(head,
                       declare_head(source, options, plan, form, s.width, weights, out.model));
  }
  BOWLINE_TRY(Status(weights.status()));
  weights.drop("*position_ids", "positions are computed");
  for (const std::string_view pattern : form.other_heads) {
    weights.drop(pattern, "it belongs to a head for another task");
  }
  weights.drop("classifier.*", "the task does not use it");
  weights.drop(std::string(form.projection.name) + ".*", "the task does not use it");

  BOWLINE_TRY(out.model.set_dim_limits("seq", {.max = s.positions - s.first_position}));
  Encoder encoder(out.model, parts, weights.dtype());
  BOWLINE_TRY(encoder.add_forward());
  if (head) {
    BOWLINE_TRY(encoder.add_classify(plan.pooling, *head));
    BOWLINE_TRY(encoder.add_loss(plan, *head, options));
  } else {
    BOWLINE_TRY(encoder.add_embed(plan.pooling, plan.normalize));
  }
  BOWLINE_TRY(weights.finish(out));
  BOWLINE_TRY(set_limits(source, s, out.model));
  BOWLINE_TRY(out.model.set_metadata("pooling", plan.pooling));
  if (plan.multi_label && head) {
    BOWLINE_TRY(out.model.set_metadata("multi_label", "true"));
  }
  BOWLINE_TRY(out.model.set_metadata("normalize", plan.normalize && !head ? "true" : "false"));
  return out;
}

}  // namespace bowline::import
