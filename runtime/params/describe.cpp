#include "params/describe.h"

#include <unordered_map>

namespace bowline::detail::params {
namespace {

std::string where(const Home& home) {
  if (home.block) {
    return home.block->device().info().name;
  }
  if (!home.shards.empty()) {
    std::string out;
    for (const std::shared_ptr<device::Block>& shard : home.shards) {
      out += (out.empty() ? "" : " + ") + shard->device().info().name;
    }
    return out;
  }
  return home.host ? "host" : home.file ? "file" : home.source ? "source" : "nowhere";
}

Shape shown_shape(const ParameterRow& p, const Storage& s) {
  const Result<Shape> shape = view_shape(p.view, s.shape);
  return shape.ok() ? shape.value() : s.shape;
}

}  // namespace

StorageInfo describe_storage(const Table& table, uint32_t tie) {
  const Storage& s = table.storages[tie];
  StorageInfo out;
  out.tie = tie;
  out.empty = s.empty;
  if (s.empty) {
    return out;
  }
  out.dtype = s.dtype;
  out.shape = s.shape.dims();
  out.bytes = s.bytes();
  out.encoding = format("{}", s.encoding);
  out.role = s.role;
  if (s.owner != kNoOwner) {
    out.owner = static_cast<uint32_t>(s.owner);
  }
  out.slot = s.slot;
  out.trainable = s.trainable;
  out.version = s.version;
  out.generation = s.generation;
  out.where = where(s.home);
  for (const std::weak_ptr<Residency>& c : s.copies) {
    if (const std::shared_ptr<Residency> copy = c.lock()) {
      const bool replica = copy->form().op == Op::Invalid;
      out.copies.push_back({tie, copy->form().dtype,
                            replica ? std::string() : format("{}", copy->form().op),
                            copy->version(), copy->block()->device().info().name});
    }
  }
  if (s.home.file) {
    out.file_checksum = s.home.file->xxh3;
  }
  for (const FormatGroup& g : table.formats()) {
    if (g.whole && s.home.block && &s.home.block->whole() == g.whole.get()) {
      out.format = g.format->name;
    }
  }
  return out;
}

std::vector<ParameterInfo> describe_parameters(const Table& table) {
  std::vector<ParameterInfo> out;
  out.reserve(table.parameters.size());
  for (const ParameterRow& p : table.parameters) {
    const Storage& s = table.storages[p.tie];
    out.push_back(
        {p.name, p.tie, s.dtype, shown_shape(p, s).dims(), p.view, s.trainable, p.target});
  }
  return out;
}

std::vector<StorageInfo> describe_storages(const Table& table) {
  std::vector<StorageInfo> out;
  const auto rows = static_cast<uint32_t>(table.used_rows());
  out.reserve(rows);
  std::unordered_map<const void*, uint32_t> blocks;
  for (uint32_t tie = 0; tie < rows; ++tie) {
    out.push_back(describe_storage(table, tie));
    const Storage& s = table.storages[tie];
    // A storage without a block gets a number of its own.
    const void* const block = s.home.block ? static_cast<const void*>(&s.home.block->whole()) : &s;
    out.back().block = blocks.emplace(block, static_cast<uint32_t>(blocks.size())).first->second;
  }
  return out;
}

std::vector<TieInfo> describe_ties(const Table& table) {
  std::vector<TieInfo> out;
  for (uint32_t tie = 0; tie < table.storages.size(); ++tie) {
    TieInfo info;
    info.tie = tie;
    info.parameters = sorted(table.users(tie));
    if (info.parameters.size() < 2) {
      continue;
    }
    const Storage& s = table.storages[tie];
    info.bytes = s.bytes();
    uint64_t untied = 0;
    for (const uint32_t number : info.parameters) {
      untied += s.encoding.bytes(s.dtype, shown_shape(table.parameters[number], s));
    }
    info.saved_bytes = untied > info.bytes ? untied - info.bytes : 0;
    out.push_back(std::move(info));
  }
  return out;
}

}  // namespace bowline::detail::params
