#include "params/weight_format.h"

#include "base/checked.h"
#include "base/pattern.h"
#include "bowline.h"
#include "params/chosen.h"
#include "params/describe.h"
#include "params/home.h"
#include "params/stage.h"

namespace bowline::detail::params {
namespace {

constexpr uint64_t kAlignment = 64;

Result<FormatLayout> lay_flat(std::span<const StorageInfo> group) {
  FormatLayout out;
  uint64_t hidden = 0;
  for (const StorageInfo& s : group) {
    out.offsets.push_back(out.bytes);
    out.bytes += round_up(s.bytes, size_of(DType::i64));
    if (s.shape.size() == 2) {
      hidden += static_cast<uint64_t>(s.shape[0]) * size_of(s.dtype);
    } else if (s.shape.size() == 1) {
      hidden -= std::min(hidden, s.bytes);
    }
  }
  out.bytes += hidden;
  return out;
}

Result<std::vector<uint32_t>> members(const Table& table, std::string_view pattern) {
  BOWLINE_TRY_ASSIGN(const std::vector<Chosen> storages, chosen(table, pattern));
  std::vector<uint32_t> ties;
  std::ranges::transform(storages, std::back_inserter(ties), &Chosen::tie);
  return ties;
}

Result<std::shared_ptr<device::OpenDevice>> device_of(const Table& table,
                                                      std::span<const uint32_t> ties) {
  const device::Block* first = table.storages[ties[0]].home.block.get();
  for (const uint32_t tie : ties) {
    const device::Block* block = table.storages[tie].home.block.get();
    BOWLINE_REQUIRE(block != nullptr,
                    "Storage {} is not on a device. Move the model with Model::to() first.", tie);
    BOWLINE_REQUIRE(
        block->device_handle() == first->device_handle(),
        "Storages {} and {} are on {} and {}, but the storages of a format must be on one device.",
        ties[0], tie, first->device().info().name, block->device().info().name);
  }
  return first->device_handle();
}

Status check_layout(const FormatLayout& layout, std::span<const StorageInfo> group) {
  BOWLINE_REQUIRE(layout.offsets.size() == group.size(), "It places {} of {} storages.",
                  layout.offsets.size(), group.size());
  for (size_t i = 0; i < group.size(); ++i) {
    const uint64_t begin = layout.offsets[i], bytes = group[i].bytes;
    BOWLINE_REQUIRE(begin <= layout.bytes && bytes <= layout.bytes - begin,
                    "It places storage {} outside its {} bytes.", group[i].tie, layout.bytes);
    BOWLINE_REQUIRE(begin % size_of(group[i].dtype) == 0,
                    "It places storage {} at byte {}, which is not a multiple of its element size.",
                    group[i].tie, begin);
    for (size_t k = 0; k < i; ++k) {
      BOWLINE_REQUIRE(
          begin + bytes <= layout.offsets[k] || layout.offsets[k] + group[k].bytes <= begin,
          "It lets storages {} and {} overlap.", group[k].tie, group[i].tie);
    }
  }
  return {};
}

// Places the rows in one new allocation.
Result<std::shared_ptr<const device::Block>> pack(Stage& stage, const WeightFormat& kind,
                                                  std::span<const uint32_t> ties) {
  const Table& table = stage.before();
  BOWLINE_TRY_ASSIGN(const std::shared_ptr<device::OpenDevice> device, device_of(table, ties));
  BOWLINE_REQUIRE(matches(kind.device, device->info().name),
                  "The format is for \"{}\", but the storages are on {}.", kind.device,
                  device->info().name);
  std::vector<StorageInfo> group;
  for (const uint32_t tie : ties) {
    group.push_back(describe_storage(table, tie));
  }
  BOWLINE_TRY_ASSIGN(const FormatLayout layout, kind.layout(group));
  BOWLINE_TRY(check_layout(layout, group));
  BOWLINE_TRY_ASSIGN(std::shared_ptr<const device::Block> whole,
                     device::Block::allocate(device, round_up(layout.bytes, kAlignment)));
  BOWLINE_TRY(whole->fill(std::byte{0}));
  for (size_t i = 0; i < ties.size(); ++i) {
    Storage& row = stage.storage(ties[i]);
    const auto part = device::Block::part(whole, layout.offsets[i], group[i].bytes);
    BOWLINE_TRY(part->copy(0, *row.home.block, 0, group[i].bytes));
    row.home.block = part;
    ++row.generation;
  }
  return whole;
}

Status unpack(Stage& stage, std::span<const uint32_t> ties) {
  for (const uint32_t tie : ties) {
    const std::shared_ptr<device::Block> from = stage.before().storages[tie].home.block;
    if (from == nullptr || &from->whole() == from.get()) {
      continue;
    }
    Storage& row = stage.storage(tie);
    BOWLINE_TRY_ASSIGN(row.home.block, from->copied(0, from->bytes()));
    ++row.generation;
  }
  return {};
}

bool is_intact(const Table& table, const FormatGroup& group) {
  return std::ranges::all_of(group.ties, [&](uint32_t tie) {
    const device::Block* block = table.storages[tie].home.block.get();
    return block != nullptr && &block->whole() == group.whole.get();
  });
}

// True if all members are on one device that the format supports.
bool is_at_home(const Table& table, const FormatGroup& group) {
  const auto device_at = [&](uint32_t tie) {
    const std::shared_ptr<device::Block>& block = table.storages[tie].home.block;
    return block ? block->device_handle() : nullptr;
  };
  return !group.ties.empty() && device_at(group.ties[0]) != nullptr &&
         matches(group.format->device, device_at(group.ties[0])->info().name) &&
         std::ranges::all_of(
             group.ties, [&](uint32_t tie) { return device_at(tie) == device_at(group.ties[0]); });
}

std::string context_of(const WeightFormat& kind) {
  return format("While laying weights out as \"{}\".", kind.name);
}

bool overlap(std::span<const uint32_t> a, std::span<const uint32_t> b) {
  return std::ranges::any_of(a, [&](uint32_t tie) { return std::ranges::find(b, tie) != b.end(); });
}

}  // namespace

const WeightFormat& flat_format() {
  static const WeightFormat flat = {
      "flat",
      {"Lstm", "Gru"},
      "*",
      "all weights of a recurrent network in one allocation, with zeros for missing biases",
      lay_flat};
  return flat;
}

Result<FormatReport> set_format(Table& table, const std::shared_ptr<const WeightFormat>& kind,
                                std::string_view pattern, int busy) {
  BOWLINE_TRY_ASSIGN(const std::vector<uint32_t> ties, members(table, pattern));
  std::vector<FormatGroup> groups = table.formats();
  FormatReport report{kind->name, ties, 0};
  for (const FormatGroup& g : groups) {
    if (g.format->name == kind->name && g.ties == ties && is_intact(table, g)) {
      report.bytes = g.whole->bytes();
      return report;
    }
  }
  BOWLINE_TRY_ASSIGN(Stage stage, Stage::begin(table, busy, "set_weight_format()"));
  // A storage can be in one group only. Dissolve the groups that it was in.
  std::vector<uint32_t> left;
  for (const FormatGroup& g : groups) {
    if (overlap(g.ties, ties)) {
      std::ranges::copy_if(g.ties, std::back_inserter(left), [&](uint32_t tie) {
        return std::ranges::find(ties, tie) == ties.end();
      });
    }
  }
  std::erase_if(groups, [&](const FormatGroup& g) { return overlap(g.ties, ties); });
  const std::string context = context_of(*kind);
  BOWLINE_TRY_ASSIGN(std::shared_ptr<const device::Block> whole,
                     in_context(pack(stage, *kind, ties), context));
  BOWLINE_TRY(unpack(stage, left).at(context));
  report.bytes = whole->bytes();
  groups.push_back({kind, ties, std::move(whole)});
  ++stage.counters().packs;
  stage.set_formats(std::move(groups));
  stage.commit();
  return report;
}

Result<uint32_t> restore_format(Table& table, std::string_view pattern, int busy) {
  BOWLINE_TRY_ASSIGN(const std::vector<uint32_t> ties, members(table, pattern));
  std::vector<FormatGroup> groups = table.formats();
  const auto before = groups.size();
  BOWLINE_TRY_ASSIGN(Stage stage, Stage::begin(table, busy, "restore_weight_format()"));
  for (const FormatGroup& g : groups) {
    if (overlap(g.ties, ties)) {
      BOWLINE_TRY(unpack(stage, g.ties).at(context_of(*g.format)));
    }
  }
  std::erase_if(groups, [&](const FormatGroup& g) { return overlap(g.ties, ties); });
  const auto restored = static_cast<uint32_t>(before - groups.size());
  if (restored > 0) {
    stage.set_formats(std::move(groups));
    stage.commit();
  }
  return restored;
}

uint64_t padding_of_formats(const Table& table, const device::OpenDevice* device) {
  uint64_t bytes = 0;
  for (const FormatGroup& g : table.formats()) {
    if (g.whole != nullptr && &g.whole->device() == device) {
      bytes += g.whole->bytes();
      for (const uint32_t tie : g.ties) {
        const device::Block* block = table.storages[tie].home.block.get();
        bytes -= block != nullptr && &block->whole() == g.whole.get() ? block->bytes() : 0;
      }
    }
  }
  return bytes;
}

void keep_formats(Table& table) {
  const auto as_laid = [&](const FormatGroup& g) { return is_intact(table, g); };
  if (std::ranges::all_of(table.formats(), as_laid)) {
    return;
  }
  std::vector<FormatGroup> groups = table.formats();
  ModelCounters counters = table.counters();
  for (FormatGroup& g : groups) {
    if (is_intact(table, g)) {
      continue;
    }
    g.whole = nullptr;
    std::erase_if(g.ties, [&](uint32_t tie) {
      return tie >= table.storages.size() || table.storages[tie].empty;
    });
    if (!is_at_home(table, g)) {
      continue;
    }
    const auto again = [&]() -> Status {
      BOWLINE_TRY_ASSIGN(Stage stage, Stage::begin(table, 0, "keep_formats()"));
      BOWLINE_TRY_ASSIGN(g.whole, pack(stage, *g.format, g.ties));
      stage.commit();
      return {};
    };
    const bool laid = again().ok();
    ++(laid ? counters.repacks : counters.fallbacks);
    if (!laid) {
      g.ties.clear();
    }
  }
  std::erase_if(groups, [](const FormatGroup& g) { return g.ties.empty(); });
  table.set_formats(std::move(groups));
  table.set_counters(counters);
}

}  // namespace bowline::detail::params
