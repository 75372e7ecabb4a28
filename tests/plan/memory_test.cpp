// Offsets in the arena.
#include "plan/memory.h"

#include <map>
#include <numeric>

#include "base/random.h"
#include "ties/seed_models.h"

namespace bowline::test {
namespace {

plan::MemoryItem random_item(const RandomBlock& r) {
  plan::MemoryItem item;
  item.bytes = r[0] % 5000;
  item.first = r[1] % 40;
  item.last = item.first + r[2] % 10;
  return item;
}

// Expects that all items are aligned and inside the arena, and that no two live items overlap.
void expect_apart(const std::vector<plan::MemoryItem>& items, uint64_t arena) {
  for (size_t i = 0; i < items.size(); ++i) {
    EXPECT_EQ(items[i].offset % 64, 0u);
    EXPECT_LE(items[i].offset + items[i].bytes, arena);
    for (size_t j = 0; j < i; ++j) {
      const bool together = items[i].first <= items[j].last && items[j].first <= items[i].last;
      const bool apart = items[i].offset + items[i].bytes <= items[j].offset ||
                         items[j].offset + items[j].bytes <= items[i].offset;
      EXPECT_TRUE(!together || apart) << "items " << i << " and " << j;
    }
  }
}

TEST(Memory, ItemsThatLiveTogetherDoNotOverlap) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    std::vector<plan::MemoryItem> items;
    for (uint32_t i = 0; i < 60; ++i) {
      const RandomBlock r = philox({i, seed, 0, 0}, {1, 2});
      items.push_back(random_item(r));
    }
    const plan::MemoryLayout layout = must(plan::place(items, 64));
    EXPECT_GE(layout.bytes, layout.lower_bound);
    SCOPED_TRACE(seed);
    expect_apart(items, layout.bytes);
  }
}

TEST(Memory, ItemsStayInsideAPartOfTheArena) {
  constexpr uint64_t kPart = 8192;
  for (uint32_t seed = 0; seed < 50; ++seed) {
    // Few items are placed best in order of size, many in order of time.
    std::vector<plan::MemoryItem> items(seed % 2 == 0 ? 60 : 8000);
    for (uint32_t i = 0; i < items.size(); ++i) {
      items[i] = random_item(philox({i, seed, 0, 0}, {1, 2}));
      items[i].first += i / 60 * 50;
      items[i].last += i / 60 * 50;
    }
    const plan::MemoryLayout layout = must(plan::place(items, 64, kPart));
    for (const plan::MemoryItem& item : items) {
      EXPECT_EQ(item.offset, plan::inside_part(item.offset, item.bytes, kPart));
    }
    if (items.size() < 100) {
      expect_apart(items, layout.bytes);
    }
    EXPECT_LT(layout.bytes, 2 * layout.lower_bound + kPart);
  }
}

// Pinned items keep their offset, and other items lie around them. Another item can use the same
// bytes before and after the lifetime of a pinned item.
TEST(Memory, PinnedItemsStay) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    std::vector<plan::MemoryItem> items;
    for (uint32_t i = 0; i < 40; ++i) {
      const RandomBlock r = philox({i, seed, 0, 0}, {3, 2});
      plan::MemoryItem item = random_item(r);
      item.pinned = i % 10 == 0;
      item.offset = item.pinned ? 640 * i : 0;
      items.push_back(item);
    }
    const std::vector<plan::MemoryItem> given = items;
    const plan::MemoryLayout layout = must(plan::place(items, 64));
    SCOPED_TRACE(seed);
    expect_apart(items, layout.bytes);
    for (size_t i = 0; i < items.size(); ++i) {
      EXPECT_TRUE(!items[i].pinned || items[i].offset == given[i].offset);
    }
  }
  // An item that begins after another item has ended reuses its place.
  std::vector<plan::MemoryItem> items = {{64, 2, 3, 64, true}, {128, 0, 1, 0}};
  EXPECT_EQ(must(plan::place(items, 64)).bytes, 128u);
}

// More items than the quadratic orders accept. Each item lives for some time, then its place is
// free for other items.
TEST(Memory, ManyItemsAreStillApart) {
  constexpr uint32_t kItems = 100'000;
  std::vector<plan::MemoryItem> items(kItems);
  for (uint32_t i = 0; i < kItems; ++i) {
    const RandomBlock r = philox({i, 0, 0, 0}, {5, 8});
    items[i] = {r[0] % 5000, r[1] % kItems, 0, 0};
    items[i].last = items[i].first + r[2] % (i % 10 == 0 ? kItems / 2 : 100);
  }
  const plan::MemoryLayout layout = must(plan::place(items, 64));
  EXPECT_LE(layout.lower_bound, layout.bytes);
  EXPECT_LT(layout.bytes, 2 * layout.lower_bound);
  std::vector<uint32_t> order(kItems);
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::sort(order, {}, [&](uint32_t i) { return items[i].first; });
  std::multimap<uint32_t, uint32_t> ending;  // last -> item
  std::map<uint64_t, uint64_t> live;         // offset -> end
  for (const uint32_t i : order) {
    const plan::MemoryItem& item = items[i];
    while (!ending.empty() && ending.begin()->first < item.first) {
      live.erase(items[ending.begin()->second].offset);
      ending.erase(ending.begin());
    }
    if (item.bytes == 0) {
      continue;
    }
    const uint64_t end = item.offset + item.bytes;
    ASSERT_LE(end, layout.bytes);
    const auto next = live.lower_bound(item.offset);
    ASSERT_TRUE(next == live.end() || next->first >= end) << "item " << i;
    ASSERT_TRUE(next == live.begin() || std::prev(next)->second <= item.offset) << "item " << i;
    live.emplace(item.offset, end);
    ending.emplace(item.last, i);
  }
}

TEST(Memory, ASumThatDoesNotFitIsRefused) {
  for (const uint64_t bytes : {uint64_t{1} << 63, UINT64_MAX - 10}) {
    std::vector<plan::MemoryItem> items(2, {bytes, 0, 0, 0});
    const auto layout = plan::place(items, 64);
    ASSERT_FALSE(layout.ok());
    EXPECT_EQ(layout.status().code(), Code::out_of_memory);
    EXPECT_EQ(layout.status().message(),
              "The 2 blocks of the arena have more than 2^64 - 1 bytes together.");
  }
}

// Returns the arena sizes of a session and of a trainer. The graph multiplies by "embed" [512, 512]
// through `view`.
std::pair<uint64_t, uint64_t> arenas_of_products(const View& view) {
  Model model;
  const Parameter e = must(model.parameter("embed", {512, 512}, Init::normal(0.02f)));
  const Parameter head = must(model.tied_parameter("head", e, view));
  GraphBuilder g(model, "loss");
  const Value x = g.input("x", DType::f32, {2, 1, 512});
  const Value y = g.op("MatMul", {g.op("Linear", {x, g.parameter(head)}), g.parameter(head)});
  g.output("loss", g.op("ReduceSum", {y}));
  EXPECT_OK(g.finish());
  EXPECT_OK(model.materialize(1));
  const Device cpu = must(Device::open("cpu"));
  EXPECT_OK(model.to(cpu));
  const Session session = must(Session::create(model, cpu, "loss", {}));
  TrainOptions options;
  options.entry_point = "loss";
  options.loss = "loss";
  options.optimizer = {"sgd"};
  const Trainer trainer = must(Trainer::create(model, cpu, options));
  return {session.memory().arena_bytes, trainer.memory().arena_bytes};
}

// Forward, backward and the gradient read the transposed parameter in place.
TEST(Memory, ATransposedParameterHasNoCopyInTheArena) {
  View transposed;
  transposed.transpose = true;
  EXPECT_EQ(arenas_of_products(transposed), arenas_of_products({}));
}

}  // namespace
}  // namespace bowline::test
