// The plan of what a session computes from parameters alone. It runs in front of the plan that reads its values, when a storage
// that it reads was written since.
#pragma once

#include "exec/segment.h"

namespace bowline::detail::exec {

class Hoisted {
 public:
  explicit Hoisted(Segment segment) : segment_(std::move(segment)) {}

  const Segment& segment() const { return segment_; }
  // Whether the arena has the values that follow from what the storages hold now.
  bool is_right(const params::Table& table) const;
  // They were computed from these storages.
  void computed(const params::Table& table);
  void forget() { versions_.reset(); }
  // Whether it reads a storage whose bytes lie elsewhere in the other table.
  bool differs(const params::Table& table, const params::Table& other) const;

 private:
  Segment segment_;
  // By storage of the plan, which may read none. Nothing: the arena does not have the values.
  std::optional<std::vector<uint64_t>> versions_;
};

}  // namespace bowline::detail::exec
