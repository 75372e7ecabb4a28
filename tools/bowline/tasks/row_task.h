// Base class of tasks whose data are rows of tokens with different lengths.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "common/interrupt.h"
#include "tasks/rows.h"
#include "tasks/task.h"
#include "tasks/tokenize.h"

namespace bowline::command {

// The rows of a file, or a part of them.
struct TokenRows {
  std::vector<std::vector<int32_t>> ids;
  uint64_t cut = 0;  // rows that were longer than the limit
  std::string hash;  // of the file

  std::vector<int64_t> lengths() const {
    std::vector<int64_t> out;
    for (const std::vector<int32_t>& row : ids) {
      out.push_back(static_cast<int64_t>(row.size()));
    }
    return out;
  }
};

// `Rows` derives from TokenRows.
template <class Rows>
class RowTask : public Task {
 public:
  RowTask(const DataOptions& o, Rows train, Rows held_out, LengthLimit limit, int32_t padding)
      : o_(o),
        train_(std::move(train)),
        held_out_(std::move(held_out)),
        limit_(std::move(limit)),
        padding_(padding),
        order_(train_.lengths(), o.batch, o.seed, o.in_order) {
    std::vector<int64_t> all = train_.lengths();
    std::ranges::copy(held_out_.lengths(), std::back_inserter(all));
    buckets_ = Buckets(all, o.pad_to_longest);
  }

  std::vector<std::vector<BoundDim>> dims() const override { return buckets_.dims(o_.batch); }
  uint64_t samples_per_epoch() const override { return train_.ids.size(); }
  uint64_t tokens() const override { return in_batch_; }
  std::string held_out() const override {
    return fmt::format("{} rows, XXH3 {} of their file", held_out_.ids.size(), held_out_.hash);
  }
  std::string training_data() const override {
    return fmt::format("{} rows, XXH3 {}", train_.ids.size(), train_.hash);
  }

 protected:
  // Calls `use` with the rows of each batch of an evaluation.
  template <class Use>
  Status for_batches(const Use& use) {
    const std::vector<int64_t> lengths = held_out_.lengths();
    for (const std::vector<size_t>& rows : evaluation_batches(lengths, o_.batch, o_.eval_batches)) {
      BOWLINE_REQUIRE_CODE(!interrupted(), Code::cancelled, "Interrupted during an evaluation.");
      BOWLINE_TRY(use(rows));
    }
    return {};
  }

  // Writes the ids of rows to tokens_, padded to the returned length.
  int64_t fill_ids(const Rows& of, std::span<const size_t> rows) {
    size_t longest = 1;
    in_batch_ = 0;
    for (const size_t row : rows) {
      longest = std::max(longest, of.ids[row].size());
      in_batch_ += of.ids[row].size();
    }
    const int64_t seq = buckets_.edge(static_cast<int64_t>(longest));
    fill_tokens(of.ids, rows, o_.batch, seq, padding_, tokens_);
    return seq;
  }

  // "rows are cut at 512 tokens (the model's max_tokens): 3 of 90 are longer"
  std::string cut_note(std::string_view what) const {
    return fmt::format("{} are cut at {} tokens ({}): {} of {} are longer", what, limit_.tokens,
                       limit_.reason, train_.cut + held_out_.cut,
                       train_.ids.size() + held_out_.ids.size());
  }

  DataOptions o_;
  Rows train_;
  Rows held_out_;
  LengthLimit limit_;
  int32_t padding_;
  Buckets buckets_;
  RowOrder order_;
  std::vector<int32_t> tokens_;
  uint64_t in_batch_ = 0;  // tokens, without padding
};

}  // namespace bowline::command
