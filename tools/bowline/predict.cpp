// bowline predict: classifies texts, or computes their embeddings.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/status.h"
#include "common/array.h"
#include "common/files.h"
#include "common/find.h"
#include "common/flag_uses.h"
#include "common/flags.h"
#include "common/numbers.h"
#include "common/print.h"
#include "common/strings.h"
#include "common/text.h"
#include "common/tokenizers.h"
#include "common/trained_model.h"
#include "data/columns.h"
#include "data/examples.h"
#include "tasks/labels.h"
#include "tasks/rows.h"
#include "tasks/tagged_text.h"
#include "tasks/tokenize.h"
#include "verb.h"

namespace bowline::command {
namespace {

struct PredictOptions : ModelOptions {
  PredictOptions() { format = "json"; }

  std::vector<std::string> texts;
  std::string file;
  std::string text_field = "text";
  int64_t batch = 16;
  int64_t max_seq_length = 0;
  bool embed = false;
  int64_t width = 0;  // of embeddings; 0: whole
  Changes changes;
  FlagUses uses;
};

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    line.remove_suffix(line.ends_with('\r') ? 1 : 0);
    if (!line.empty()) {
      out.emplace_back(line);
    }
  }
  return out;
}

Result<std::vector<std::string>> from_stdin() {
  BOWLINE_TRY_ASSIGN(const std::string text, read_stdin());
  BOWLINE_TRY(check_text("stdin", text));
  return lines_of(text);
}

// Returns the texts of the command line, of a file, or from stdin.
Result<std::vector<std::string>> texts_of(const PredictOptions& o) {
  if (!o.texts.empty()) {
    for (const std::string& text : o.texts) {
      BOWLINE_TRY(check_text("argument", text));
    }
    return o.texts;
  }
  if (o.file.empty()) {
    return from_stdin();
  }
  if (!holds_examples(o.file)) {
    std::string extension = std::filesystem::path(o.file).extension().string();
    std::ranges::transform(extension, extension.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    constexpr std::string_view kTables[] = {".csv",  ".tsv",     ".jsonl", ".ndjson",
                                            ".json", ".parquet", ".xlsx"};
    BOWLINE_REQUIRE(
        std::ranges::find(kTables, extension) == std::end(kTables),
        "The format of \"{}\" is not supported. Rows are read from names that end in .csv, .tsv, "
        ".jsonl or .ndjson, in lower case. Other files have one text per line.",
        o.file);
  }
  BOWLINE_TRY_ASSIGN(const std::string bytes, read_text(o.file, true));
  if (!holds_examples(o.file)) {
    return lines_of(bytes);
  }
  BOWLINE_TRY_ASSIGN(const std::vector<Example> rows,
                     read_examples(bytes, o.file, {.text = o.text_field, .label = ""}));
  std::vector<std::string> out;
  for (const Example& row : rows) {
    out.push_back(row.text);
  }
  return out;
}

// Runs "classify", "embed" or "tag" over texts.
class Predictor {
 public:
  static Result<Predictor> create(const PredictOptions& o) {
    Predictor p;
    BOWLINE_TRY_ASSIGN(Model model, open_model(o.model));
    BOWLINE_TRY(change(model, o.changes));
    p.embed_ = o.embed || model.metadata("task") == "embed";
    p.tags_ = !p.embed_ && model.metadata("task") == "tag";
    p.batch_ = o.batch;
    p.width_ = o.width;
    BOWLINE_REQUIRE(p.embed_ || o.width == 0,
                    "--width has no effect: the model predicts labels, not embeddings.");
    const std::string entry = p.entry();
    BOWLINE_TRY_ASSIGN(const ModelInfo info, model.describe());
    const EntryPointInfo* const found = find_named(info.entry_points, entry);
    BOWLINE_REQUIRE_CODE(found != nullptr, Code::bad_file,
                         "Model \"{}\" has no entry point \"{}\"{}.", o.model, entry,
                         p.embed_ || p.tags_ ? "" : ": it is not a classifier");
    p.reads_lengths_ = find_named(found->inputs, "lengths") != nullptr;
    BOWLINE_TRY_ASSIGN(p.tokenizer_, tokenizer_of(model));
    p.limit_ = length_limit(model, o.max_seq_length, kMostTextTokens);
    p.padding_ = padding_of(model);
    p.several_ = gives_several(model);
    p.normalizes_ = model.metadata("normalize") == "true";
    p.prompt_ = p.embed_ ? model.metadata("prompt") : "";
    if (!p.embed_) {
      BOWLINE_TRY_ASSIGN(p.labels_, labels_in(model));
      BOWLINE_TRY_ASSIGN(p.scheme_, p.tags_ ? scheme_of(p.labels_) : TagScheme::words);
    }
    p.model_.emplace(std::move(model));
    return p;
  }

  // Tokenizes and truncates the texts, and makes plans for their lengths.
  Status place(const Device& device, std::span<const std::string> texts) {
    for (const std::string& given : texts) {
      BOWLINE_TRY_ASSIGN(text::Encoding encoding,
                         encode_limited(*tokenizer_, prompt_ + given, limit_, cut_));
      BOWLINE_REQUIRE(!encoding.ids.empty(), "A text is empty.");
      lengths_.push_back(static_cast<int64_t>(encoding.ids.size()));
      words_.push_back(tags_ ? words_of(given, encoding) : std::vector<TextWord>());
      ids_.push_back(std::move(encoding.ids));
    }
    batch_ = std::min(batch_, std::max<int64_t>(1, static_cast<int64_t>(texts.size())));
    const Buckets buckets(lengths_, false);
    padded_ = RowBatch(buckets, batch_, padding_);
    BOWLINE_TRY(model_->to(device));
    std::vector<BoundEntryPoint> plans;
    for (std::vector<BoundDim>& dims : buckets.dims(batch_)) {
      plans.push_back({entry(), std::move(dims)});
    }
    BOWLINE_TRY_ASSIGN(session_, Session::create(*model_, device, plans));
    return name_columns();
  }

  // Returns the outputs in the order of the texts. Tags have a row of logits for each word.
  Result<std::vector<std::vector<float>>> run() {
    std::vector<std::vector<float>> out(ids_.size());
    for (const std::vector<size_t>& rows : evaluation_batches(lengths_, batch_, 0)) {
      const std::array<Tensor, 2> inputs = padded_.fill(ids_, rows);
      const int64_t tokens = tags_ ? inputs[0].shape[1] : 1;
      BOWLINE_TRY_ASSIGN(Array made, tags_ ? make_array(dtype_, {batch_, tokens, columns_})
                                           : make_array(dtype_, {batch_, columns_}));
      const Tensor output = made.tensor(embed_ ? "embedding" : "logits");
      BOWLINE_TRY(
          session_->run(entry(), std::span(inputs).first(reads_lengths_ ? 2 : 1), {&output, 1}));
      const std::vector<float> values = floats_of(made);
      for (size_t i = 0; i < rows.size(); ++i) {
        const auto begin = values.begin() + static_cast<std::ptrdiff_t>(i) * tokens * columns_;
        std::vector<float>& to = out[rows[i]];
        for (const TextWord& word : words_[rows[i]]) {
          const auto at = begin + static_cast<std::ptrdiff_t>(word.token) * columns_;
          to.insert(to.end(), at, at + columns_);
        }
        if (!tags_) {
          to.assign(begin, begin + columns_);
        }
        shorten(to);
      }
    }
    return out;
  }

  // `number`: of the text.
  nlohmann::json json_of(size_t number, const std::string& text,
                         std::span<const float> values) const {
    if (tags_) {
      std::vector<std::vector<double>> all;
      for (size_t i = 0; i < words_[number].size(); ++i) {
        const auto classes = static_cast<size_t>(columns_);
        all.push_back(probabilities(values.subspan(i * classes, classes), false));
      }
      return tagged_json(text, words_[number], all, labels_, scheme_);
    }
    nlohmann::json row = {{"text", text}};
    if (embed_) {
      row["embedding"] = std::vector<float>(values.begin(), values.end());
      return row;
    }
    const std::vector<double> p = probabilities(values, several_);
    nlohmann::json all = nlohmann::json::object();
    std::vector<std::string> given;
    for (size_t c = 0; c < p.size(); ++c) {
      all[labels_[c]] = p[c];
      if (several_ && p[c] >= kSure) {
        given.push_back(labels_[c]);
      }
    }
    if (several_) {
      row["labels"] = given;
    } else {
      row["label"] = labels_[static_cast<size_t>(std::ranges::max_element(p) - p.begin())];
    }
    row["probabilities"] = std::move(all);
    return row;
  }

  std::string cut_text() const {
    return cut_ == 0 ? ""
                     : fmt::format("{} of {} texts are cut at {} tokens ({}).", cut_, ids_.size(),
                                   limit_.tokens, limit_.reason);
  }

 private:
  Predictor() = default;
  std::string entry() const { return embed_ ? "embed" : tags_ ? "tag" : "classify"; }

  // Cuts an embedding to --width. If the model normalizes embeddings, its length is 1 again.
  void shorten(std::vector<float>& embedding) const {
    if (width_ == 0) {
      return;
    }
    embedding.resize(static_cast<size_t>(width_));
    double squares = 0;
    for (const float x : embedding) {
      squares += static_cast<double>(x) * static_cast<double>(x);
    }
    for (float& x : embedding) {
      x = normalizes_ && squares > 0
              ? static_cast<float>(static_cast<double>(x) / std::sqrt(squares))
              : x;
    }
  }

  // Reads the dtype and the columns of the output. A class without a name gets its number as its
  // name.
  Status name_columns() {
    BOWLINE_TRY_ASSIGN(const PlanInfo plan, session_->describe());
    dtype_ = plan.segments[0].outputs[0].dtype;
    const TensorShape& shape = plan.segments[0].outputs[0].shape;
    columns_ = shape[shape.size() - 1];
    BOWLINE_REQUIRE(width_ <= columns_, "--width is {}, but an embedding has {} values.", width_,
                    columns_);
    for (auto c = static_cast<int64_t>(labels_.size()); c < columns_ && !embed_; ++c) {
      labels_.push_back(std::to_string(c));
    }
    return {};
  }

  std::optional<Model> model_;
  std::optional<Session> session_;
  std::optional<text::Tokenizer> tokenizer_;
  LengthLimit limit_;
  std::string prompt_;  // prepended to each text
  RowBatch padded_;
  std::vector<std::string> labels_;
  std::vector<std::vector<int32_t>> ids_;
  std::vector<int64_t> lengths_;
  DType dtype_ = DType::f32;  // of the output
  int64_t columns_ = 0;
  int64_t width_ = 0;
  bool normalizes_ = false;
  int64_t batch_ = 1;
  int32_t padding_ = 0;
  uint64_t cut_ = 0;
  std::vector<std::vector<TextWord>> words_;  // of each text, for tags
  TagScheme scheme_ = TagScheme::words;
  bool embed_ = false;
  bool tags_ = false;
  bool reads_lengths_ = true;
  bool several_ = false;
};

// Prints a line per text: the label with its probability, the tagged words, or the values of the
// embedding.
void print_plain(const nlohmann::json& row) {
  if (row.contains("embedding")) {
    print("{}\n",
          fmt::format("{:.6g}", fmt::join(row["embedding"].get<std::vector<float>>(), " ")));
    return;
  }
  for (const char* const list : {"entities", "words"}) {
    if (row.contains(list)) {
      const std::string all = joined(row[list], [](const nlohmann::json& item) {
        return fmt::format("{} ({} {:.4f})", item["text"].get<std::string>(),
                           item["label"].get<std::string>(), item["score"].get<double>());
      });
      print("{}\n", all.empty() ? "no entity" : all);
      return;
    }
  }
  const nlohmann::json given =
      row.contains("labels") ? row["labels"] : nlohmann::json::array({row["label"]});
  const std::string labels = joined(given, [&](const nlohmann::json& label) {
    const auto name = label.get<std::string>();
    return fmt::format("{} {:.4f}", name, row["probabilities"][name].get<double>());
  });
  print("{}\n", labels.empty() ? "no label" : labels);
}

Result<int> run(const PredictOptions& o) {
  BOWLINE_TRY_FLAGS(o.uses.check("--text-field", holds_examples(o.file),
                                 "the texts are not rows of a .csv, .tsv or .jsonl --file"));
  BOWLINE_TRY_ASSIGN(Predictor predictor, Predictor::create(o));
  BOWLINE_TRY_ASSIGN(const std::vector<std::string> texts, texts_of(o));
  if (texts.empty()) {
    return kOk;
  }
  BOWLINE_TRY_ASSIGN(const Device device, open_computing_device(o.device));
  BOWLINE_TRY(predictor.place(device, texts));
  if (const std::string cut = predictor.cut_text(); !cut.empty()) {
    print(stderr, "bowline: {}\n", cut);
  }
  BOWLINE_TRY_ASSIGN(const std::vector<std::vector<float>> values, predictor.run());
  for (size_t i = 0; i < texts.size(); ++i) {
    const nlohmann::json row = predictor.json_of(i, texts[i], values[i]);
    (o.format == "json" ? print_json_line : print_plain)(row);
  }
  return kOk;
}

}  // namespace

void add_predict(CLI::App& app, Context& context) {
  const auto [verb, o] = add_verb<PredictOptions>(
      app, context, run, "predict", "Predicts labels or entities of texts, or embeddings",
      "# The label of a text, or of each row of a table\n"
      "bowline predict tuned.bowline \"A library that draws maps\"\n"
      "bowline predict tuned.bowline --file texts.csv\n"
      "# The embedding of a text\n"
      "bowline predict minilm.bowline --embed \"A game of chess\"");
  verb->add_option("model", o->model, "Model file that labels or embeds texts")->required();
  CLI::Option* texts = verb->add_option("texts", o->texts, "Texts [the lines of standard input]");
  add_text(verb, "--file", o->file, "Read lines, or rows of .csv, .tsv or .jsonl", "FILE")
      ->excludes(texts);
  add_text(verb, "--text-field", o->text_field, "Column or field with the text", "NAME")
      ->capture_default_str();
  verb->add_flag("--embed", o->embed, "Compute embeddings instead of labels");
  verb->add_option("--width", o->width, "Cut embeddings to their first N values [all]")
      ->type_name("N")
      ->check(whole_number(1, 1 << 24));
  add_number(verb, "--batch", o->batch, "Texts per batch", 1, 1 << 20);
  add_number(verb, "--max-seq-length", o->max_seq_length,
             "Cut texts to this many tokens [the model's limit]", 1, 1 << 20);
  add_changes(verb, o->changes);
  add_device(verb, o->device);
  add_format(verb, o->format, "Output format; json has all probabilities");
  o->uses = FlagUses(verb);
}

}  // namespace bowline::command
