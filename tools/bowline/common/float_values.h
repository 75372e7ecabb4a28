// Converts values of a model between f32 and its float dtype (f32, f16 or bf16).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bowline.h"

namespace bowline::command {

inline bool is_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

class FloatValues {
 public:
  // Creates zeros. `dtype` must be a float dtype.
  FloatValues(std::string name, DType dtype, TensorShape shape);

  // Points to the values.
  Tensor tensor();
  std::vector<float> get() const;
  // Sets all values, rounded to the dtype. `values` has one value per element.
  void set(std::span<const float> values);

 private:
  std::string name_;
  DType dtype_;
  TensorShape shape_;
  size_t count_ = 1;
  std::vector<std::byte> bytes_;
};

// Returns the dtype of an input or output of an entry point. f32 if it does not exist: running the
// entry point then reports the error.
DType dtype_in(const ModelInfo& model, std::string_view entry, std::string_view name);

}  // namespace bowline::command
