#include "common/float_values.h"

#include <algorithm>
#include <cstring>

#include "base/float16.h"
#include "common/flags.h"

namespace bowline::command {

FloatValues::FloatValues(std::string name, DType dtype, TensorShape shape)
    : name_(std::move(name)), dtype_(dtype), shape_(std::move(shape)) {
  for (const int64_t dim : shape_) {
    count_ *= static_cast<size_t>(dim);
  }
  bytes_.resize(count_ * size_of(dtype_));
}

Tensor FloatValues::tensor() { return {name_, dtype_, shape_, bytes_.data()}; }

std::vector<float> FloatValues::get() const {
  std::vector<float> out(count_);
  for (size_t i = 0; i < count_; ++i) {
    if (dtype_ == DType::f32) {
      std::memcpy(&out[i], bytes_.data() + i * sizeof(float), sizeof(float));
      continue;
    }
    uint16_t half = 0;
    std::memcpy(&half, bytes_.data() + i * sizeof(half), sizeof(half));
    out[i] = dtype_ == DType::f16 ? to_f32(f16{half}) : to_f32(bf16{half});
  }
  return out;
}

void FloatValues::set(std::span<const float> values) {
  for (size_t i = 0; i < count_; ++i) {
    if (dtype_ == DType::f32) {
      std::memcpy(bytes_.data() + i * sizeof(float), &values[i], sizeof(float));
      continue;
    }
    const uint16_t half =
        dtype_ == DType::f16 ? from_f32<f16>(values[i]).bits : from_f32<bf16>(values[i]).bits;
    std::memcpy(bytes_.data() + i * sizeof(half), &half, sizeof(half));
  }
}

DType dtype_in(const ModelInfo& model, std::string_view entry, std::string_view name) {
  const EntryPointInfo* const e = find_entry_point(model, entry);
  if (e == nullptr) {
    return DType::f32;
  }
  const auto input = std::ranges::find(e->inputs, name, &InputInfo::name);
  if (input != e->inputs.end()) {
    return input->dtype;
  }
  const auto output = std::ranges::find(e->outputs, name, &OutputInfo::name);
  return output == e->outputs.end() ? DType::f32 : output->dtype;
}

}  // namespace bowline::command
