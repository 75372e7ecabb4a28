#include "params/stage.h"

namespace bowline::params {

Status require_idle(int busy, std::string_view verb) {
  BOWLINE_REQUIRE(busy == 0, "The model is busy: {} would change storages that are read now.",
                  verb);
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

ParameterRow& Stage::parameter(uint32_t index) {
  return parameters_.try_emplace(index, target_.parameters[index]).first->second;
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
  ++row.generation;
}

void Stage::retire(uint32_t tie) {
  for (const auto& staged : parameters_) {
    if (staged.second.tie == tie) {
      return;
    }
  }
  // All that are not staged stay; the first one says so.
  for (const uint32_t parameter : target_.users(tie)) {
    if (!parameters_.contains(parameter)) {
      return;
    }
  }
  for (const uint32_t row : owned_by(tie)) {
    make_empty(row);
  }
  make_empty(tie);
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
}

}  // namespace bowline::params
