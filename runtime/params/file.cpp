#include "params/file.h"

#include "params/home.h"

namespace bowline::detail::params {
namespace {

Storage read_storage(const model::Tables& file, uint32_t tie) {
  Storage to;
  static_cast<model::StorageEntry&>(to) = file.storage(tie);
  to.home.file = file.range(tie);
  if (to.home.file) {
    to.version = 1;
    to.generation = 1;
  }
  return to;
}

}  // namespace

Table read_table(const model::Tables& file) {
  std::vector<Storage> storages;
  storages.reserve(file.storages());
  for (uint32_t tie = 0; tie < file.storages(); ++tie) {
    storages.push_back(read_storage(file, tie));
  }
  Table table(std::move(storages));
  table.reserve(0, file.parameters());
  for (uint32_t i = 0; i < file.parameters(); ++i) {
    model::ParameterEntry p = file.parameter(i);
    table.add({std::string(p.name), p.tie, std::move(p.view), std::string(p.target)});
  }
  return table;
}

void describe_table(const Table& table, const std::vector<bool>& keep, model::Description& out) {
  out.storages.reserve(table.storages.size());
  out.has_bytes.reserve(table.storages.size());
  out.parameters.reserve(table.parameters.size());
  for (size_t tie = 0; tie < table.storages.size(); ++tie) {
    const Storage& storage = table.storages[tie];
    model::StorageEntry& entry = out.storages.emplace_back();
    entry.empty = storage.empty || !keep[tie];
    if (!entry.empty) {
      entry = storage;
    }
    out.has_bytes.push_back(!entry.empty && storage.home.valid());
  }
  // Drop empty rows at the end.
  while (!out.storages.empty() && out.storages.back().empty) {
    out.storages.pop_back();
  }
  for (const ParameterRow& p : table.parameters) {
    out.parameters.push_back({p.name, p.tie, p.view, p.target});
  }
  out.bytes = [&table](uint32_t tie, uint64_t first, uint64_t count,
                       std::vector<std::byte>& scratch) {
    return read_run(table.storages[tie], first, count, scratch);
  };
}

}  // namespace bowline::detail::params
