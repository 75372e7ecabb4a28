// Rows of tokens of different lengths: in which order they are shown, and to which length they are
// padded.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "bowline.h"

namespace bowline::command {

// The lengths that batches are padded to, ascending: the last one holds every row. A plan is made
// for each.
class Buckets {
 public:
  Buckets() = default;
  // For rows of these lengths: a few, so that little is padding; or the longest alone.
  Buckets(std::span<const int64_t> lengths, bool one);
  // {"batch", batch}, {"seq", edge} of each, the longest first.
  std::vector<std::vector<BoundDim>> dims(int64_t batch) const;

  std::span<const int64_t> edges() const { return edges_; }
  int64_t longest() const { return edges_.empty() ? 1 : edges_.back(); }
  // The least edge that holds a row of this length.
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
  // `in_order`: as they stand, in every epoch, and not sorted.
  RowOrder(std::vector<int64_t> lengths, int64_t batch, uint64_t seed, bool in_order);

  // The rows of the samples from `first` on, a multiple of the batch; until the next call.
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

// Rows [0, count) in batches for an evaluation: sorted by length, the longest first, so that it is
// known soon whether they fit. At most `most` batches, spread evenly; 0: all.
std::vector<std::vector<size_t>> evaluation_batches(std::span<const int64_t> lengths, int64_t batch,
                                                    uint64_t most);

// Of `count` rows those that are held out where they have no file of their own: every tenth, or the
// last one of fewer.
bool held_out_row(size_t row, size_t count);

// Rows of ids, of which the `i`-th is row `rows[i]`, as a [batch, seq] of i32; the rest is
// `padding`.
void fill_tokens(std::span<const std::vector<int32_t>> ids, std::span<const size_t> rows,
                 int64_t batch, int64_t seq, int32_t padding, std::vector<int32_t>& tokens);

}  // namespace bowline::command
