#include "params/stage.h"

namespace bowline::detail::params {

Status require_idle(int busy, std::string_view verb) {
  BOWLINE_REQUIRE(busy == 0, "The model is busy: {} would change storages that are in use.", verb);
  return {};
}

Result<Stage> Stage::begin(Table& table, int busy, std::string_view verb) {
  BOWLINE_TRY(require_idle(busy, verb));
  return Stage(table);
}

const Storage& Stage::current(uint32_t tie) const {
  const auto staged = storages_.find(tie);
  return staged == storages_.end() ? target_.storages[tie] : staged->second;
}

Storage& Stage::storage(uint32_t tie) {
  return storages_.try_emplace(tie, target_.storages[tie]).first->second;
}

const ParameterRow& Stage::current_parameter(uint32_t index) const {
  const auto staged = parameters_.find(index);
  return staged == parameters_.end() ? target_.parameters[index] : staged->second;
}

void Stage::show(uint32_t index, uint32_t tie, View view) {
  const auto [at, is_new] = parameters_.try_emplace(index, target_.parameters[index]);
  uses_[at->second.tie] -= is_new ? 0 : 1;
  ++uses_[tie];
  at->second.tie = tie;
  at->second.view = std::move(view);
}

uint32_t Stage::add(Storage row) {
  added_.push_back(std::move(row));
  return static_cast<uint32_t>(target_.storages.size() + added_.size() - 1);
}

std::vector<uint32_t> Stage::owned_by(uint32_t owner) const {
  std::vector<uint32_t> out = sorted(target_.owned(owner));
  std::erase_if(out, [&](uint32_t row) { return current(row).empty; });
  return out;
}

void Stage::make_empty(uint32_t tie) {
  Storage& row = storage(tie);
  row.empty = true;
  row.home = {};
  row.replicas.clear();
  ++row.generation;
}

bool Stage::retire(uint32_t tie) {
  if (const auto uses = uses_.find(tie); uses != uses_.end() && uses->second > 0) {
    return false;
  }
  // A user that is not staged keeps the storage.
  for (const uint32_t parameter : target_.users(tie)) {
    if (!parameters_.contains(parameter)) {
      return false;
    }
  }
  for (const uint32_t row : owned_by(tie)) {
    make_empty(row);
  }
  make_empty(tie);
  return true;
}

void Stage::commit() {
  target_.reserve(added_.size(), 0);
  for (auto& [tie, row] : storages_) {
    target_.put(tie, std::move(row));
  }
  for (Storage& row : added_) {
    target_.add(std::move(row));
  }
  for (auto& [index, row] : parameters_) {
    target_.show(index, row.tie, std::move(row.view));
  }
  target_.set_device(std::move(device_));
  target_.set_formats(std::move(formats_));
  target_.set_counters(counters_);
}

}  // namespace bowline::detail::params
