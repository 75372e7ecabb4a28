#include "plan/memory.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include "core/checked.h"

namespace bowline::plan {
namespace {

// Places the items in the given order; returns the size of the arena.
uint64_t place_in_order(std::span<const MemoryItem> items, std::span<const size_t> order,
                        std::vector<uint64_t>& offsets) {
  std::vector<size_t> placed;  // by offset
  uint64_t size = 0;
  for (const size_t i : order) {
    const MemoryItem& item = items[i];
    uint64_t cursor = 0;
    uint64_t best = UINT64_MAX;
    uint64_t best_gap = UINT64_MAX;
    for (const size_t p : placed) {
      if (items[p].last < item.first || items[p].first > item.last) {
        continue;
      }
      if (offsets[p] >= cursor + item.bytes && offsets[p] - cursor < best_gap) {
        best = cursor;
        best_gap = offsets[p] - cursor;
      }
      cursor = std::max(cursor, offsets[p] + items[p].bytes);
    }
    offsets[i] = best != UINT64_MAX ? best : cursor;
    placed.insert(std::ranges::upper_bound(placed, offsets[i], std::less<>(),
                                           [&](size_t p) { return offsets[p]; }),
                  i);
    size = std::max(size, offsets[i] + item.bytes);
  }
  return size;
}

uint64_t largest_live_sum(std::span<const MemoryItem> items) {
  uint64_t largest = 0;
  for (const MemoryItem& at : items) {
    uint64_t sum = 0;
    for (const MemoryItem& item : items) {
      sum += item.first <= at.first && item.last >= at.first ? item.bytes : 0;
    }
    largest = std::max(largest, sum);
  }
  return largest;
}

}  // namespace

MemoryLayout place(std::span<MemoryItem> items, uint64_t alignment) {
  for (MemoryItem& item : items) {
    item.bytes = round_up(item.bytes, alignment);
  }
  const std::function<uint64_t(const MemoryItem&)> keys[] = {
      [](const MemoryItem& m) { return m.bytes; },
      [](const MemoryItem& m) { return m.bytes * (m.last - m.first + 1); },
      [](const MemoryItem& m) { return uint64_t{UINT32_MAX} - m.first; },
  };
  MemoryLayout layout{UINT64_MAX, largest_live_sum(items)};
  for (const auto& key : keys) {
    std::vector<size_t> order(items.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order,
                             [&](size_t a, size_t b) { return key(items[a]) > key(items[b]); });
    std::vector<uint64_t> offsets(items.size());
    const uint64_t bytes = place_in_order(items, order, offsets);
    if (bytes < layout.bytes) {
      layout.bytes = bytes;
      for (size_t i = 0; i < items.size(); ++i) {
        items[i].offset = offsets[i];
      }
    }
  }
  return layout;
}

}  // namespace bowline::plan
