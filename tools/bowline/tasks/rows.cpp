#include "tasks/rows.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "common/text.h"

namespace bowline::command {
namespace {

// A plan must serve at least one row in this many.
constexpr size_t kLeastShare = 50;

// Rounds up to 8, 12, 16, 24, 32, and so on: powers of two and the middle between two of them.
int64_t round_up(int64_t length) {
  int64_t power = 8;
  while (power < length) {
    power *= 2;
  }
  const int64_t middle = power / 4 * 3;
  return power > 8 && length <= middle ? middle : power;
}

}  // namespace

Buckets::Buckets(std::span<const int64_t> lengths, bool one) {
  const int64_t longest = lengths.empty() ? 1 : std::ranges::max(lengths);
  std::map<int64_t, size_t> rows;  // by edge
  for (const int64_t length : lengths) {
    ++rows[std::min(round_up(length), longest)];
  }
  size_t waiting = 0;  // rows with smaller edges, too few for their own plan
  for (const auto& [edge, count] : rows) {
    waiting += count;
    if (!one && edge < longest && waiting * kLeastShare >= lengths.size()) {
      edges_.push_back(edge);
      waiting = 0;
    }
  }
  edges_.push_back(longest);
}

std::vector<std::vector<BoundDim>> Buckets::dims(int64_t batch) const {
  std::vector<std::vector<BoundDim>> out;
  for (auto edge = edges_.rbegin(); edge != edges_.rend(); ++edge) {
    out.push_back({{"batch", batch}, {"seq", *edge}});
  }
  return out;
}

int64_t Buckets::edge(int64_t length) const {
  const auto at = std::ranges::lower_bound(edges_, length);
  return at == edges_.end() ? longest() : *at;
}

namespace {

// Batches that are sorted by length together. More batches reduce padding, but make the rows of a
// batch more alike.
constexpr uint64_t kPartBatches = 50;
// Separates the random order of batches from the random order of rows.
constexpr uint64_t kBatchesKey = 0x9E3779B97F4A7C15;

}  // namespace

RowOrder::RowOrder(std::vector<int64_t> lengths, int64_t batch, uint64_t seed, bool in_order)
    : lengths_(std::move(lengths)),
      batch_(static_cast<uint64_t>(batch)),
      seed_(seed),
      in_order_(in_order) {}

size_t RowOrder::row(uint64_t sample) const {
  const uint64_t count = lengths_.size();
  return in_order_ ? sample % count : permuted(sample % count, count, seed_, sample / count);
}

RowOrder::Part RowOrder::part_with(uint64_t batch) const {
  const uint64_t rows = lengths_.size();
  const uint64_t epoch = batch * batch_ / rows;
  const uint64_t begin = (epoch * rows + batch_ - 1) / batch_, end = (epoch + 1) * rows / batch_;
  if (batch < begin || batch >= end) {
    return {batch, 1};
  }
  const uint64_t first = begin + (batch - begin) / kPartBatches * kPartBatches;
  return {first, std::min(kPartBatches, end - first)};
}

void RowOrder::draw(const Part& part) {
  part_ = part;
  rows_.resize(part.count * batch_);
  for (size_t i = 0; i < rows_.size(); ++i) {
    rows_[i] = row(part.first * batch_ + i);
  }
  if (!in_order_) {
    std::ranges::stable_sort(rows_, {}, [&](size_t r) { return lengths_[r]; });
  }
}

std::span<const size_t> RowOrder::batch(uint64_t first) {
  const uint64_t number = first / batch_;
  if (number - part_.first >= part_.count) {
    draw(part_with(number));
  }
  const uint64_t at = number - part_.first;
  const uint64_t drawn =
      in_order_ ? at : permuted(at, part_.count, seed_ ^ kBatchesKey, part_.first);
  return std::span(rows_).subspan(drawn * batch_, batch_);
}

std::vector<std::vector<size_t>> evaluation_batches(std::span<const int64_t> lengths, int64_t batch,
                                                    uint64_t most) {
  std::vector<size_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](size_t r) { return lengths[r]; });
  const auto size = static_cast<size_t>(batch);
  const size_t all = (order.size() + size - 1) / size;
  const size_t count = most == 0 ? all : std::min<size_t>(all, most);
  std::vector<std::vector<size_t>> out;
  for (size_t i = 0; i < count; ++i) {
    const size_t at = i * all / count * size;
    const auto begin = order.begin() + static_cast<std::ptrdiff_t>(at);
    out.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(std::min(size, order.size() - at)));
  }
  return out;
}

bool held_out_row(size_t row, size_t count) {
  constexpr size_t kOneIn = 10;
  return count < kOneIn ? row + 1 == count : row % kOneIn == kOneIn - 1;
}

void fill_tokens(std::span<const std::vector<int32_t>> ids, std::span<const size_t> rows,
                 int64_t batch, int64_t seq, int32_t padding, std::vector<int32_t>& tokens) {
  tokens.assign(static_cast<size_t>(batch * seq), padding);
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::vector<int32_t>& row = ids[rows[i]];
    const size_t count = std::min(row.size(), static_cast<size_t>(seq));
    std::copy_n(row.begin(), count,
                tokens.begin() + static_cast<std::ptrdiff_t>(i) * static_cast<std::ptrdiff_t>(seq));
  }
}

std::array<Tensor, 2> RowBatch::fill(std::span<const std::vector<int32_t>> ids,
                                     std::span<const size_t> rows, int64_t least) {
  int64_t longest = least;
  count_ = 0;
  lengths_.assign(static_cast<size_t>(batch_), 1);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto length = static_cast<int64_t>(ids[rows[i]].size());
    lengths_[i] = static_cast<int32_t>(length);
    longest = std::max(longest, length);
    count_ += static_cast<uint64_t>(length);
  }
  const int64_t seq = buckets_.edge(longest);
  fill_tokens(ids, rows, batch_, seq, padding_, tokens_);
  return {{{names_[0], DType::i32, {batch_, seq}, tokens_.data()},
           {names_[1], DType::i32, {batch_}, lengths_.data()}}};
}

}  // namespace bowline::command
