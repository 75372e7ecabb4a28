#include "onnx/numbers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/bytes.h"
#include "base/status.h"
#include "onnx.pb.h"

namespace bowline::onnx {
namespace {

int64_t integer_at(DType t, const std::byte* at) {
  switch (t) {
    case DType::i8:
      return load<int8_t>(at);
    case DType::u8:
      return load<uint8_t>(at);
    case DType::i32:
      return load<int32_t>(at);
    case DType::i64:
      return load<int64_t>(at);
    case DType::boolean:
      return load<uint8_t>(at) != 0 ? 1 : 0;
    default:
      return 0;
  }
}

// Stores the low bytes of an integer (file and host are little endian).
void store(DType t, int64_t value, std::byte* at) {
  if (t == DType::boolean) {
    value = value != 0 ? 1 : 0;
  }
  std::memcpy(at, &value, size_of(t));
}

void store(DType t, double value, std::byte* at) {
  import::put_number(static_cast<float>(value), at, t);
}

int64_t truncated(double x) {
  constexpr double kMost = 9.2e18;
  return std::isnan(x) ? 0 : static_cast<int64_t>(std::clamp(std::trunc(x), -kMost, kMost));
}

int64_t truncated(int64_t x) { return x; }

ConstantTensor blank(DType dtype, std::vector<int64_t> shape, size_t elements) {
  ConstantTensor out;
  out.dtype = dtype;
  out.shape = std::move(shape);
  out.bytes.resize(elements * size_of(dtype));
  return out;
}

template <class T>
ConstantTensor of_values(DType dtype, std::vector<int64_t> shape, const std::vector<T>& values) {
  ConstantTensor out = blank(dtype, std::move(shape), values.size());
  std::byte* at = out.bytes.data();
  for (const T value : values) {
    onnx::is_float(dtype) ? store(dtype, static_cast<double>(value), at)
                          : store(dtype, truncated(value), at);
    at += size_of(dtype);
  }
  return out;
}

// ONNX names of dtypes, by their number.
constexpr std::string_view kNames[] = {
    "UNDEFINED",      "FLOAT",    "UINT8",        "INT8",           "UINT16",
    "INT16",          "INT32",    "INT64",        "STRING",         "BOOL",
    "FLOAT16",        "DOUBLE",   "UINT32",       "UINT64",         "COMPLEX64",
    "COMPLEX128",     "BFLOAT16", "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2",
    "FLOAT8E5M2FNUZ", "UINT4",    "INT4",         "FLOAT4E2M1",     "FLOAT8E8M0",
    "UINT2",          "INT2"};
struct Supported {
  std::string_view name;
  DType dtype;
};
constexpr Supported kSupported[] = {
    {"FLOAT", DType::f32},   {"UINT8", DType::u8},      {"INT8", DType::i8},
    {"INT32", DType::i32},   {"INT64", DType::i64},     {"BOOL", DType::boolean},
    {"FLOAT16", DType::f16}, {"BFLOAT16", DType::bf16},
};

// Copies to all of `to`. If `to` is empty, `from` may be null, which memcpy does not allow.
void fill(std::span<std::byte> to, const void* from) {
  if (!to.empty()) {
    std::memcpy(to.data(), from, to.size());
  }
}

// Reads the typed fields (one entry per element) of a tensor without raw bytes.
Status from_fields(const file::TensorProto& t, ConstantTensor& out) {
  const size_t n = out.elements();
  const size_t width = size_of(out.dtype);
  const auto require = [&](int entries) -> Status {
    BOWLINE_REQUIRE_CODE(static_cast<size_t>(entries) == n, Code::bad_file,
                         "The tensor has {} values, but its shape {} needs {}.", entries,
                         shape_text(out.shape), n);
    return {};
  };
  if (out.dtype == DType::f32) {
    BOWLINE_TRY(require(t.float_data_size()));
    fill(out.bytes, t.float_data().data());
    return {};
  }
  if (out.dtype == DType::i64) {
    BOWLINE_TRY(require(t.int64_data_size()));
    fill(out.bytes, t.int64_data().data());
    return {};
  }
  BOWLINE_TRY(require(t.int32_data_size()));
  for (size_t i = 0; i < n; ++i) {
    store(out.dtype, int64_t{t.int32_data(static_cast<int>(i))}, out.bytes.data() + i * width);
  }
  return {};
}

}  // namespace

ConstantTensor ConstantTensor::of(DType dtype, std::vector<int64_t> shape,
                                  const std::vector<int64_t>& values) {
  return of_values(dtype, std::move(shape), values);
}

ConstantTensor ConstantTensor::of(DType dtype, std::vector<int64_t> shape,
                                  const std::vector<double>& values) {
  return of_values(dtype, std::move(shape), values);
}

bool ConstantTensor::is_uniform() const {
  const std::string_view all = content();
  const size_t size = size_of(dtype);
  return all.size() <= size || all.substr(size) == all.substr(0, all.size() - size);
}

std::vector<int64_t> ConstantTensor::integers() const {
  std::vector<int64_t> out(elements());
  for (size_t i = 0; i < out.size(); ++i) {
    const std::byte* const at = bytes.data() + i * size_of(dtype);
    out[i] = onnx::is_float(dtype) ? truncated(double{import::number_at(at, dtype)})
                                   : integer_at(dtype, at);
  }
  return out;
}

std::vector<double> ConstantTensor::reals() const {
  std::vector<double> out(elements());
  for (size_t i = 0; i < out.size(); ++i) {
    const std::byte* const at = bytes.data() + i * size_of(dtype);
    out[i] = onnx::is_float(dtype) ? double{import::number_at(at, dtype)}
                                   : static_cast<double>(integer_at(dtype, at));
  }
  return out;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ","));
}

Result<int64_t> elements_of(const std::vector<int64_t>& shape) {
  BOWLINE_REQUIRE_CODE(shape.size() <= kMostRank, Code::unsupported,
                       "Shape {} has {} axes, more than {}.", shape_text(shape), shape.size(),
                       kMostRank);
  int64_t n = 1;  // skips dims of 0, so that the product cannot overflow in any part of the shape
  bool none = false;
  for (const int64_t dim : shape) {
    BOWLINE_REQUIRE_CODE(dim >= 0, Code::bad_file, "Shape {} has the negative dim {}.",
                         shape_text(shape), dim);
    none = none || dim == 0;
    BOWLINE_REQUIRE_CODE(dim == 0 || n <= kMostElements / dim, Code::bad_file,
                         "Shape {} has more than {} elements.", shape_text(shape), kMostElements);
    n *= dim == 0 ? 1 : dim;
  }
  return none ? 0 : n;
}

Result<DType> dtype_of(int32_t onnx) {
  const bool known = onnx > 0 && static_cast<size_t>(onnx) < std::size(kNames);
  BOWLINE_REQUIRE_CODE(known, Code::bad_file, "{} is not a dtype number of ONNX.", onnx);
  const auto* const found = std::ranges::find(kSupported, kNames[onnx], &Supported::name);
  BOWLINE_REQUIRE_CODE(found != std::end(kSupported), Code::unsupported,
                       "Tensors of dtype {} are not supported.", kNames[onnx]);
  return found->dtype;
}

Result<ConstantTensor> numbers_of(const file::TensorProto& tensor, const std::string& folder) {
  BOWLINE_TRY_ASSIGN(const DType dtype, dtype_of(tensor.data_type()));
  std::vector<int64_t> shape(tensor.dims().begin(), tensor.dims().end());
  BOWLINE_TRY_ASSIGN(const int64_t elements, elements_of(shape));
  const auto bytes = static_cast<uint64_t>(elements) * size_of(dtype);
  if (tensor.data_location() == 1) {
    ConstantTensor out;
    out.dtype = dtype;
    out.shape = std::move(shape);
    BOWLINE_TRY_ASSIGN(out.bytes, external_bytes(tensor, folder, bytes));
    return out;
  }
  // The allocations below are bounded by the file: it has as many bytes or entries.
  const bool raw = tensor.has_raw_data();
  BOWLINE_REQUIRE_CODE(!raw || tensor.raw_data().size() == bytes, Code::bad_file,
                       "The tensor has {} bytes, but its shape {} with dtype {} needs {}.",
                       tensor.raw_data().size(), shape_text(shape), name_of(dtype), bytes);
  const int64_t entries =
      int64_t{tensor.float_data_size()} + tensor.int32_data_size() + tensor.int64_data_size();
  BOWLINE_REQUIRE_CODE(raw || entries >= elements, Code::bad_file,
                       "The tensor has {} values, but its shape {} needs {}.", entries,
                       shape_text(shape), elements);
  ConstantTensor out = blank(dtype, std::move(shape), static_cast<size_t>(elements));
  if (!raw) {
    BOWLINE_TRY(from_fields(tensor, out));
    return out;
  }
  fill(out.bytes, tensor.raw_data().data());
  if (dtype == DType::boolean) {
    for (std::byte& b : out.bytes) {
      b = b == std::byte{0} ? b : std::byte{1};
    }
  }
  return out;
}

}  // namespace bowline::onnx
