#include "params/table.h"

#include <algorithm>

namespace bowline::detail::params {

std::optional<DType> floor_dtype(Role role) {
  switch (role) {
    case Role::running_statistic:
    case Role::moment:
    case Role::master:
      return DType::f32;
    default:
      return std::nullopt;
  }
}

Table::Table(std::vector<Storage> rows) {
  reserve(rows.size(), 0);
  for (Storage& row : rows) {
    append(std::move(row));
  }
  for (uint32_t tie = 0; tie < storages.size(); ++tie) {
    enter(tie);
  }
}

void Table::reserve(size_t storage_count, size_t parameter_count) {
  reserve_more(storages.rows_, storage_count);
  owned_.reserve_items(storage_count);
  owned_.reserve_groups(storage_count);
  users_.reserve_groups(storage_count);
  reserve_more(parameters.rows_, parameter_count);
  users_.reserve_items(parameter_count);
  names_.reserve(parameter_count);
}

void Table::append(Storage storage) {
  storages.rows_.push_back(std::move(storage));
  owned_.add_item();
  owned_.add_group();
  users_.add_group();
}

void Table::enter(uint32_t tie) {
  const int32_t owner = storages[tie].owner;
  owned_.move(tie, owner == kNoOwner ? Groups::kNone : static_cast<uint32_t>(owner));
}

uint32_t Table::add(Storage storage) {
  const auto tie = static_cast<uint32_t>(storages.size());
  reserve(1, 0);
  append(std::move(storage));
  enter(tie);
  return tie;
}

uint32_t Table::add(ParameterRow row) {
  const auto number = static_cast<uint32_t>(parameters.size());
  reserve(0, 1);
  names_.add(row.name, number);
  users_.add_item();
  users_.move(number, row.tie);
  parameters.rows_.push_back(std::move(row));
  return number;
}

uint32_t Table::add(ParameterRow row, Storage storage) {
  reserve(1, 1);
  row.tie = add(std::move(storage));
  return add(std::move(row));
}

void Table::shrink(size_t storage_count, size_t parameter_count) {
  while (parameters.size() > parameter_count) {
    names_.remove(parameters.rows_.back().name, static_cast<uint32_t>(parameters.size() - 1));
    users_.remove_item();
    parameters.rows_.pop_back();
  }
  while (storages.size() > storage_count) {
    owned_.remove_item();
    owned_.remove_group();
    users_.remove_group();
    storages.rows_.pop_back();
  }
}

namespace {

void drop_old_replicas(Storage& row) {
  for (Replica& r : row.replicas) {
    if (r.copy != nullptr && r.copy->generation() != row.generation) {
      r.copy.reset();
    }
  }
}

}  // namespace

void Table::put(uint32_t tie, Storage row) {
  drop_old_replicas(row);
  storages.rows_[tie] = std::move(row);
  enter(tie);
}

void Table::set_home(uint32_t tie, Home home) {
  storages.rows_[tie].home = std::move(home);
  storages.rows_[tie].copies.clear();
  storages.rows_[tie].replicas.clear();
}

void Table::add_copy(uint32_t tie, const std::shared_ptr<Residency>& copy) {
  if (copy->form().op == Op::Invalid) {
    for (Replica& r : storages.rows_[tie].replicas) {
      if (r.device.get() == &copy->block()->device()) {
        r.copy = copy;
      }
    }
  }
  std::vector<std::weak_ptr<Residency>>& copies = storages.rows_[tie].copies;
  std::erase_if(copies, [](const std::weak_ptr<Residency>& c) { return c.expired(); });
  copies.push_back(copy);
}

std::shared_ptr<Residency> Table::copy_of(uint32_t tie, const Form& form,
                                          const device::OpenDevice& device) const {
  const Storage& row = storages[tie];
  for (const std::weak_ptr<Residency>& c : row.copies) {
    std::shared_ptr<Residency> copy = c.lock();
    if (copy != nullptr && copy->generation() == row.generation && copy->form() == form &&
        &copy->block()->device() == &device) {
      return copy;
    }
  }
  return nullptr;
}

bool Table::is_readable_on(uint32_t tie, const device::OpenDevice& device) const {
  const Storage& row = storages[tie];
  const auto is_there = [&](const std::shared_ptr<device::Block>& block) {
    return block != nullptr && &block->device() == &device;
  };
  return is_there(row.home.block) || std::ranges::any_of(row.home.shards, is_there) ||
         std::ranges::any_of(row.replicas,
                             [&](const Replica& r) { return r.device.get() == &device; });
}

void Table::wrote(uint32_t tie) { ++storages.rows_[tie].version; }
void Table::changed(uint32_t tie) {
  ++storages.rows_[tie].generation;
  drop_old_replicas(storages.rows_[tie]);
}

void Table::make_empty(uint32_t tie) {
  Storage& row = storages.rows_[tie];
  row.generation += row.empty ? 0 : 1;
  row.empty = true;
  row.home = {};
  row.replicas.clear();
}

void Table::show(uint32_t parameter, uint32_t tie, View view) {
  ParameterRow& row = parameters.rows_[parameter];
  row.tie = tie;
  row.view = std::move(view);
  users_.move(parameter, tie);
}

size_t Table::used_rows() const {
  size_t rows = storages.size();
  while (rows > 0 && storages[rows - 1].empty) {
    --rows;
  }
  return rows;
}

std::optional<uint32_t> Table::find(std::string_view name) const {
  const uint32_t number =
      names_.find(name, [&](uint32_t n) -> std::string_view { return parameters[n].name; });
  return number == Names::kNone ? std::nullopt : std::optional(number);
}

Result<uint32_t> Table::require(std::string_view name) const {
  const auto found = find(name);
  BOWLINE_REQUIRE(found.has_value(), "There is no parameter \"{}\" among the {} of the model.",
                  name, parameters.size());
  return *found;
}

// At most one such row is not empty.
std::optional<uint32_t> Table::owned(uint32_t owner, Role role, uint32_t slot) const {
  for (const uint32_t row : owned(owner)) {
    const Storage& s = storages[row];
    if (!s.empty && s.role == role && s.slot == slot) {
      return row;
    }
  }
  return std::nullopt;
}

}  // namespace bowline::detail::params
