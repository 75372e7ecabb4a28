// From structs of bowline_c.h to structs of the C++ headers and back.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "c/call.h"

namespace bowline::c {

// The enums of both interfaces have the same numbers.
template <class E>
constexpr bool same(E value, int32_t number) {
  return static_cast<int32_t>(value) == number;
}

// The size of a struct in version 1. A struct that has grown since gets its old size here.
template <class T>
constexpr size_t kFirstSize = sizeof(T);
template <>
inline constexpr size_t kFirstSize<bowline_tensor> = offsetof(bowline_tensor, buffer);
template <>
inline constexpr size_t kFirstSize<bowline_device_options> =
    offsetof(bowline_device_options, allocate);

// bad_argument: `size` is too small or absurd.
Status check_range(size_t size, size_t first, std::string_view type);
// The same. unsupported: a newer struct sets a member that this library does not know.
Status check_size(const void* from, size_t size, size_t first, size_t known, std::string_view type);

// Reads a struct of `size` bytes; its other members are those of `defaults`.
template <class T>
Result<T> read_sized(const void* from, size_t size, const T& defaults, std::string_view type) {
  BOWLINE_TRY(check_size(from, size, kFirstSize<T>, sizeof(T), type));
  T out = defaults;
  std::memcpy(&out, from, std::min(size, sizeof(T)));
  out.size = sizeof(T);
  return out;
}

// An optional struct of the caller. NULL: `defaults`.
template <class T>
Result<T> read(const T* from, const T& defaults, std::string_view type) {
  return from == nullptr ? Result<T>(defaults) : read_sized(from, from->size, defaults, type);
}
// A struct of the caller.
template <class T>
Result<T> read(const T* from, std::string_view type) {
  BOWLINE_TRY(given(from, type));
  return read_sized(from, from->size, T{}, type);
}

// bad_argument: write() would refuse `to`. For calls that change something before they write.
template <class T>
Status check_output(const T* to, std::string_view type) {
  BOWLINE_TRY(given(to, type));
  return check_range(to->size, kFirstSize<T>, type);
}

// Writes the members that the struct of the caller has. Members that this version of the library
// does not know become 0, so that a newer program can pass the struct back.
template <class T>
Status write(T value, T* to, std::string_view type) {
  BOWLINE_TRY(check_output(to, type));
  const size_t size = to->size;
  value.size = size;
  std::memset(static_cast<void*>(to), 0, size);
  std::memcpy(to, &value, std::min(size, sizeof(T)));
  return {};
}

// Reads an array of structs, and converts each one.
template <class T, class F>
auto read_list(const T* from, size_t count, std::string_view type, F&& convert) {
  using Value = std::remove_cvref_t<decltype(convert(T{}).value())>;
  std::vector<Value> out;
  using Out = Result<std::vector<Value>>;
  if (count == 0) {
    return Out(std::move(out));
  }
  if (Status status = given(from, type); !status.ok()) {
    return Out(std::move(status));
  }
  const auto* const first = reinterpret_cast<const std::byte*>(from);
  const size_t stride = from->size;
  for (size_t i = 0; i < count; ++i) {
    auto item = read_sized(first + i * stride, stride, T{}, type);
    if (!item.ok()) {
      return Out(std::move(item).status());
    }
    auto value = convert(item.value());
    if (!value.ok()) {
      return Out(std::move(value).status());
    }
    out.push_back(std::move(value).value());
  }
  return Out(std::move(out));
}

// The values of a list that may be NULL if it is empty.
template <class T>
Result<std::span<const T>> list_of(const T* from, size_t count, std::string_view name) {
  BOWLINE_REQUIRE(from != nullptr || count == 0, "\"{}\" is NULL.", name);
  return std::span<const T>(from, count);
}

// A text that must be given, and one that may be NULL.
Result<std::string_view> required(const char* from, std::string_view name);
inline std::string_view text_or(const char* from, std::string_view otherwise) {
  return from == nullptr ? otherwise : std::string_view(from);
}

Result<DeviceOptions> device_options_of(const bowline_device_options* from);
Result<DType> dtype_of(bowline_dtype from);
Result<std::optional<DType>> optional_dtype(bowline_dtype from);
Result<TensorShape> shape_of(const int64_t* dims, int32_t rank);
Result<Tensor> tensor_of(const bowline_tensor& from);
// A tensor that needs no name.
Result<Tensor> value_of(const bowline_tensor* from);
Result<std::vector<Tensor>> tensors(const bowline_tensor* from, size_t count,
                                    std::string_view name);
Result<std::vector<StepScalar>> scalars(const bowline_scalar* from, size_t count);
Result<std::vector<BoundDim>> bound_dims(const bowline_bound_dim* from, size_t count);
Result<BoundEntryPoint> entry_point_of(const bowline_entry_point& from);
Result<std::vector<GraphDim>> graph_dims(const bowline_graph_dim* from, size_t count);
Result<std::optional<View>> view_of(const bowline_view* from);
Result<Init> init_of(const bowline_init* from);
Result<Budget> budget_of(const bowline_budget* from, const Budget& otherwise);
Result<Schedule> schedule_of(const bowline_schedule* from);
Result<TrainOptions> train_options_of(const bowline_train_options* from);

bowline_budget c_struct(const Budget& from);
bowline_schedule c_struct(const Schedule& from);
bowline_train_precision c_struct(const TrainPrecision& from);
bowline_train_options c_struct(const TrainOptions& from);
bowline_memory_report c_struct(const MemoryReport& from);
bowline_counters c_struct(const Counters& from);
bowline_step_report c_struct(const StepReport& from);
bowline_progress c_struct(const Progress& from);

// An enum whose values are numbered from 0 to `last`.
template <class E>
Result<E> enum_of(int32_t from, E last, std::string_view name) {
  BOWLINE_REQUIRE(from >= 0 && from <= static_cast<int32_t>(last), "{} has no value {}.", name,
                  from);
  return static_cast<E>(from);
}

}  // namespace bowline::c
