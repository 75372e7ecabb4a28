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

// The data of a task. Both parts have the other members of the file that they are from.
template <class File>
struct DividedData {
  File train, held_out;
  std::string held_out_path;
};

// Reads --data and --valid. Without --valid, some rows of the data are held out (held_out_row()).
// An evaluation holds out all rows of the data.
// `read`: returns a Result<File> for a path. A File has `rows`, a vector.
// Errors  those of `read`; bad_file: no rows are left to train.
template <class File, class Read>
Result<DividedData<File>> read_divided(const DataOptions& o, Purpose purpose, const Read& read) {
  DividedData<File> out;
  out.held_out_path = o.data;
  BOWLINE_TRY_ASSIGN(File data, read(o.data));
  auto rows = std::exchange(data.rows, {});
  out.train = out.held_out = data;
  if (purpose == Purpose::evaluation) {
    out.held_out.rows = std::move(rows);
    return out;
  }
  if (!o.valid.empty()) {
    out.train.rows = std::move(rows);
    BOWLINE_TRY_ASSIGN(out.held_out, read(o.valid));
    out.held_out_path = o.valid;
  } else {
    for (size_t i = 0; i < rows.size(); ++i) {
      (held_out_row(i, rows.size()) ? out.held_out : out.train).rows.push_back(std::move(rows[i]));
    }
  }
  BOWLINE_REQUIRE_CODE(!out.train.rows.empty(), Code::bad_file,
                       "The training part of \"{}\" holds no rows.", o.data);
  return out;
}

// `Rows` derives from TokenRows.
template <class Rows>
class RowTask : public Task {
 public:
  RowTask(const DataOptions& o, Rows train, Rows held_out, const LengthLimit& limit,
          int32_t padding)
      : o_(o),
        train_(std::move(train)),
        held_out_(std::move(held_out)),
        limit_(limit.tokens),
        order_(train_.lengths(), o.batch, o.seed, o.in_order) {
    std::vector<int64_t> all = train_.lengths();
    std::ranges::copy(held_out_.lengths(), std::back_inserter(all));
    const Buckets buckets(all, o.pad_to_longest);
    longest_ = buckets.longest();
    batch_ = RowBatch(buckets, o.batch, padding);
    info_.dims = buckets.dims(o.batch);
    info_.samples_per_epoch = train_.ids.size();
    info_.held_out =
        fmt::format("{} rows, XXH3 {} of their file", held_out_.ids.size(), held_out_.hash);
    info_.training_data = fmt::format("{} rows, XXH3 {}", train_.ids.size(), train_.hash);
    info_.settings = {{"max-seq-length", std::to_string(limit_)}};
    cut_note_ = fmt::format("are cut at {} tokens ({}): {} of {} are longer", limit_, limit.reason,
                            train_.cut + held_out_.cut, all.size());
  }

  uint64_t tokens() const override { return batch_.tokens(); }

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

  DataOptions o_;
  Rows train_;
  Rows held_out_;
  int64_t limit_;
  RowOrder order_;
  RowBatch batch_;
  int64_t longest_ = 1;
  std::string cut_note_;  // "are cut at 512 tokens (the model's max_tokens): 3 of 90 are longer"
};

}  // namespace bowline::command
