// The plan that computes a session's hoisted values. It runs before the plan that reads them, if a
// storage that it reads was written since its last run.
#pragma once

#include "exec/segment.h"

namespace bowline::detail::exec {

class Hoisted {
 public:
  explicit Hoisted(Segment segment) : segment_(std::move(segment)) {}

  const Segment& segment() const { return segment_; }
  // True if the arena holds the values for the current contents of the storages.
  bool is_right(const params::Table& table) const;
  // Records that the values were computed from the current contents of `table`.
  void computed(const params::Table& table);
  void forget() { versions_.reset(); }
  // True if the plan reads a storage that is in another place in `other`.
  bool differs(const params::Table& table, const params::Table& other) const;

 private:
  Segment segment_;
  // Version of each storage of the plan at the last computation (the plan may read no storage).
  // nullopt: the arena does not hold the values.
  std::optional<std::vector<uint64_t>> versions_;
};

}  // namespace bowline::detail::exec
