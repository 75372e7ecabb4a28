// Words with tags: JSON lines, or the columns of CoNLL.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/status.h"
#include "common/array.h"
#include "common/find.h"
#include "common/hash.h"
#include "common/text.h"
#include "common/tokenizers.h"
#include "data/tagged_words.h"
#include "tasks/labels.h"
#include "tasks/row_task.h"
#include "tasks/tag_scores.h"

namespace bowline::command {
namespace {

constexpr int32_t kUncounted = -100;  // label of a token that does not count

struct Sentences : TokenRows {
  std::vector<TaggedWords> words;
  std::vector<std::vector<std::optional<size_t>>> first;  // see WordTokens
  std::vector<std::vector<int32_t>> labels;               // of each token
};

class TagTask final : public RowTask<Sentences> {
 public:
  TagTask(const DataOptions& o, Sentences train, Sentences held_out,
          std::vector<std::string> labels, TagScheme scheme, bool reads_lengths,
          const LengthLimit& limit, int32_t padding)
      : RowTask(o, std::move(train), std::move(held_out), limit, padding),
        tags_(std::move(labels)),
        scheme_(scheme),
        reads_lengths_(reads_lengths) {
    info_.evaluated = "tag";
    info_.unit = "nats per word";
    info_.step = fmt::format("sentences of at most {} tokens", longest_);
    info_.data = {{"training data",
                   fmt::format("{} sentences with {} tags", train_.ids.size(), tags_.size())},
                  {"held out", fmt::format("{} sentences", held_out_.ids.size())}};
    info_.sizes = {{"sentences", held_out_.ids.size()}};
    info_.notes = {"sentences " + cut_note_};
    info_.settings.emplace_back("text-field", o_.fields.text);
    info_.settings.emplace_back("label-field", o_.fields.label);
    append_if(o_.in_order, info_.settings, "in-order", "");
    info_.evaluation_key = hash_text(fmt::format("{} {} {} {} {}", held_out_.hash, limit_,
                                                 o_.fields.text, o_.fields.label, o_.eval_batches));
  }

  std::span<const Tensor> batch(uint64_t first) override {
    const std::span<const size_t> rows = order_.batch(first);
    tensors_ = inputs(train_.ids, rows);
    const int64_t seq = tensors_[0].shape[1];
    fill_tokens(train_.labels, rows, o_.batch, seq, kUncounted, labels_);
    tensors_.push_back({"labels", DType::i32, {o_.batch, seq}, labels_.data()});
    return tensors_;
  }

  Result<Measure> evaluate(const Forward& forward) override {
    TagScores scores(scheme_);
    const auto classes = static_cast<int64_t>(tags_.size());
    BOWLINE_TRY(for_batches([&](std::span<const size_t> rows) -> Status {
      const std::vector<Tensor> given = inputs(held_out_.ids, rows);
      const int64_t seq = given[0].shape[1];
      BOWLINE_TRY_ASSIGN(Array made, make_array(DType::f32, {o_.batch, seq, classes}));
      const Tensor output = made.tensor("logits");
      BOWLINE_TRY(forward(given, {&output, 1}));
      const std::vector<float> logits = floats_of(made);
      for (size_t i = 0; i < rows.size(); ++i) {
        const size_t length = static_cast<size_t>(seq * classes);
        add(rows[i], std::span(logits).subspan(i * length, length), scores);
      }
      return {};
    }));
    return scores.measure();
  }

  Status prepare(Model& model) const override { return set_labels(model, tags_); }

 private:
  std::vector<Tensor> inputs(std::span<const std::vector<int32_t>> ids,
                             std::span<const size_t> rows) {
    const auto filled = batch_.fill(ids, rows);
    return {filled.begin(), filled.end() - (reads_lengths_ ? 0 : 1)};
  }

  // Adds the words of a sentence that have tokens.
  void add(size_t row, std::span<const float> logits, TagScores& scores) const {
    const size_t classes = tags_.size();
    std::vector<std::string> truth, predicted;
    for (size_t word = 0; word < held_out_.first[row].size(); ++word) {
      const std::optional<size_t> token = held_out_.first[row][word];
      if (!token) {
        continue;
      }
      const std::span<const float> own = logits.subspan(*token * classes, classes);
      const int32_t label = held_out_.labels[row][*token];
      scores.add_nats(nats_of(own, {&label, 1}, false));
      truth.push_back(held_out_.words[row].tags[word]);
      predicted.push_back(tags_[static_cast<size_t>(std::ranges::max_element(own) - own.begin())]);
    }
    scores.add(truth, predicted);
  }

  std::vector<std::string> tags_;
  TagScheme scheme_;
  bool reads_lengths_;
  std::vector<Tensor> tensors_;
  std::vector<int32_t> labels_;
};

struct WordsFile {
  std::vector<TaggedWords> rows;
  std::string hash;
};

Result<WordsFile> read_words(const std::string& path, const DataOptions& o) {
  BOWLINE_TRY_ASSIGN(const std::string bytes, read_text(path, true));
  WordsFile out;
  BOWLINE_TRY_ASSIGN(out.rows,
                     read_tagged_words(bytes, path, o.uses.if_given("--text-field", o.fields.text),
                                       o.uses.if_given("--label-field", o.fields.label)));
  out.hash = hash_text(bytes);
  return out;
}

Result<Sentences> encode_sentences(const Model& model, WordsFile file, const std::string& path,
                                   std::span<const std::string> labels, const LengthLimit& limit) {
  BOWLINE_TRY_ASSIGN(const text::Tokenizer tokenizer, tokenizer_of(model));
  Sentences out;
  out.hash = std::move(file.hash);
  for (TaggedWords& row : file.rows) {
    Result<WordTokens> encoded = encode_words(tokenizer, row.words, limit, out.cut);
    if (!encoded.ok()) {
      return std::move(encoded).status().at(fmt::format("While reading {}:{}.", path, row.line));
    }
    WordTokens& tokens = encoded.value();
    BOWLINE_REQUIRE_CODE(!tokens.ids.empty(), Code::bad_file, "{}:{}: The words have no tokens.",
                         path, row.line);
    std::vector<int32_t>& of_tokens = out.labels.emplace_back(tokens.ids.size(), kUncounted);
    for (size_t word = 0; word < row.words.size(); ++word) {
      const auto label = std::ranges::find(labels, row.tags[word]);
      BOWLINE_REQUIRE_CODE(label != labels.end(), Code::bad_file,
                           "{}:{}: The model has no tag \"{}\" (of the word \"{}\").", path,
                           row.line, row.tags[word], row.words[word]);
      if (tokens.first[word]) {
        of_tokens[*tokens.first[word]] = static_cast<int32_t>(label - labels.begin());
      }
    }
    out.ids.push_back(std::move(tokens.ids));
    out.first.push_back(std::move(tokens.first));
    out.words.push_back(std::move(row));
  }
  return out;
}

}  // namespace

Result<std::unique_ptr<Task>> make_tag_task(const Model& model, const DataOptions& o,
                                            Purpose purpose) {
  const LengthLimit limit = length_limit(model, o.max_seq_length, kMostTextTokens);
  const auto read = [&](const std::string& path) { return read_words(path, o); };
  BOWLINE_TRY_ASSIGN(DividedData<WordsFile> data, read_divided<WordsFile>(o, purpose, read));
  std::set<std::string> seen;
  for (const std::vector<TaggedWords>* const rows : {&data.train.rows, &data.held_out.rows}) {
    for (const TaggedWords& row : *rows) {
      seen.insert(row.tags.begin(), row.tags.end());
    }
  }
  BOWLINE_TRY_ASSIGN(const std::vector<std::string> labels,
                     choose_labels(model, o, {seen.begin(), seen.end()}));
  BOWLINE_TRY_ASSIGN(const TagScheme scheme, scheme_of(labels));
  BOWLINE_TRY_ASSIGN(const ModelInfo info, model.describe());
  const EntryPointInfo* const entry = find_named(info.entry_points, "tag");
  const bool reads_lengths = find_named(entry->inputs, "lengths") != nullptr;
  BOWLINE_TRY_ASSIGN(Sentences train,
                     encode_sentences(model, std::move(data.train), o.data, labels, limit));
  BOWLINE_TRY_ASSIGN(Sentences held_out, encode_sentences(model, std::move(data.held_out),
                                                          data.held_out_path, labels, limit));
  return std::unique_ptr<Task>(std::make_unique<TagTask>(o, std::move(train), std::move(held_out),
                                                         labels, scheme, reads_lengths, limit,
                                                         padding_of(model)));
}

}  // namespace bowline::command
