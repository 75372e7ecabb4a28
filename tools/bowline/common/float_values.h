// Floats of a model that has them in f32, f16 or bf16, for code that computes in f32.
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
  // Zeros. `dtype` is a dtype of floats.
  FloatValues(std::string name, DType dtype, TensorShape shape);

  // Points to the values.
  Tensor tensor();
  std::vector<float> get() const;
  // As many as there are; rounded to the dtype.
  void set(std::span<const float> values);

 private:
  std::string name_;
  DType dtype_;
  TensorShape shape_;
  size_t count_ = 1;
  std::vector<std::byte> bytes_;
};

// The dtype of an input or output of an entry point. f32 if there is none: who runs it is told so.
DType dtype_in(const ModelInfo& model, std::string_view entry, std::string_view name);

}  // namespace bowline::command
