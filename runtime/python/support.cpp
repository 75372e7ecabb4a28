#include "support.h"

#include <bit>

#include "buffers.h"

namespace bowline::python {

nb::dlpack::dtype dlpack_of(DType type) {
  switch (type) {
    case DType::f32:
      return nb::dtype<float>();
    case DType::f16:
      return {static_cast<uint8_t>(nb::dlpack::dtype_code::Float), 16, 1};
    case DType::bf16:
      return {static_cast<uint8_t>(nb::dlpack::dtype_code::Bfloat), 16, 1};
    case DType::i8:
      return nb::dtype<int8_t>();
    case DType::u8:
      return nb::dtype<uint8_t>();
    case DType::i32:
      return nb::dtype<int32_t>();
    case DType::i64:
      return nb::dtype<int64_t>();
    case DType::boolean:
      return nb::dtype<bool>();
  }
  return nb::dtype<float>();
}

namespace {

Failure bad_argument(std::string message) {
  return Failure{Status(Code::bad_argument, std::move(message))};
}

DType dtype_of(const nb::dlpack::dtype& from, const std::string& name) {
  for (int i = 0; i < kDTypes; ++i) {
    const auto type = static_cast<DType>(i);
    if (dlpack_of(type) == from) {
      return type;
    }
  }
  throw bad_argument(
      "The array \"" + name +
      "\" has a dtype that Bowline does not have. It has float32, float16, bfloat16, "
      "int8, uint8, int32, int64 and bool.");
}

}  // namespace

void check(const Status& status) {
  if (!status.ok()) {
    throw Failure{status};
  }
}

void check_signals() {
  if (PyErr_CheckSignals() != 0) {
    throw nb::python_error();
  }
}

nb::object object_of(const c::Json& json) {
  switch (json.type()) {
    case c::Json::value_t::object: {
      nb::dict out;
      for (const auto& [name, value] : json.items()) {
        out[name.c_str()] = object_of(value);
      }
      return out;
    }
    case c::Json::value_t::array: {
      nb::list out;
      for (const auto& value : json) {
        out.append(object_of(value));
      }
      return out;
    }
    case c::Json::value_t::string:
      return nb::cast(json.get_ref<const std::string&>());
    case c::Json::value_t::boolean:
      return nb::cast(json.get<bool>());
    case c::Json::value_t::number_integer:
      return nb::cast(json.get<int64_t>());
    case c::Json::value_t::number_unsigned:
      return nb::cast(json.get<uint64_t>());
    case c::Json::value_t::number_float:
      return nb::cast(json.get<double>());
    default:
      return nb::none();
  }
}

DType dtype_named(const std::string& name) {
  for (int i = 0; i < kDTypes; ++i) {
    if (name_of(static_cast<DType>(i)) == name) {
      return static_cast<DType>(i);
    }
  }
  throw bad_argument("There is no dtype \"" + name +
                     "\". The dtypes are f32, f16, bf16, i8, u8, i32, i64 and bool.");
}

std::optional<DType> optional_dtype(const std::optional<std::string>& name) {
  return name.has_value() ? std::optional(dtype_named(*name)) : std::nullopt;
}

Arrays::Arrays(const nb::dict& arrays) {
  for (const auto [name, array] : arrays) {
    add(nb::cast<std::string>(name), array);
  }
}

void Arrays::add(std::string name, nb::handle array, bool writable) {
  if (nb::isinstance<PyBuffer>(array)) {
    names_.push_back(std::make_unique<std::string>(std::move(name)));
    tensors_.push_back(nb::cast<const PyBuffer&>(array).tensor(*names_.back()));
    owners_.push_back(nb::borrow(array));
    return;
  }
  nb::ndarray<nb::ro> view;
  if (!nb::try_cast(array, view, false)) {
    throw bad_argument("\"" + name +
                       "\" is not an array. Pass a NumPy array or an object with DLPack.");
  }
  if (view.device_type() != nb::device::cpu::value) {
    throw bad_argument("The array \"" + name +
                       "\" is not in host memory. Copy it there, or to a DeviceBuffer.");
  }
  int64_t step = 1;
  for (size_t axis = view.ndim(); axis-- > 0;) {
    if (view.shape(axis) > 1 && view.stride(axis) != step) {
      throw bad_argument("The array \"" + name +
                         "\" is not row-major. Call numpy.ascontiguousarray() before.");
    }
    step *= static_cast<int64_t>(view.shape(axis));
  }
  if (writable) {
    nb::ndarray<> target;
    if (!nb::try_cast(array, target, false)) {
      throw bad_argument("The array \"" + name + "\" is read-only.");
    }
  }
  names_.push_back(std::make_unique<std::string>(std::move(name)));
  Tensor tensor;
  tensor.name = *names_.back();
  tensor.dtype = dtype_of(view.dtype(), *names_.back());
  std::vector<int64_t> shape;
  for (size_t axis = 0; axis < view.ndim(); ++axis) {
    shape.push_back(static_cast<int64_t>(view.shape(axis)));
  }
  tensor.shape = shape;
  tensor.data = const_cast<void*>(view.data());
  tensors_.push_back(tensor);
  owners_.push_back(nb::cast(view, nb::rv_policy::reference));
}

NewArray::NewArray(DType dtype, const TensorShape& shape) {
  const bool is_bf16 = dtype == DType::bf16;
  const DType kept = is_bf16 ? DType::f32 : dtype;
  size_t count = 1;
  std::vector<size_t> sizes;
  for (const int64_t size : shape) {
    sizes.push_back(static_cast<size_t>(size));
    count *= sizes.back();
  }
  auto* const data = new std::byte[std::max<size_t>(count * size_of(kept), 1)];
  const nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<std::byte*>(p); });
  const nb::ndarray<nb::numpy> array(data, sizes.size(), sizes.data(), owner, nullptr,
                                     dlpack_of(kept));
  array_ = nb::cast(array);
  values_ = data;
  bits_.resize(is_bf16 ? count : 0);
}

void NewArray::finish() {
  auto* const to = static_cast<float*>(values_);
  for (size_t i = 0; i < bits_.size(); ++i) {
    to[i] = std::bit_cast<float>(uint32_t{bits_[i]} << 16);
  }
}

std::vector<BoundDim> bound_dims(const std::map<std::string, int64_t>& dims) {
  std::vector<BoundDim> out;
  for (const auto& [name, value] : dims) {
    out.push_back({name, value});
  }
  return out;
}

std::vector<StepScalar> scalars_of(const nb::dict& scalars, std::vector<std::string>* names) {
  names->reserve(scalars.size());
  std::vector<StepScalar> out;
  for (const auto [name, value] : scalars) {
    names->push_back(nb::cast<std::string>(name));
    if (nb::isinstance<nb::float_>(value)) {
      out.emplace_back(names->back(), nb::cast<double>(value));
    } else {
      out.emplace_back(names->back(), nb::cast<int64_t>(value));
    }
  }
  return out;
}

}  // namespace bowline::python
