// Texts with labels: rows of CSV, TSV or JSON lines.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/status.h"
#include "common/array.h"
#include "common/find.h"
#include "common/hash.h"
#include "common/text.h"
#include "common/tokenizers.h"
#include "tasks/class_weights.h"
#include "tasks/labels.h"
#include "tasks/row_task.h"
#include "tasks/scores.h"

namespace bowline::command {
namespace {

struct Texts : TokenRows {
  std::vector<Example> examples;
  std::vector<std::vector<int32_t>> classes;
};

// Returns the dtype of an input or output of an entry point. f32 if it does not exist: running the
// entry point then reports the error.
DType dtype_in(const ModelInfo& model, std::string_view entry, std::string_view name) {
  const EntryPointInfo* const e = find_named(model.entry_points, entry);
  const InputInfo* const input = e == nullptr ? nullptr : find_named(e->inputs, name);
  const OutputInfo* const output = e == nullptr ? nullptr : find_named(e->outputs, name);
  return input != nullptr ? input->dtype : output != nullptr ? output->dtype : DType::f32;
}

class ClassifyTask final : public RowTask<Texts> {
 public:
  ClassifyTask(const DataOptions& o, Texts train, Texts held_out, std::vector<std::string> labels,
               std::vector<float> weights, const ModelInfo& info, bool several,
               const LengthLimit& limit, int32_t padding)
      : RowTask(o, std::move(train), std::move(held_out), limit, padding),
        labels_(std::move(labels)),
        weights_(std::move(weights)),
        logits_(dtype_in(info, "classify", "logits")),
        targets_dtype_(dtype_in(info, "loss", "targets")),
        several_(several) {
    info_.evaluated = "classify";
    info_.unit = "nats per text";
    info_.step = fmt::format("texts of at most {} tokens", longest_);
    info_.data = {{"training data",
                   fmt::format("{} texts with {} labels", train_.ids.size(), labels_.size())},
                  {"held out", fmt::format("{} texts", held_out_.ids.size())}};
    info_.sizes = {{"texts", held_out_.ids.size()}};
    info_.notes = {"texts " + cut_note_};
    info_.settings.emplace_back("text-field", o_.fields.text);
    info_.settings.emplace_back("label-field", o_.fields.label);
    append_if(o_.in_order, info_.settings, "in-order", "");
    append_if(!weights_.empty(), info_.settings, "class-weights",
              is_rule(o_.class_weights) ? o_.class_weights : all_weights());
    info_.evaluation_key =
        hash_text(fmt::format("{} {} {} {} {} {}", held_out_.hash, limit_, o_.fields.text,
                              o_.fields.label, o_.batch, o_.eval_batches));
  }

  std::span<const Tensor> batch(uint64_t first) override {
    const std::span<const size_t> rows = order_.batch(first);
    const auto [tokens, lengths] = batch_.fill(train_.ids, rows);
    tensors_ = {tokens, lengths, several_ ? targets(rows) : labels(rows)};
    return tensors_;
  }

  Result<Measure> evaluate(const Forward& forward) override {
    Scores scores(labels_, several_);
    const size_t classes = labels_.size();
    BOWLINE_TRY_ASSIGN(Array made, make_array(logits_, {o_.batch, static_cast<int64_t>(classes)}));
    BOWLINE_TRY(for_batches([&](std::span<const size_t> rows) -> Status {
      const Tensor output = made.tensor("logits");
      BOWLINE_TRY(forward(batch_.fill(held_out_.ids, rows), {&output, 1}));
      const std::vector<float> logits = floats_of(made);
      for (size_t i = 0; i < rows.size(); ++i) {
        scores.add(std::span(logits).subspan(i * classes, classes), held_out_.classes[rows[i]],
                   held_out_.examples[rows[i]].text);
      }
      return {};
    }));
    return scores.measure();
  }

  Status prepare(Model& model) const override {
    BOWLINE_TRY(set_labels(model, labels_));
    if (weights_.empty()) {
      return {};
    }
    BOWLINE_TRY_ASSIGN(const ModelInfo info, model.describe());
    const ParameterInfo* const p = find_named(info.parameters, "class_weights");
    BOWLINE_REQUIRE(p != nullptr, "The model has no class_weights.");
    Array values = float_array(p->dtype, {static_cast<int64_t>(weights_.size())}, weights_);
    return model.set_value(p->name, values.tensor(p->name));
  }

 private:
  // Weights from a file are compared by value: the same weights from another file belong to the
  // same run.
  std::string all_weights() const {
    std::string text;
    for (size_t i = 0; i < weights_.size(); ++i) {
      text += fmt::format("{}{}={:.9g}", i == 0 ? "" : " ", labels_[i], weights_[i]);
    }
    return text;
  }

  Tensor labels(std::span<const size_t> rows) {
    classes_.clear();
    for (const size_t row : rows) {
      classes_.push_back(train_.classes[row][0]);
    }
    return {"labels", DType::i32, {o_.batch}, classes_.data()};
  }

  Tensor targets(std::span<const size_t> rows) {
    std::vector<float> values(static_cast<size_t>(o_.batch) * labels_.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      for (const int32_t c : train_.classes[rows[i]]) {
        values[i * labels_.size() + static_cast<size_t>(c)] = 1;
      }
    }
    targets_ =
        float_array(targets_dtype_, {o_.batch, static_cast<int64_t>(labels_.size())}, values);
    return targets_.tensor("targets");
  }

  std::vector<std::string> labels_;
  std::vector<float> weights_;  // by class; empty without --class-weights
  DType logits_;
  DType targets_dtype_;
  bool several_;
  Array targets_;                 // for texts with several labels
  std::vector<int32_t> classes_;  // for texts with one label
  std::array<Tensor, 3> tensors_;
};

Result<Texts> encode(const Model& model, std::vector<Example> examples, const std::string& file,
                     std::span<const std::string> labels, const LengthLimit& limit) {
  BOWLINE_TRY_ASSIGN(const text::Tokenizer tokenizer, tokenizer_of(model));
  Texts out;
  BOWLINE_TRY_ASSIGN(out.classes, classes_of(examples, labels, file));
  for (const Example& e : examples) {
    Result<std::vector<int32_t>> ids = encode_cut(tokenizer, e.text, limit, out.cut);
    if (!ids.ok()) {
      return std::move(ids).status().at(fmt::format("While reading {}:{}.", file, e.line));
    }
    BOWLINE_REQUIRE_CODE(!ids.value().empty(), Code::bad_file, "{}:{}: The text is empty.", file,
                         e.line);
    out.ids.push_back(std::move(ids).value());
  }
  out.examples = std::move(examples);
  return out;
}

struct File {
  std::vector<Example> rows;
  std::string hash;
};

Result<File> read_file(const std::string& path, const ExampleFields& fields) {
  BOWLINE_TRY_ASSIGN(const std::string bytes, read_text(path, true));
  File out;
  BOWLINE_TRY_ASSIGN(out.rows, read_examples(bytes, path, fields));
  out.hash = hash_text(bytes);
  return out;
}

Status check_labels(std::span<const Example> examples, const std::string& file, bool several) {
  const std::vector<std::string> seen = labels_of(examples);
  BOWLINE_REQUIRE_CODE(
      seen.size() != 1 || several, Code::bad_file,
      "Every row of \"{}\" has the label \"{}\". Training needs at least two labels.", file,
      seen.empty() ? "" : seen[0]);
  return {};
}

}  // namespace

Result<std::unique_ptr<Task>> make_classify_task(const Model& model, const DataOptions& o,
                                                 Purpose purpose) {
  ExampleFields fields = o.fields;
  fields.several = gives_several(model);
  const LengthLimit limit = length_limit(model, o.max_seq_length, kMostTextTokens);
  const auto read = [&](const std::string& path) { return read_file(path, fields); };
  BOWLINE_TRY_ASSIGN(DividedData<File> data, read_divided<File>(o, purpose, read));
  if (purpose == Purpose::training) {
    BOWLINE_TRY(check_labels(data.train.rows, o.data, fields.several));
  }
  std::vector<Example> all = data.train.rows;
  all.insert(all.end(), data.held_out.rows.begin(), data.held_out.rows.end());
  BOWLINE_TRY_ASSIGN(std::vector<std::string> labels, choose_labels(model, o, labels_of(all)));
  BOWLINE_TRY_ASSIGN(Texts train, encode(model, std::move(data.train.rows), o.data, labels, limit));
  BOWLINE_TRY_ASSIGN(Texts held_out, encode(model, std::move(data.held_out.rows),
                                            data.held_out_path, labels, limit));
  std::vector<float> weights;
  if (!o.class_weights.empty()) {
    std::vector<uint64_t> counts(labels.size());
    for (const std::vector<int32_t>& classes : train.classes) {
      for (const int32_t c : classes) {
        ++counts[static_cast<size_t>(c)];
      }
    }
    BOWLINE_TRY_ASSIGN(weights, class_weights(o.class_weights, labels, counts));
  }
  BOWLINE_TRY_ASSIGN(const ModelInfo info, model.describe());
  train.hash = std::move(data.train.hash);
  held_out.hash = std::move(data.held_out.hash);
  return std::unique_ptr<Task>(std::make_unique<ClassifyTask>(
      o, std::move(train), std::move(held_out), std::move(labels), std::move(weights), info,
      fields.several, limit, padding_of(model)));
}

}  // namespace bowline::command
