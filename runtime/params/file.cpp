#include "params/file.h"

#include "params/home.h"

namespace bowline::detail::params {
namespace {

static_assert(kNoOwner == model::kNoOwner);

Storage read_storage(const model::StorageEntry& from) {
  Storage to;
  to.dtype = from.dtype;
  to.shape = Shape(from.shape);
  to.encoding = from.encoding;
  to.role = from.role;
  to.owner = from.owner;
  to.slot = from.slot;
  to.trainable = from.trainable;
  to.empty = from.empty;
  to.init = from.init;
  if (from.range) {
    to.home.file = from.range;
    to.version = 1;
    to.generation = 1;
  }
  return to;
}

model::StorageEntry describe_storage(const Storage& from, bool keep) {
  model::StorageEntry to;
  to.empty = from.empty || !keep;
  if (to.empty) {
    return to;
  }
  to.dtype = from.dtype;
  to.shape = from.shape.dims();
  to.encoding = from.encoding;
  to.role = from.role;
  to.owner = from.owner;
  to.slot = from.slot;
  to.trainable = from.trainable;
  to.init = from.init;
  return to;
}

}  // namespace

Table read_table(const model::Tables& file) {
  std::vector<Storage> storages;
  storages.reserve(file.storages());
  for (uint32_t tie = 0; tie < file.storages(); ++tie) {
    storages.push_back(read_storage(file.storage(tie)));
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
    out.storages.push_back(describe_storage(storage, keep[tie]));
    out.has_bytes.push_back(!out.storages.back().empty && storage.home.valid());
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
