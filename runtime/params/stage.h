// A Stage makes a verb all-or-nothing. Everything that can fail happens on copies of the rows that
// change. The commit moves the copies to the table and cannot fail. The cost of a verb depends on
// the rows that it changes, not on the size of the table.
#pragma once

#include <unordered_map>

#include "params/table.h"

namespace bowline::detail::params {

// Errors  bad_argument: `busy` is not 0: a run reads the storages now.
Status require_idle(int busy, std::string_view verb);

class Stage {
 public:
  // Errors  as require_idle().
  static Result<Stage> begin(Table& table, int busy, std::string_view verb);

  // The table before the verb.
  const Table& before() const { return target_; }
  // The row with the changes of this stage.
  const Storage& current(uint32_t tie) const;
  // A copy of the row to change. The reference is valid until the commit.
  Storage& storage(uint32_t tie);
  const ParameterRow& current_parameter(uint32_t index) const;
  // Makes the parameter use storage `tie` through `view`.
  void show(uint32_t index, uint32_t tie, View view);
  // Adds a row and returns its tie index.
  uint32_t add(Storage row);
  void set_device(std::shared_ptr<device::OpenDevice> device) { device_ = std::move(device); }
  void set_formats(std::vector<FormatGroup> formats) { formats_ = std::move(formats); }
  // The counters after the commit.
  ModelCounters& counters() { return counters_; }

  // Returns the rows that belong to `owner` and are not empty.
  std::vector<uint32_t> owned_by(uint32_t owner) const;
  // Makes one row empty.
  void make_empty(uint32_t tie);
  // If no parameter uses the row any more, makes it and its owned rows empty and returns true.
  bool retire(uint32_t tie);
  // Reserves memory, then moves all changes to the table. Only the reservation can fail.
  void commit();

 private:
  explicit Stage(Table& table)
      : target_(table),
        device_(table.device()),
        formats_(table.formats()),
        counters_(table.counters()) {}
  Table& target_;
  std::unordered_map<uint32_t, Storage> storages_;
  std::unordered_map<uint32_t, ParameterRow> parameters_;
  std::unordered_map<uint32_t, size_t> uses_;  // by storage: staged parameters that use it
  std::vector<Storage> added_;
  std::shared_ptr<device::OpenDevice> device_;
  std::vector<FormatGroup> formats_;
  ModelCounters counters_;
};

}  // namespace bowline::detail::params
