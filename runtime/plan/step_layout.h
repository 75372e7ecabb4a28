// Where the step words of operators lie in the step buffer.
#pragma once

#include <memory>
#include <vector>

#include "base/status.h"
#include "bowline.h"
#include "device/program.h"

namespace bowline::detail::plan {

// The words of all segments that share a step buffer: what one of them writes, the next one reads.
class StepLayout {
 public:
  struct Place {
    const StepWordInfo* word = nullptr;
    uint32_t offset = 0;
    bool written = false;   // by some operator
    bool is_count = false;  // the number of a counted dim
  };

  // The offsets of the words of an operator, in the order of its declaration: Record::step. A name
  // has one place. One that is the number of a counted dim too is refused by clash().
  std::vector<uint32_t> add(Op op);
  // Errors  bad_argument: a step word of the operator has the name of a counted dim.
  Status clash(Op op) const;

  // The offset of the number of a counted dim: a u32 that is the capacity unless a run says
  // another.
  // Errors  bad_argument: an operator has a step word of this name.
  Result<uint32_t> add_count(const std::string& dim, int64_t capacity);

  // In the order of their offsets.
  std::span<const Place> places() const { return places_; }
  const Place* find(std::string_view name) const;
  // Of the buffer, with its head.
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
