// Offsets of the per-step scalars ("step words") in the step buffer.
#pragma once

#include <memory>
#include <vector>

#include "base/status.h"
#include "bowline.h"
#include "device/program.h"

namespace bowline::detail::plan {

// The per-step scalars of all segments that share a step buffer. A segment can read a scalar that
// an earlier segment wrote.
class StepLayout {
 public:
  struct Place {
    const StepWordInfo* word = nullptr;
    uint32_t offset = 0;
    bool written = false;   // an operator writes it
    bool is_count = false;  // it is the current size of a dynamic dimension
  };

  // Returns the offsets of the scalars of an operator, in the order of their declaration, for
  // Record::step. Scalars of the same name share one place. Call clash() first.
  std::vector<uint32_t> add(Op op);
  // Errors  bad_argument: a scalar of the operator has the name of a dynamic dimension.
  Status clash(Op op) const;

  // Adds the current size of a dynamic dimension, a u32, and returns its offset. The default is
  // `capacity`.
  // Errors  bad_argument: an operator has a scalar of this name.
  Result<uint32_t> add_count(const std::string& dim, int64_t capacity);

  // In the order of their offsets.
  std::span<const Place> places() const { return places_; }
  const Place* find(std::string_view name) const;
  // Size of the step buffer, including StepHead.
  uint64_t bytes() const { return bytes_; }

 private:
  struct CountWord {
    std::string name;
    StepWordInfo word;
  };
  size_t index_of(std::string_view name) const;
  size_t append(const StepWordInfo& word);

  std::vector<Place> places_;
  std::vector<std::shared_ptr<const CountWord>> counts_;  // copies of a layout share them
  uint32_t bytes_ = sizeof(device::StepHead);
};

}  // namespace bowline::detail::plan
