#include "params/home.h"
#include "params/stage.h"
#include "params/verbs.h"

namespace bowline::detail::params {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

// Returns the storage of `source` for each storage of `table`, or kNone if it is not copied.
Result<std::vector<uint32_t>> pair_storages(const Table& table, const Table& source) {
  for (const ParameterRow& from : source.parameters) {
    BOWLINE_REQUIRE(table.find(from.name).has_value(), "The model has no parameter \"{}\".",
                    from.name);
  }
  std::vector<uint32_t> out(table.storages.size(), kNone);
  std::vector<std::string_view> first(out.size());  // the parameter that set the pair
  for (const ParameterRow& to : table.parameters) {
    const Storage& storage = table.storages[to.tie];
    const std::optional<uint32_t> found = source.find(to.name);
    BOWLINE_REQUIRE(found.has_value(), "The other model has no parameter \"{}\".", to.name);
    const ParameterRow& from = source.parameters[*found];
    const Storage& other = source.storages[from.tie];
    BOWLINE_REQUIRE(other.dtype == storage.dtype && other.shape == storage.shape &&
                        other.encoding == storage.encoding && from.view == to.view,
                    "The storage of parameter \"{}\" is {}{} ({}) here and {}{} ({}) in the other "
                    "model, or the "
                    "parameter has another view.",
                    to.name, storage.dtype, storage.shape, storage.encoding, other.dtype,
                    other.shape, other.encoding);
    if (storage.role == Role::kv_cache) {
      continue;
    }
    BOWLINE_REQUIRE(other.home.valid(), "Parameter \"{}\" has no values in the other model.",
                    to.name);
    BOWLINE_REQUIRE(out[to.tie] == kNone || out[to.tie] == from.tie,
                    "Parameters \"{}\" and \"{}\" are tied here, but not in the other model.",
                    first[to.tie], to.name);
    out[to.tie] = from.tie;
    first[to.tie] = to.name;
  }
  return out;
}

// Copies on the device if both storages are on the same one.
Status copy_one(Storage& to, const Storage& from, const std::shared_ptr<device::OpenDevice>& device,
                std::vector<std::byte>& scratch) {
  const auto& block = to.home.block;
  if (block != nullptr && from.home.block != nullptr &&
      &block->device() == &from.home.block->device()) {
    BOWLINE_TRY(block->copy(0, *from.home.block, 0, to.bytes()));
    ++to.version;
    return {};
  }
  BOWLINE_TRY_ASSIGN(const Bytes bytes, read_all(from, scratch));
  if (block != nullptr) {
    BOWLINE_TRY(block->write(0, bytes));
    ++to.version;
    return {};
  }
  const bool is_sharded = !to.home.shards.empty();
  const bool stays = to.home.host != nullptr;
  BOWLINE_TRY_ASSIGN(Home home,
                     is_sharded || stays ? make_home_like(to, bytes) : make_home(device, bytes));
  if (stays) {
    to.home = std::move(home);
    ++to.version;
  } else {
    install(to, std::move(home));
  }
  return {};
}

}  // namespace

Status copy_values(Table& table, const Table& source, int busy) {
  BOWLINE_TRY_ASSIGN(Stage stage, Stage::begin(table, busy, "copy_values_from()"));
  BOWLINE_TRY_ASSIGN(const std::vector<uint32_t> pairs, pair_storages(table, source));
  std::vector<std::byte> scratch;
  const auto each = [&](const auto& copy) -> Status {
    for (uint32_t tie = 0; tie < pairs.size(); ++tie) {
      const bool in_place = pairs[tie] != kNone && table.storages[tie].home.block != nullptr;
      if (pairs[tie] != kNone) {
        BOWLINE_TRY(copy(tie, source.storages[pairs[tie]], in_place)
                        .at(format("While copying the values of storage {}.", tie)));
      }
    }
    return {};
  };
  // First what can fail without harm: new homes, and values that a file or a callback supplies.
  BOWLINE_TRY(each([&](uint32_t tie, const Storage& from, bool in_place) -> Status {
    if (!in_place) {
      return copy_one(stage.storage(tie), from, table.device(), scratch);
    }
    static_cast<void>(stage.storage(tie));
    return from.home.block != nullptr ? Status() : read_all(from, scratch).status();
  }));
  const Status copied = each([&](uint32_t tie, const Storage& from, bool in_place) -> Status {
    if (!in_place) {
      return {};
    }
    const Status written = copy_one(stage.storage(tie), from, table.device(), scratch);
    if (!written.ok()) {
      table.wrote(tie);  // perhaps in part
    }
    return Status(written);
  });
  if (!copied.ok()) {
    for (uint32_t tie = 0; tie < pairs.size(); ++tie) {
      if (table.storages[tie].home.block != nullptr &&
          stage.current(tie).version != table.storages[tie].version) {
        table.wrote(tie);
      }
    }
    return Status(copied);
  }
  stage.commit();
  return {};
}

}  // namespace bowline::detail::params
