// Where the step words of operators lie in the step buffer.
#pragma once

#include <vector>

#include "device/program.h"

namespace bowline::plan {

// The words of all segments that share a step buffer: what one of them writes, the next one reads.
class StepLayout {
 public:
  struct Place {
    const StepWordInfo* word = nullptr;
    uint32_t offset = 0;
    bool written = false;  // by some operator
  };

  // The offsets of the words of an operator, in the order of its declaration: Record::step. A name has one place.
  std::vector<uint32_t> add(Op op);

  // In the order of their offsets.
  std::span<const Place> places() const { return places_; }
  const Place* find(std::string_view name) const;
  // Of the buffer, with its head.
  uint64_t bytes() const { return bytes_; }

 private:
  size_t index_of(std::string_view name) const;
  std::vector<Place> places_;
  uint32_t bytes_ = sizeof(device::StepHead);
};

}  // namespace bowline::plan
