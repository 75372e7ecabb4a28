// Values of weights that are not finite: NaN and infinity.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bowline.h"

namespace bowline::import {

struct NotFinite {
  std::string tensor;
  uint64_t values = 0;    // that are not finite
  uint64_t elements = 0;  // of the tensor
};

// "3 of the 64 values of a, 1 of the 8 values of b": at most 8 tensors by name, and how many values
// the others have.
std::string list_of(std::span<const NotFinite> tensors);
// A note for whoever imports a model with such tensors.
std::string note_of(std::span<const NotFinite> tensors);

// Counts values of tensors while they are read, so that no tensor is read once more. Any thread.
class FiniteCheck {
 public:
  // Returns `source`. The first time that somebody reads it from its first byte to its last, its
  // values are counted. `dtype` is that of plain values; `encoding` is "plain", "q8_0" or "q4_0".
  ValueSource counted(std::string tensor, ValueSource source, uint64_t elements, DType dtype,
                      std::string_view encoding);
  // Of the bytes that were read so far.
  std::vector<NotFinite> found() const;

 private:
  struct Count;
  std::vector<std::shared_ptr<Count>> counts_;
};

}  // namespace bowline::import
