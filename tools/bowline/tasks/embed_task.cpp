// Groups of texts, to train embeddings: rows of CSV, TSV or JSON lines.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "base/escape.h"
#include "base/parse.h"
#include "base/status.h"
#include "common/array.h"
#include "common/hash.h"
#include "common/text.h"
#include "common/tokenizers.h"
#include "data/columns.h"
#include "data/text_groups.h"
#include "tasks/embed_scores.h"
#include "tasks/row_task.h"

namespace bowline::command {
namespace {

constexpr const char* kPrefixes[] = {"", "second_", "third_"};

struct Groups : TokenRows {  // `ids` are the first texts
  std::vector<std::vector<int32_t>> second, third;
  std::vector<std::string> second_texts;
  std::vector<float> scores;
  std::vector<std::string> fields;
  std::string score;  // empty: the rows have no scores

  // Of the longest text of each row.
  std::vector<int64_t> lengths() const {
    std::vector<int64_t> out = TokenRows::lengths();
    for (const std::vector<std::vector<int32_t>>* const column : {&second, &third}) {
      for (size_t i = 0; i < column->size(); ++i) {
        out[i] = std::max(out[i], static_cast<int64_t>((*column)[i].size()));
      }
    }
    return out;
  }
  // The texts of each place of a group.
  std::vector<const std::vector<std::vector<int32_t>>*> columns() const {
    std::vector<const std::vector<std::vector<int32_t>>*> out = {&ids, &second};
    if (!third.empty()) {
      out.push_back(&third);
    }
    return out;
  }
};

// A loss of the model, see import.
struct Loss {
  std::string_view entry;
  std::string_view unit;
};
constexpr Loss kRanking = {"loss", "nats per pair"};
constexpr Loss kRankingWithNegatives = {"loss_with_negatives", "nats per triplet"};
constexpr Loss kTriplet = {"triplet_loss", "distance per triplet"};
constexpr Loss kScore = {"score_loss", "squared error per pair"};

std::string list_of(const std::vector<std::string>& fields) {
  return fmt::format("{}", fmt::join(fields, ", "));
}

// The constants of the losses.
struct Constants {
  float scale = 0;
  float margin = 0;
};

class EmbedTask final : public RowTask<Groups> {
 public:
  EmbedTask(const DataOptions& o, Groups train, Groups held_out, const Loss& loss,
            const Constants& constants, std::vector<size_t> widths, const LengthLimit& limit,
            int32_t padding)
      : RowTask(o, std::move(train), std::move(held_out), limit, padding),
        loss_(loss),
        constants_(constants),
        widths_(std::move(widths)) {
    std::vector<int64_t> all = train_.lengths();
    std::ranges::copy(held_out_.lengths(), std::back_inserter(all));
    for (const char* const prefix : kPrefixes) {
      batches_.emplace_back(Buckets(all, o.pad_to_longest), o.batch, padding, prefix);
    }
    info_.trained = loss.entry;
    info_.evaluated = "embed";
    info_.unit = loss.unit;
    const char* const group = has_third() ? "triplets" : "pairs";
    info_.step = fmt::format("{} of texts of at most {} tokens", group, longest_);
    const std::vector<std::string>& fields = held_out_.fields;
    info_.data = {
        {"training data", fmt::format("{} {} of texts ({}{}{})", train_.ids.size(), group,
                                      list_of(fields), is_scored() ? ", " : "", held_out_.score)},
        {"held out", fmt::format("{} {}", held_out_.ids.size(), group)}};
    info_.sizes = {{group, held_out_.ids.size()}};
    info_.notes = {fmt::format("texts of {} ", group) + cut_note_};
    note_repeated_texts();
    if (is_ranking() && !has_third() && held_out_.ids.size() == 1) {
      info_.notes.emplace_back(
          "The held-out data is one pair, which has no other texts to compare with: its loss is "
          "always 0. --valid names more data.");
    }
    info_.settings.emplace_back("text-field", list_of(fields));
    append_if(is_scored(), info_.settings, "label-field", held_out_.score);
    append_if(has_third(), info_.settings, "embed-loss", o_.embed_loss);
    append_if(is_ranking(), info_.settings, "similarity-scale",
              fmt::format("{:.9g}", constants_.scale));
    append_if(loss_.entry == kTriplet.entry, info_.settings, "triplet-margin",
              fmt::format("{:.9g}", constants_.margin));
    append_if(o_.in_order, info_.settings, "in-order", "");
    info_.evaluation_key = hash_text(fmt::format(
        "{} {} {} {} {} {} {} {} {}", held_out_.hash, limit_, list_of(fields), held_out_.score,
        loss_.entry, constants_.scale, constants_.margin, o_.batch, o_.eval_batches));
  }

  std::span<const Tensor> batch(uint64_t first) override {
    const std::span<const size_t> rows = order_.batch(first);
    int64_t longest = 1;
    for (const auto* const column : train_.columns()) {
      for (const size_t row : rows) {
        longest = std::max(longest, static_cast<int64_t>((*column)[row].size()));
      }
    }
    tensors_.clear();
    tokens_ = 0;
    for (size_t i = 0; const auto* const column : train_.columns()) {
      std::ranges::copy(batches_[i].fill(*column, rows, longest), std::back_inserter(tensors_));
      tokens_ += batches_[i++].tokens();
    }
    if (is_scored()) {
      scores_.clear();
      for (const size_t row : rows) {
        scores_.push_back(train_.scores[row]);
      }
      tensors_.push_back({"scores", DType::f32, {o_.batch}, scores_.data()});
    }
    return tensors_;
  }

  uint64_t tokens() const override { return tokens_; }

  Result<Measure> evaluate(const Forward& forward) override {
    const auto width = static_cast<int64_t>(widths_[0]);
    std::vector<Vectors> all(held_out_.columns().size(), Vectors{widths_[0], {}});
    std::vector<size_t> order;
    std::vector<size_t> ends;  // of the batches
    BOWLINE_TRY_ASSIGN(Array made, make_array(DType::f32, {o_.batch, width}));
    BOWLINE_TRY(for_batches([&](std::span<const size_t> rows) -> Status {
      for (size_t i = 0; const auto* const column : held_out_.columns()) {
        const Tensor output = made.tensor("embedding");
        BOWLINE_TRY(forward(batch_.fill(*column, rows), {&output, 1}));
        const std::vector<float> values = floats_of(made);
        const auto used = static_cast<std::ptrdiff_t>(rows.size()) * width;
        std::vector<float>& to = all[i++].values;
        to.insert(to.end(), values.begin(), values.begin() + used);
      }
      order.insert(order.end(), rows.begin(), rows.end());
      ends.push_back(order.size());
      return {};
    }));
    return is_scored() ? of_scores(all, order) : of_groups(all, order, ends);
  }

  Status prepare(Model& model) const override {
    BOWLINE_TRY(set(model, "similarity_scale", constants_.scale));
    return set(model, "triplet_margin", constants_.margin);
  }

 private:
  // Equal texts in a batch are taken for different answers, which is wrong.
  void note_repeated_texts() {
    std::map<std::string_view, uint64_t> counts;
    for (const std::string& text : train_.second_texts) {
      ++counts[text];
    }
    uint64_t rows = 0;
    for (const auto& [text, count] : counts) {
      rows += count > 1 ? count : 0;
    }
    if (is_ranking() && rows > 0) {
      info_.notes.push_back(
          fmt::format("{} of {} rows have a second text that another row has, too. If both are in "
                      "one batch, the "
                      "text of the other row counts as a wrong answer.",
                      rows, train_.second_texts.size()));
    }
  }

  bool is_scored() const { return loss_.entry == kScore.entry; }
  bool is_ranking() const { return !is_scored() && loss_.entry != kTriplet.entry; }
  bool has_third() const { return !held_out_.third.empty(); }

  static Status set(Model& model, const char* name, float value) {
    return model.set_value(name, {name, DType::f32, {1}, &value});
  }

  Measure of_scores(const std::vector<Vectors>& all, std::span<const size_t> order) const {
    std::vector<double> cosines, scores;
    Measure m;
    for (size_t i = 0; i < order.size(); ++i) {
      cosines.push_back(cosine(all[0].row(i), all[1].row(i)));
      scores.push_back(static_cast<double>(held_out_.scores[order[i]]));
      for (const size_t width : widths_) {
        const double shortened = cosine(all[0].row(i).first(width), all[1].row(i).first(width));
        m.loss += (shortened - scores[i]) * (shortened - scores[i]);
      }
    }
    m.loss /= static_cast<double>(order.size());
    m.more = {{"spearman", spearman(cosines, scores)}, {"pearson", pearson(cosines, scores)}};
    return m;
  }

  // The sum of the ranking losses of rows [begin, end), which are the candidates of each other.
  double ranking_loss(const std::vector<Vectors>& all, size_t begin, size_t end,
                      size_t width) const {
    std::vector<std::span<const float>> candidates;
    for (size_t column = 1; column < all.size(); ++column) {
      for (size_t i = begin; i < end; ++i) {
        candidates.push_back(all[column].row(i).first(width));
      }
    }
    double sum = 0;
    for (size_t i = begin; i < end; ++i) {
      sum += ranking_nats(all[0].row(i).first(width), candidates, i - begin,
                          static_cast<double>(constants_.scale));
    }
    return sum;
  }

  double triplet_loss(const std::vector<Vectors>& all, size_t row, size_t width) const {
    const auto from_first = [&](size_t column) {
      const std::span<const float> first = all[0].row(row).first(width);
      const std::span<const float> other = all[column].row(row).first(width);
      // Between rows of length 1, if there are shorter widths.
      return widths_.size() == 1 ? distance(first, other)
                                 : std::sqrt(std::max(2 - 2 * cosine(first, other), 0.0));
    };
    return std::max(from_first(1) - from_first(2) + static_cast<double>(constants_.margin), 0.0);
  }

  Measure of_groups(const std::vector<Vectors>& all, std::span<const size_t> order,
                    std::span<const size_t> ends) const {
    Measure m;
    size_t closer = 0;
    for (size_t begin = 0; const size_t end : ends) {
      for (const size_t width : widths_) {
        m.loss += is_ranking() ? ranking_loss(all, begin, end, width) : 0;
        for (size_t i = begin; i < end && !is_ranking(); ++i) {
          m.loss += triplet_loss(all, i, width);
        }
      }
      begin = end;
    }
    for (size_t i = 0; i < order.size() && has_third(); ++i) {
      const std::span<const float> first = all[0].row(i);
      closer += cosine(first, all[1].row(i)) > cosine(first, all[2].row(i)) ? 1 : 0;
    }
    const auto count = static_cast<double>(order.size());
    m.loss /= count;
    std::vector<std::string> texts;
    for (const size_t row : order) {
      texts.push_back(held_out_.second_texts[row]);
    }
    const Retrieval r = retrieval(all[0], all[1], texts);
    m.more = {{"recall_at_1", r.recall_at_1},
              {"recall_at_10", r.recall_at_10},
              {"mrr_at_10", r.mrr_at_10}};
    if (has_third()) {
      m.more.emplace_back("accuracy", static_cast<double>(closer) / count);
    }
    return m;
  }

  Loss loss_;
  Constants constants_;
  std::vector<size_t> widths_;  // of the losses; the first is that of the whole embeddings
  std::vector<RowBatch> batches_;
  std::vector<Tensor> tensors_;
  std::vector<float> scores_;
  uint64_t tokens_ = 0;
};

struct GroupsFile : TextGroups {
  std::string hash;
};

Result<GroupsFile> read_groups(const std::string& path, const DataOptions& o) {
  BOWLINE_TRY_ASSIGN(const std::string bytes, read_text(path, true));
  GroupsFile out;
  BOWLINE_TRY_ASSIGN(static_cast<TextGroups&>(out),
                     read_text_groups(bytes, path, o.uses.if_given("--text-field", o.fields.text),
                                      o.uses.if_given("--label-field", o.fields.label)));
  out.hash = hash_text(bytes);
  return out;
}

Result<Groups> encode_groups(const Model& model, const GroupsFile& file, const std::string& path,
                             const LengthLimit& limit) {
  BOWLINE_TRY_ASSIGN(const text::Tokenizer tokenizer, tokenizer_of(model));
  const std::string prompt = model.metadata("prompt");
  Groups out;
  out.fields = file.fields;
  out.score = file.score;
  out.hash = file.hash;
  std::vector<std::vector<int32_t>>* const columns[] = {&out.ids, &out.second, &out.third};
  for (const TextGroup& row : file.rows) {
    uint64_t cut = 0;
    for (size_t i = 0; i < row.texts.size(); ++i) {
      Result<std::vector<int32_t>> ids = encode_cut(tokenizer, prompt + row.texts[i], limit, cut);
      if (!ids.ok()) {
        return std::move(ids).status().at(fmt::format("While reading {}:{}.", path, row.line));
      }
      BOWLINE_REQUIRE_CODE(!ids.value().empty(), Code::bad_file,
                           "{}:{}: The text in \"{}\" has no tokens.", path, row.line,
                           out.fields[i]);
      columns[i]->push_back(std::move(ids).value());
    }
    out.cut += cut != 0 ? 1 : 0;
    out.second_texts.push_back(row.texts[1]);
    out.scores.push_back(row.score);
  }
  return out;
}

// Returns a constant of the losses: that of a flag, else that of the model.
Result<float> constant_of(const Model& model, const char* name, float flag) {
  float value = flag;
  if (flag < 0) {
    BOWLINE_TRY(model.get_value(name, {name, DType::f32, {1}, &value}));
  }
  return value;
}

// Errors  bad_argument: a flag has no effect on the data.
Result<Loss> loss_of(const TextGroups& groups, const DataOptions& o) {
  const bool has_third = groups.fields.size() == 3;
  const bool is_triplet = has_third && o.embed_loss == "triplet";
  const bool is_ranking = groups.score.empty() && !is_triplet;
  BOWLINE_REQUIRE(has_third || o.embed_loss != "triplet",
                  "--embed-loss triplet needs three texts per row, but \"{}\" has two ({}).",
                  o.data, list_of(groups.fields));
  BOWLINE_TRY(o.uses.check("--embed-loss", has_third, "the rows of the data have two texts"));
  BOWLINE_TRY(o.uses.check("--similarity-scale", is_ranking, "only the in-batch loss has a scale"));
  BOWLINE_TRY(o.uses.check("--triplet-margin", is_triplet, "only the triplet loss has a margin"));
  return !groups.score.empty() ? kScore
         : is_triplet          ? kTriplet
         : has_third           ? kRankingWithNegatives
                               : kRanking;
}

}  // namespace

Result<std::unique_ptr<Task>> make_embed_task(const Model& model, const DataOptions& o,
                                              Purpose purpose) {
  const LengthLimit limit = length_limit(model, o.max_seq_length, kMostTextTokens);
  const auto read = [&](const std::string& path) { return read_groups(path, o); };
  BOWLINE_TRY_ASSIGN(const DividedData<GroupsFile> data,
                     read_divided<GroupsFile>(o, purpose, read));
  const GroupsFile &own = data.train, &valid = data.held_out;
  BOWLINE_REQUIRE_CODE(
      valid.fields.size() == own.fields.size() && valid.score.empty() == own.score.empty(),
      Code::bad_file, "\"{}\" has the fields {}{}, but \"{}\" has {}{}.", o.valid,
      list_of(valid.fields), valid.score.empty() ? "" : " and a score", o.data, list_of(own.fields),
      own.score.empty() ? "" : " and a score");
  BOWLINE_TRY_ASSIGN(const Loss loss, loss_of(valid, o));
  BOWLINE_REQUIRE(purpose == Purpose::evaluation || loss.entry != kRanking.entry || o.batch > 1,
                  "--batch 1 gives a pair no other texts to compare with. Use at least 2.");
  Constants constants;
  BOWLINE_TRY_ASSIGN(constants.scale, constant_of(model, "similarity_scale", o.similarity_scale));
  BOWLINE_TRY_ASSIGN(constants.margin, constant_of(model, "triplet_margin", o.triplet_margin));
  const std::optional<int64_t> width = metadata_number(model, "embedding_width");
  BOWLINE_REQUIRE_CODE(width && *width > 0, Code::bad_file,
                       "The model has no metadata entry \"embedding_width\".");
  std::vector<size_t> widths = {static_cast<size_t>(*width)};
  for (const std::string& shorter : parts_of(model.metadata("matryoshka"), ',')) {
    const auto number = number_in<uint64_t>(shorter);
    BOWLINE_REQUIRE_CODE(number && *number >= 1 && *number < widths[0], Code::bad_file,
                         "The metadata entry \"matryoshka\" of the model has the width {}.",
                         listed_name(shorter));
    widths.push_back(*number);
  }
  BOWLINE_TRY_ASSIGN(Groups train, encode_groups(model, own, o.data, limit));
  BOWLINE_TRY_ASSIGN(Groups held_out, encode_groups(model, valid, data.held_out_path, limit));
  return std::unique_ptr<Task>(std::make_unique<EmbedTask>(o, std::move(train), std::move(held_out),
                                                           loss, constants, std::move(widths),
                                                           limit, padding_of(model)));
}

}  // namespace bowline::command
