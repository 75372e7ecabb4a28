#include "plan/memory.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <queue>
#include <set>
#include <vector>

#include "base/checked.h"

namespace bowline::detail::plan {
namespace {

// The limit of comparisons for a quadratic placement. It allows a few thousand items.
constexpr uint64_t kMaxComparisons = uint64_t{1} << 25;

using Order = std::vector<uint32_t>;
using Offsets = std::vector<uint64_t>;

Order order_by(std::span<const MemoryItem> items,
               const std::function<uint64_t(const MemoryItem&)>& largest_first) {
  Order order(items.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(order, [&](uint32_t a, uint32_t b) {
    return largest_first(items[a]) > largest_first(items[b]);
  });
  return order;
}

Order order_by_time(std::span<const MemoryItem> items) {
  return order_by(items, [](const MemoryItem& m) { return uint64_t{UINT32_MAX} - m.first; });
}

// Visits the items in order of time. Calls `ends` for each item that ended before the next one
// begins, then `begins`.
template <class Ends, class Begins>
void walk_time(std::span<const MemoryItem> items, const Ends& ends, const Begins& begins) {
  using Ending = std::pair<uint32_t, uint32_t>;  // last position, item
  std::priority_queue<Ending, std::vector<Ending>, std::greater<>> live;
  for (const uint32_t i : order_by_time(items)) {
    for (; !live.empty() && live.top().first < items[i].first; live.pop()) {
      ends(live.top().second);
    }
    begins(i);
    live.emplace(items[i].last, i);
  }
}

uint64_t largest_live_sum(std::span<const MemoryItem> items) {
  uint64_t sum = 0;
  uint64_t largest = 0;
  walk_time(
      items, [&](uint32_t i) { sum -= items[i].bytes; },
      [&](uint32_t i) {
        sum += items[i].bytes;
        largest = std::max(largest, sum);
      });
  return largest;
}

// The arena at one position: the free gaps below the end of the live items.
class Gaps {
 public:
  Gaps(uint64_t begin, uint64_t part_bytes) : part_bytes_(part_bytes), end_(begin), size_(begin) {}
  uint64_t size() const { return size_; }

  // Takes the smallest gap that fits (the lowest of equal ones), or space after all live items.
  uint64_t take(uint64_t bytes) {
    for (auto fit = by_size_.lower_bound({bytes, 0}); fit != by_size_.end(); ++fit) {
      const auto [gap, offset] = *fit;
      const uint64_t begin = inside_part(offset, bytes, part_bytes_);
      if (begin + bytes <= offset + gap) {
        erase(offset, gap);
        insert(offset, begin - offset);
        insert(begin + bytes, offset + gap - begin - bytes);
        return begin;
      }
    }
    const uint64_t begin = inside_part(end_, bytes, part_bytes_);
    insert(end_, begin - end_);
    end_ = begin + bytes;
    size_ = std::max(size_, end_);
    return begin;
  }

  void give(uint64_t offset, uint64_t bytes) {
    if (bytes == 0) {
      return;
    }
    const auto after = by_offset_.lower_bound(offset);
    if (after != by_offset_.end() && after->first == offset + bytes) {
      const uint64_t gap = after->second;
      erase(offset + bytes, gap);
      bytes += gap;
    }
    const auto next = by_offset_.lower_bound(offset);
    if (next != by_offset_.begin()) {
      const auto [at, gap] = *std::prev(next);
      if (at + gap == offset) {
        erase(at, gap);
        offset = at;
        bytes += gap;
      }
    }
    if (offset + bytes == end_) {
      end_ = offset;
    } else {
      insert(offset, bytes);
    }
  }

 private:
  void insert(uint64_t offset, uint64_t bytes) {
    if (bytes == 0) {
      return;
    }
    by_offset_.emplace(offset, bytes);
    by_size_.emplace(bytes, offset);
  }
  void erase(uint64_t offset, uint64_t bytes) {
    by_offset_.erase(offset);
    by_size_.erase({bytes, offset});
  }

  std::map<uint64_t, uint64_t> by_offset_;
  std::set<std::pair<uint64_t, uint64_t>> by_size_;
  uint64_t part_bytes_;
  uint64_t end_;
  uint64_t size_;
};

// Places items in the order of their start, after the pinned ones. An item can only overlap items
// that are live when it starts.
uint64_t place_by_time(std::span<const MemoryItem> items, uint64_t part_bytes, Offsets& offsets) {
  uint64_t front = 0;
  for (const MemoryItem& m : items) {
    front = std::max(front, m.pinned ? m.offset + m.bytes : 0);
  }
  Gaps gaps(front, part_bytes);
  const auto ends = [&](uint32_t i) {
    if (!items[i].pinned) {
      gaps.give(offsets[i], items[i].bytes);
    }
  };
  const auto begins = [&](uint32_t i) {
    offsets[i] = items[i].pinned ? items[i].offset : gaps.take(items[i].bytes);
  };
  walk_time(items, ends, begins);
  return gaps.size();
}

// Places items in the order `order`. Returns the size of the arena, or nothing if it takes too
// long.
std::optional<uint64_t> place_in_order(std::span<const MemoryItem> items, const Order& order,
                                       uint64_t part_bytes, Offsets& offsets) {
  std::vector<uint32_t> placed;  // by offset
  uint64_t size = 0;
  uint64_t comparisons = 0;
  const auto put = [&](uint32_t i, uint64_t offset) {
    offsets[i] = offset;
    placed.insert(std::ranges::upper_bound(placed, offset, std::less<>(),
                                           [&](uint32_t p) { return offsets[p]; }),
                  i);
    size = std::max(size, offset + items[i].bytes);
  };
  for (const uint32_t i : order) {
    if (items[i].pinned) {
      put(i, items[i].offset);
    }
  }
  for (const uint32_t i : order) {
    if (items[i].pinned) {
      continue;
    }
    comparisons += placed.size();
    if (comparisons > kMaxComparisons) {
      return std::nullopt;
    }
    const MemoryItem& item = items[i];
    uint64_t cursor = 0;  // the end of the items below, and then the first place after it
    uint64_t best = UINT64_MAX;
    uint64_t best_gap = UINT64_MAX;
    for (const uint32_t p : placed) {
      if (items[p].last < item.first || items[p].first > item.last) {
        continue;
      }
      if (offsets[p] >= cursor + item.bytes && offsets[p] - cursor < best_gap) {
        best = cursor;
        best_gap = offsets[p] - cursor;
      }
      cursor = inside_part(std::max(cursor, offsets[p] + items[p].bytes), item.bytes, part_bytes);
    }
    put(i, best != UINT64_MAX ? best : cursor);
  }
  return size;
}

// Checks the sum of all items once. Offsets plus sizes never exceed it.
Status round_sizes(std::span<MemoryItem> items, uint64_t alignment, uint64_t part_bytes) {
  uint64_t total = 0;
  for (MemoryItem& item : items) {
    uint64_t padded = 0;
    bool fits = checked_add(item.bytes, alignment - 1, padded);
    BOWLINE_REQUIRE_CODE(item.pinned || item.bytes <= part_bytes, Code::out_of_memory,
                         "A value of {} bytes does not fit into a block of the device, which has "
                         "at most {} bytes.",
                         item.bytes, part_bytes);
    item.bytes = padded / alignment * alignment;
    fits = fits && checked_add(total, item.bytes, total);
    fits = fits && (!item.pinned || checked_add(item.offset, item.bytes, padded));
    BOWLINE_REQUIRE_CODE(fits, Code::out_of_memory,
                         "The {} blocks of the arena have more than 2^64 - 1 bytes together.",
                         items.size());
  }
  return {};
}

uint64_t area(const MemoryItem& m) {
  uint64_t out = 0;
  return checked_mul(m.bytes, uint64_t{m.last - m.first} + 1, out) ? out : UINT64_MAX;
}

}  // namespace

Result<MemoryLayout> place(std::span<MemoryItem> items, uint64_t alignment, uint64_t part_bytes) {
  BOWLINE_TRY(round_sizes(items, alignment, part_bytes));
  MemoryLayout layout{UINT64_MAX, largest_live_sum(items)};
  Offsets offsets(items.size());
  const auto keep = [&](std::optional<uint64_t> bytes) {
    if (bytes && *bytes < layout.bytes) {
      layout.bytes = *bytes;
      for (size_t i = 0; i < items.size(); ++i) {
        items[i].offset = offsets[i];
      }
    }
  };
  const auto bytes = [](const MemoryItem& m) { return m.bytes; };
  keep(place_in_order(items, order_by(items, bytes), part_bytes, offsets));
  keep(place_in_order(items, order_by(items, area), part_bytes, offsets));
  keep(place_by_time(items, part_bytes, offsets));
  return layout;
}

}  // namespace bowline::detail::plan
