// The all-or-nothing frame of every verb: copies of the rows that change, on which everything that
// can fail is done, then a commit that cannot. What a verb costs follows the rows that it changes,
// not the table.
#pragma once

#include <unordered_map>

#include "params/table.h"

namespace bowline::detail::params {

// Errors  bad_argument: `busy` is not 0, so somebody reads the storages now.
Status require_idle(int busy, std::string_view verb);

class Stage {
 public:
  // Errors  those of require_idle().
  static Result<Stage> begin(Table& table, int busy, std::string_view verb);

  // As it was before the verb.
  const Table& before() const { return target_; }
  // The row as it will be.
  const Storage& current(uint32_t tie) const;
  // The row as it will be, to be changed. The reference holds until the commit.
  Storage& storage(uint32_t tie);
  const ParameterRow& current_parameter(uint32_t index) const;
  // The parameter will show this of the storage.
  void show(uint32_t index, uint32_t tie, View view);
  // Adds a row and returns its tie index.
  uint32_t add(Storage row);
  void set_device(std::shared_ptr<device::OpenDevice> device) { device_ = std::move(device); }
  void set_formats(std::vector<FormatGroup> formats) { formats_ = std::move(formats); }
  // As they will be.
  ModelCounters& counters() { return counters_; }

  // Rows that belong to `owner`.
  std::vector<uint32_t> owned_by(uint32_t owner) const;
  // Makes one row empty.
  void make_empty(uint32_t tie);
  // Makes the row and those that it owns empty, if no parameter uses it any more. Returns whether
  // that is so.
  bool retire(uint32_t tie);
  // Reserves first; from there on nothing fails.
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
  std::unordered_map<uint32_t, size_t> uses_;  // of a storage by parameters_
  std::vector<Storage> added_;
  std::shared_ptr<device::OpenDevice> device_;
  std::vector<FormatGroup> formats_;
  ModelCounters counters_;
};

}  // namespace bowline::detail::params
