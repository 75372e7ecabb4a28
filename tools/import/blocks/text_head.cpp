#include "blocks/text_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/escape.h"
#include "base/status.h"
#include "blocks/embed_losses.h"
#include "blocks/pooling.h"
#include "source/json.h"

namespace bowline::import {
namespace {

const std::string* entry_of(const Settings& settings, std::string_view key) {
  const auto at = std::ranges::find(settings, key, &Settings::value_type::first);
  return at == settings.end() ? nullptr : &at->second;
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
      "single_label_classification and multi_label_classification. Import the model without its "
      "head: --task embed.",
      escaped(type));
  return type == "multi_label_classification";
}

// Reads the task and the pooling.
Result<TextHead> plan_of(const Source& source, const TextImportOptions& options,
                         const Weights& weights, const HeadForm& form) {
  TextHead p;
  // `generate`: the source has no such head.
  const ImportTask own = weights.has("classifier.weight")
                             ? task_of_head(source).value_or(ImportTask::generate)
                             : ImportTask::generate;
  p.task = options.task.value_or(own == ImportTask::generate ? ImportTask::embed : own);
  p.has_head = own == p.task;
  const std::string* normalize = entry_of(source.metadata, "normalize");
  p.normalize = normalize != nullptr && *normalize == "true" && p.task == ImportTask::embed;
  p.multi_label = options.multi_label;
  const std::string* pooling = entry_of(source.metadata, "pooling");
  p.pooling = !options.pooling.empty() ? options.pooling : pooling != nullptr ? *pooling : "";
  const bool projects =
      !form.projection.name.empty() && weights.has(fmt::format("{}.weight", form.projection.name));
  const bool classifies = p.task == ImportTask::classify;
  if (p.task == ImportTask::tag) {
    p.has_project = form.projection.of_tags && projects;
    p.pooling.clear();
    return p;
  }
  if (classifies && p.has_head) {
    BOWLINE_REQUIRE(options.pooling.empty() || options.pooling == form.pooling,
                    "The head of the source reads {}: --pooling {} contradicts it.",
                    form.pooling == "cls"    ? "the first token"
                    : form.pooling == "last" ? "the last token"
                                             : "the mean of the tokens",
                    options.pooling);
    BOWLINE_TRY_ASSIGN(const bool each, judges_each(source));
    p.multi_label = p.multi_label || each;
    p.has_project = !form.projection.name.empty();
    p.pooling = form.pooling;
  } else if (classifies && p.pooling.empty() && projects) {
    p.has_project = true;
    p.pooling = form.pooling;
  } else if (p.pooling.empty()) {
    p.pooling = form.otherwise;
  }
  return p;
}

Status add_classifier(const Source& source, const TextImportOptions& options, const HeadForm& form,
                      int64_t width, Weights& weights, Model& model, TextHead& head) {
  const int64_t rows = head.has_head ? weights.rows_of("classifier.weight") : 0;
  BOWLINE_TRY_ASSIGN(const std::vector<std::string> labels, labels_of(source, options, rows));
  BOWLINE_TRY(check_labels(labels, head.multi_label));
  BOWLINE_REQUIRE(
      !head.multi_label || options.label_smoothing == 0,
      "--label-smoothing {} needs exclusive classes, but these are multi-label classes.",
      options.label_smoothing);
  head.classes = static_cast<int64_t>(labels.size());
  if (head.has_project) {
    const ProjectionForm& p = form.projection;
    const auto named = [](std::string_view part, const char* kind) {
      return fmt::format("{}.{}", part, kind);
    };
    head.projection = Linear{weights.one(named(p.name, "weight"), {width, width}), {}};
    if (p.has_bias) {
      head.projection->bias = weights.one(named(p.name, "bias"), {width});
    }
    BOWLINE_TRY_ASSIGN(head.activation, activation_of(std::string(p.activation)));
    head.drops_before_projection = p.drops_before;
    head.projects_tokens = p.before_pooling;
    if (!p.norm.empty()) {
      const Weight zeros = p.has_norm_bias
                               ? weights.one(named(p.norm, "bias"), {width})
                               : weights.constant(named(p.norm, "zeros"),
                                                  std::vector<float>(static_cast<size_t>(width)));
      head.norm =
          Norm{Norm::Kind::layer, weights.one(named(p.norm, "weight"), {width}), zeros, p.eps};
    }
  }
  if (head.has_head) {
    head.classifier.weight = weights.one("classifier.weight", {head.classes, width});
  } else {
    head.classifier.weight =
        weights.fresh("classifier.weight", {head.classes, width}, Init::normal(0.02f));
    weights.note(
        fmt::format("The classification head of {} classes is new: random weights of seed {}.",
                    head.classes, options.seed));
  }
  if (form.has_bias || head.task == ImportTask::tag) {
    head.classifier.bias = head.has_head
                               ? weights.one("classifier.bias", {head.classes})
                               : weights.fresh("classifier.bias", {head.classes}, Init::zeros());
  }
  if (head.task == ImportTask::classify) {
    head.class_weights = weights.fresh("class_weights", {head.classes}, Init::ones(),
                                       StorageRole::constant, DType::f32);
  }
  const std::string text = fmt::format("{}\n", fmt::join(labels, "\n"));
  return model.set_asset("labels", "text/plain", std::as_bytes(std::span(text)));
}

// Mean of the terms, weighted by class. Rows with a label below 0 are ignored.
Value weighted_mean(GraphBuilder& g, Value terms, Value labels, Value weights, int64_t classes) {
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

// Adds the graphs of a head.
class HeadGraphs {
 public:
  HeadGraphs(Model& model, DType dtype, const TextHead& head, const AddRows& rows, int64_t width)
      : model_(model), dtype_(dtype), head_(head), rows_(rows), width_(width) {}

  Status add_forward() const {
    GraphBuilder g(model_, "forward");
    g.output("hidden", rows_(g, {}).hidden);
    return g.finish();
  }

  Status add_embed() const {
    GraphBuilder g(model_, "embed");
    g.output("embedding", embed(g, head_, rows_, {}, width_).vectors);
    return g.finish();
  }

  Status add_classify() const {
    GraphBuilder g(model_, "classify");
    g.output("logits", logits(g, false));
    return g.finish();
  }

  Status add_tag() const {
    GraphBuilder g(model_, "tag");
    g.output("logits", token_logits(g, false));
    return g.finish();
  }

  Status add_loss_of_tags(const TextImportOptions& options) const {
    GraphBuilder g(model_, "loss");
    const Value scores = token_logits(g, options.dropout);
    const Value labels = g.input("labels", DType::i32, {"batch", "seq"});
    g.output("loss", g.op("CrossEntropy", {scores, labels},
                          {{"label_smoothing", options.label_smoothing}}));
    return g.finish();
  }

  Status add_loss(const TextImportOptions& options) const {
    GraphBuilder g(model_, "loss");
    const Value scores = logits(g, options.dropout);
    const Value weights = g.parameter(std::get<Parameter>(head_.class_weights.of));
    if (head_.multi_label) {
      const Value targets = g.input("targets", DType::f32, {"batch", head_.classes});
      const Value each = g.op("BinaryCrossEntropy", {scores, targets}, {{"reduction", "none"}});
      g.output("loss", g.op("ReduceMean", {g.op("Mul", {each, weights})}));
      return g.finish();
    }
    const Value labels = g.input("labels", DType::i32, {"batch"});
    const Value each = g.op("CrossEntropy", {scores, labels},
                            {{"reduction", "none"}, {"label_smoothing", options.label_smoothing}});
    g.output("loss", weighted_mean(g, each, labels, weights, head_.classes));
    return g.finish();
  }

 private:
  Value pooled(GraphBuilder& g, const HiddenRows& r, Value hidden) const {
    const Value lengths = r.lengths ? *r.lengths : g.input("lengths", DType::i32, {"batch"});
    return pool(g, hidden, r.tokens, lengths, head_.pooling, width_);
  }

  // Applies the projection to tokens or to a text.
  Value projected(Layers& l, Value x, double rate) const {
    if (!head_.projection) {
      return x;
    }
    x = head_.drops_before_projection ? l.dropout(x, rate, kSecondStream) : x;
    x = l.activate(l.linear(x, *head_.projection), head_.activation);
    return head_.norm ? l.norm(x, *head_.norm) : x;
  }

  Value logits(GraphBuilder& g, bool trains) const {
    const double rate = trains ? head_.dropout : 0;
    Layers l(g, dtype_);
    const HiddenRows r = rows_(g, {.trains = trains});
    Value x = r.hidden;
    if (head_.projects_tokens) {
      x = l.cast(projected(l, l.cast(x, DType::f32, dtype_), rate), dtype_, DType::f32);
    }
    x = l.cast(pooled(g, r, x), DType::f32, dtype_);
    x = l.dropout(head_.projects_tokens ? x : projected(l, x, rate), rate, kStream);
    return l.cast(l.linear(x, head_.classifier), dtype_, DType::f32);
  }

  // The logits of each token.
  Value token_logits(GraphBuilder& g, bool trains) const {
    const double rate = trains ? head_.dropout : 0;
    Layers l(g, dtype_);
    const Value hidden = l.cast(rows_(g, {.trains = trains}).hidden, DType::f32, dtype_);
    const Value x = l.dropout(projected(l, hidden, rate), rate, kStream);
    return l.cast(l.linear(x, head_.classifier), dtype_, DType::f32);
  }

  // Random streams that no layer of an encoder has. The heads of decoders have no dropout.
  static constexpr int kStream = 3, kSecondStream = 4;

  Model& model_;
  DType dtype_;
  const TextHead& head_;
  const AddRows& rows_;
  int64_t width_;
};

}  // namespace

std::optional<ImportTask> task_of_head(const Source& source) {
  const auto names = source.config.find("architectures");
  if (names == source.config.end() || !names->is_array() || names->empty()) {
    return ImportTask::classify;
  }
  const auto& first = (*names)[0];
  const std::string name = first.is_string() ? first.get<std::string>() : "";
  return name.ends_with("ForSequenceClassification") ? std::optional(ImportTask::classify)
         : name.ends_with("ForTokenClassification")  ? std::optional(ImportTask::tag)
                                                     : std::nullopt;
}

Result<TextHead> declare_head(const Source& source, const TextImportOptions& options,
                              const HeadForm& form, int64_t width, Weights& weights, Model& model) {
  BOWLINE_REQUIRE_CODE(
      entry_of(source.metadata, "truncation_side") == nullptr, Code::unsupported,
      "tokenizer_config.json has \"truncation_side\": \"left\", which cuts off the "
      "start of a long text. Only \"right\", which cuts off the end, is supported.");
  BOWLINE_TRY_ASSIGN(TextHead head, plan_of(source, options, weights, form));
  if (head.task != ImportTask::embed) {
    BOWLINE_TRY(add_classifier(source, options, form, width, weights, model, head));
  } else {
    head.similarity_scale = weights.constant("similarity_scale", 20, DType::f32);
    head.triplet_margin = weights.constant("triplet_margin", 5, DType::f32);
    for (const int64_t shorter : options.matryoshka) {
      BOWLINE_REQUIRE(shorter >= 1 && shorter < width,
                      "--matryoshka has the width {}, but an embedding has {} values.", shorter,
                      width);
    }
    head.widths = options.matryoshka;
  }
  BOWLINE_TRY(Status(weights.status()));
  weights.drop("classifier.*", "the task does not use it");
  for (const std::string_view name : {form.projection.name, form.projection.norm}) {
    if (!name.empty()) {
      weights.drop(fmt::format("{}.*", name), "the task does not use it");
    }
  }
  return head;
}

Status add_head(Model& model, DType dtype, const TextHead& head, const AddRows& rows, int64_t width,
                const TextImportOptions& options) {
  const HeadGraphs graphs(model, dtype, head, rows, width);
  BOWLINE_TRY(graphs.add_forward());
  if (head.task == ImportTask::tag) {
    BOWLINE_TRY(graphs.add_tag());
    return graphs.add_loss_of_tags(options);
  }
  if (head.task == ImportTask::embed) {
    BOWLINE_TRY(graphs.add_embed());
    return add_embed_losses(model, head, rows, width, options.dropout);
  }
  BOWLINE_TRY(graphs.add_classify());
  return graphs.add_loss(options);
}

Status describe_head(const Source& source, const TextHead& head, int64_t width, int64_t positions,
                     int64_t vocabulary, Model& model) {
  int64_t tokens = positions;
  for (const char* key : {"max_tokens", "model_max_length"}) {
    if (const std::string* limit = entry_of(source.metadata, key)) {
      tokens = std::min<int64_t>(positions, std::atoll(limit->c_str()));
      break;
    }
  }
  BOWLINE_TRY(model.set_metadata("max_tokens", std::to_string(tokens)));
  BOWLINE_TRY(model.set_metadata("context_length", std::to_string(positions)));
  BOWLINE_TRY(model.set_metadata("vocabulary", std::to_string(vocabulary)));
  if (head.task == ImportTask::tag) {
    return {};
  }
  BOWLINE_TRY(model.set_metadata("pooling", head.pooling));
  if (head.multi_label && head.task == ImportTask::classify) {
    BOWLINE_TRY(model.set_metadata("multi_label", "true"));
  }
  if (head.task == ImportTask::embed) {
    BOWLINE_TRY(model.set_metadata("embedding_width", std::to_string(width)));
    if (!head.widths.empty()) {
      BOWLINE_TRY(model.set_metadata("matryoshka", fmt::format("{}", fmt::join(head.widths, ","))));
    }
  }
  return model.set_metadata("normalize", head.normalize ? "true" : "false");
}

}  // namespace bowline::import
