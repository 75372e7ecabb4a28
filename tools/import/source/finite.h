// Finds non-finite weights (NaN and infinity).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bowline_import.h"

namespace bowline::import {

// Lists tensors, for example "3 of the 64 values of a, 1 of the 8 values of b". Names at most 8
// tensors and summarizes the others.
std::string list_of(std::span<const NotFiniteTensor> tensors);
// A note for the user who imports a model with these tensors.
std::string note_of(std::span<const NotFiniteTensor> tensors);

// Counts non-finite values while tensors are read, so that no tensor is read twice. Thread-safe.
class FiniteCheck {
 public:
  // Returns `source` with a counter. The first complete read, from the first byte to the last, is
  // counted. `dtype` is the dtype of plain values. `encoding` is "plain" or a block
  // format such as "q4_k".
  ValueSource counted(std::string tensor, ValueSource source, uint64_t elements, DType dtype,
                      std::string_view encoding);
  // Non-finite values in the bytes that were read so far.
  std::vector<NotFiniteTensor> found() const;

 private:
  struct Count;
  std::vector<std::shared_ptr<Count>> counts_;
};

}  // namespace bowline::import
