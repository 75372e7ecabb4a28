// Order and padding of token rows with different lengths.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bowline.h"

namespace bowline::command {

// The lengths that batches are padded to, ascending. The last length fits every row. Each length
// has its own plan.
class Buckets {
 public:
  Buckets() = default;
  // Chooses a few padded lengths for rows of these lengths. `one`: only the longest.
  Buckets(std::span<const int64_t> lengths, bool one);
  // Returns {"batch", batch}, {"seq", edge} for each length, the longest first.
  std::vector<std::vector<BoundDim>> dims(int64_t batch) const;

  int64_t longest() const { return edges_.empty() ? 1 : edges_.back(); }
  // Returns the smallest padded length that fits a row of this length.
  int64_t edge(int64_t length) const;

 private:
  std::vector<int64_t> edges_;
};

// An endless stream of samples: epoch after epoch, each with every row once, in an order that
// follows from the seed. An epoch is divided into parts. Each part is sorted by length and cut into
// batches, so that the rows of a batch have similar lengths. Then the batches of the part are
// shuffled. A batch that spans two epochs keeps its place. A checkpoint only needs the number of
// the next sample.
class RowOrder {
 public:
  // `in_order`: every epoch has the rows in the given order.
  RowOrder(std::vector<int64_t> lengths, int64_t batch, uint64_t seed, bool in_order);

  // Returns the rows of the batch that starts at sample `first`, a multiple of the batch size. The
  // span is valid until the next call.
  std::span<const size_t> batch(uint64_t first);

 private:
  // Batches [first, first + count).
  struct Part {
    uint64_t first = UINT64_MAX;
    uint64_t count = 0;
  };

  size_t row(uint64_t sample) const;
  Part part_with(uint64_t batch) const;
  void draw(const Part& part);

  std::vector<int64_t> lengths_;
  uint64_t batch_;
  uint64_t seed_;
  bool in_order_;
  Part part_;  // whose rows are in `rows_`
  std::vector<size_t> rows_;
};

// Divides all rows into batches for an evaluation. The longest rows are first, so that a lack of
// memory shows early. `most`: limit for the number of batches, which are then spread evenly; 0: no
// limit.
std::vector<std::vector<size_t>> evaluation_batches(std::span<const int64_t> lengths, int64_t batch,
                                                    uint64_t most);

// True if the row is held out, for data without a validation file: every tenth row, or the last of
// fewer than ten rows.
bool held_out_row(size_t row, size_t count);

// Writes the ids of `rows` to `tokens`, i32 [batch, seq]. The rest is `padding`.
void fill_tokens(std::span<const std::vector<int32_t>> ids, std::span<const size_t> rows,
                 int64_t batch, int64_t seq, int32_t padding, std::vector<int32_t>& tokens);

// A batch of rows, padded to the length of a bucket.
class RowBatch {
 public:
  RowBatch() = default;
  // `prefix`: of the names of the tensors.
  RowBatch(Buckets buckets, int64_t batch, int32_t padding, const std::string& prefix = {})
      : buckets_(std::move(buckets)),
        batch_(batch),
        padding_(padding),
        names_{prefix + "tokens", prefix + "lengths"} {}

  // Returns "tokens", i32 [batch, seq], and "lengths", i32 [batch], of `rows`. Rows that the batch
  // does not use have length 1. `seq` fits at least `least` tokens. The tensors are valid until the
  // next call.
  std::array<Tensor, 2> fill(std::span<const std::vector<int32_t>> ids,
                             std::span<const size_t> rows, int64_t least = 1);
  // Number of tokens in the batch, without padding.
  uint64_t tokens() const { return count_; }

 private:
  Buckets buckets_;
  int64_t batch_ = 1;
  int32_t padding_ = 0;
  std::array<std::string, 2> names_;
  uint64_t count_ = 0;
  std::vector<int32_t> tokens_;
  std::vector<int32_t> lengths_;
};

}  // namespace bowline::command
