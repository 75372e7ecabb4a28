// The all-or-nothing frame of every verb: a copy of the table on which everything that can fail is
// done, then a commit that cannot.
#pragma once

#include "params/table.h"

namespace bowline::params {

// Errors  bad_argument: `busy` is not 0, so somebody reads the storages now.
Status require_idle(int busy, std::string_view verb);

class Stage {
 public:
  // Errors  those of require_idle().
  static Result<Stage> begin(Table& table, int busy, std::string_view verb);

  Table& table() { return copy_; }
  Storage& storage(uint32_t tie) { return copy_.storages[tie]; }
  // Rows that belong to `owner`.
  std::vector<uint32_t> owned_by(uint32_t owner) const;
  // Makes the row and those that it owns empty, if no parameter uses it any more.
  void retire(uint32_t tie);
  void commit() { target_ = std::move(copy_); }

 private:
  explicit Stage(Table& table) : target_(table), copy_(table) {}
  Table& target_;
  Table copy_;
};

}  // namespace bowline::params
