#include "params/chosen.h"
#include "params/home.h"
#include "params/stage.h"
#include "params/verbs.h"

namespace bowline::detail::params {
namespace {

// The storages that match the pattern. All must have bytes.
Result<std::vector<Chosen>> chosen_with_bytes(const Table& table, std::string_view pattern) {
  BOWLINE_TRY_ASSIGN(std::vector<Chosen> out, chosen(table, pattern));
  for (const auto& [tie, name] : out) {
    BOWLINE_REQUIRE(table.storages[tie].home.valid(),
                    "Storage {} (\"{}\") has no values. Call materialize() or load() first.", tie,
                    name);
  }
  return out;
}

}  // namespace

Result<PlacementReport> replicate(Table& table, const std::shared_ptr<device::OpenDevice>& device,
                                  std::string_view pattern, int busy) {
  BOWLINE_TRY_ASSIGN(Stage stage, Stage::begin(table, busy, "replicate()"));
  BOWLINE_TRY_ASSIGN(std::vector<Chosen> storages, chosen_with_bytes(table, pattern));
  std::erase_if(storages, [&](const Chosen& c) {
    const Storage& row = table.storages[c.tie];
    const bool lies_there = row.home.block && row.home.block->device_handle() == device;
    return lies_there || std::ranges::any_of(row.replicas, [&](const Replica& r) {
             return r.device == device && r.copy != nullptr;
           });
  });
  PlacementReport report;
  device::Demand demand;
  for (const Chosen& c : storages) {
    demand.add(table.storages[c.tie].bytes(), device::MemoryKind::device);
  }
  BOWLINE_TRY(device->require_room(demand).at("While reserving memory for replicas."));
  for (const auto& [tie, name] : storages) {
    Storage& row = stage.storage(tie);
    const auto copy = [&]() -> Status {
      std::vector<std::byte> scratch;
      BOWLINE_TRY_ASSIGN(const Bytes bytes, read_all(row, scratch));
      BOWLINE_TRY_ASSIGN(Home there, make_home(device, bytes));
      const auto made = std::make_shared<Residency>(whole_form(row.dtype), row.generation,
                                                    std::move(there.block), nullptr);
      made->holds(row.version);
      std::erase_if(row.replicas, [&](const Replica& r) { return r.device == device; });
      row.replicas.push_back({device, made});
      row.copies.push_back(made);
      report.bytes += bytes.size();
      return {};
    };
    BOWLINE_TRY(copy().at(
        format("While replicating storage {} (\"{}\") on {}.", tie, name, device->info().name)));
    ++report.storages;
  }
  stage.commit();
  return report;
}

Result<PlacementReport> shard(Table& table,
                              std::span<const std::shared_ptr<device::OpenDevice>> devices,
                              std::string_view pattern, int busy) {
  BOWLINE_REQUIRE(!devices.empty(), "shard() needs at least one device.");
  for (size_t i = 0; i < devices.size(); ++i) {
    BOWLINE_REQUIRE(std::find(devices.begin(), devices.begin() + static_cast<ptrdiff_t>(i),
                              devices[i]) == devices.begin() + static_cast<ptrdiff_t>(i),
                    "Device {} is given twice.", devices[i]->info().name);
  }
  BOWLINE_TRY_ASSIGN(Stage stage, Stage::begin(table, busy, "shard()"));
  BOWLINE_TRY_ASSIGN(const std::vector<Chosen> storages, chosen_with_bytes(table, pattern));
  std::vector<device::Demand> demands(devices.size());
  for (const Chosen& c : storages) {
    const std::vector<uint64_t> parts = shard_bytes(table.storages[c.tie], devices.size());
    for (size_t i = 0; i < parts.size(); ++i) {
      demands[i].add(parts[i], device::MemoryKind::device);
    }
  }
  for (size_t i = 0; i < devices.size(); ++i) {
    BOWLINE_TRY(devices[i]->require_room(demands[i]).at("While reserving memory for shards."));
  }
  PlacementReport report;
  for (const auto& [tie, name] : storages) {
    Storage& row = stage.storage(tie);
    const auto split = [&]() -> Status {
      std::vector<std::byte> scratch;
      BOWLINE_TRY_ASSIGN(const Bytes bytes, read_all(row, scratch));
      BOWLINE_TRY_ASSIGN(row.home, make_shards(devices, row, bytes));
      report.bytes += bytes.size();
      return {};
    };
    BOWLINE_TRY(split().at(format("While splitting storage {} (\"{}\").", tie, name)));
    // Devices without a shard may read the storage too.
    row.replicas.clear();
    for (size_t i = row.home.shards.size(); i < devices.size(); ++i) {
      row.replicas.push_back({devices[i], nullptr});
    }
    if (row.home.shards.size() == 1) {  // not split
      row.home.block = row.home.shards[0];
      row.home.shards.clear();
    }
    ++row.generation;
    ++report.storages;
  }
  stage.commit();
  return report;
}

}  // namespace bowline::detail::params
