// Arrays that own their elements.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/float16.h"
#include "bowline.h"

namespace bowline::command {

struct Array {
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;

  size_t elements() const { return bytes.size() / size_of(dtype); }
  Tensor tensor(std::string_view name) { return {name, dtype, shape, bytes.data()}; }
};

// Returns the size in bytes. Errors  bad_argument: it overflows.
Result<uint64_t> bytes_of(DType dtype, const TensorShape& shape);
// Creates an array of zeros. Errors  as bytes_of().
Result<Array> make_array(DType dtype, const TensorShape& shape);
// Creates an array of a float dtype. Rounds the values to the dtype.
Array float_array(DType dtype, const TensorShape& shape, std::span<const float> values);
// Returns the values of an array of a float dtype.
std::vector<float> floats_of(const Array& array);

// "[2,3]"
std::string shape_text(std::span<const int64_t> shape);

inline bool is_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

// Calls `use` with a zero of the C++ type of the dtype, such as float, f16 or int8_t.
template <class Use>
auto with_zero(DType dtype, const Use& use) {
  switch (dtype) {
    case DType::f32:
      return use(float{});
    case DType::f16:
      return use(f16{});
    case DType::bf16:
      return use(bf16{});
    case DType::i8:
      return use(int8_t{});
    case DType::u8:
      return use(uint8_t{});
    case DType::i32:
      return use(int32_t{});
    case DType::i64:
      return use(int64_t{});
    case DType::boolean:
      return use(bool{});
  }
  return use(float{});
}

// Element `i` of an array of dtype T.
template <class T>
T element(const Array& array, size_t i) {
  return load<T>(array.bytes.data() + i * sizeof(T));
}
template <class T>
void set_element(Array& array, size_t i, T value) {
  std::memcpy(array.bytes.data() + i * sizeof(T), &value, sizeof(T));
}

}  // namespace bowline::command
