// What all parts of the Python module share: errors, arrays, and reports as Python objects.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bowline.h"
#include "bowline_text.h"
#include "c/json.h"

namespace bowline::python {

namespace nb = nanobind;

// An error of the library on its way to Python, where it becomes bowline.Error.
struct Failure {
  Status status;
  bool is_export = false;  // of DLPack: then it is a BufferError, too
};

// Throws Failure.
void check(const Status& status);
template <class T>
T take(Result<T> result) {
  check(result.status());
  return std::move(result).value();
}

// Raises KeyboardInterrupt after Ctrl-C.
void check_signals();

// Runs work of the library without the lock of the interpreter.
template <class F>
auto unlocked(F&& work) {
  const nb::gil_scoped_release released;
  return work();
}

// A report or description as dicts and lists, whose keys are the names of the C++ members.
nb::object object_of(const c::Json& json);
template <class T>
nb::object report_of(const T& value) {
  return object_of(c::json_of(value));
}

nb::dlpack::dtype dlpack_of(DType type);
// "f32", "bf16" and so on. Throws Failure for other names.
DType dtype_named(const std::string& name);
std::optional<DType> optional_dtype(const std::optional<std::string>& name);

// Arrays of a call: they and their names live as long as the call.
class Arrays {
 public:
  Arrays() = default;
  // From a dict of names and arrays: NumPy arrays, others with DLPack in host memory, or buffers of
  // a device. They are not copied. Throws Failure if an array is not contiguous and row-major, or
  // not in host memory.
  explicit Arrays(const nb::dict& arrays);

  void add(std::string name, nb::handle array, bool writable = false);
  const std::vector<Tensor>& tensors() const { return tensors_; }

 private:
  std::vector<std::unique_ptr<std::string>> names_;
  std::vector<nb::object> owners_;
  std::vector<Tensor> tensors_;
};

// A new NumPy array, and where the library writes its values. NumPy has no bf16: such an array has
// f32, and is filled by finish().
class NewArray {
 public:
  NewArray(DType dtype, const TensorShape& shape);
  const nb::object& array() const { return array_; }
  void* data() { return bits_.empty() ? values_ : bits_.data(); }
  // Call it when the library has written all values.
  void finish();

 private:
  nb::object array_;
  void* values_;
  std::vector<uint16_t> bits_;  // of bf16
};

// What a Python object of the module holds. A model keeps its devices.
struct PyModel {
  std::vector<Device> devices;
  Model model;
};

std::vector<BoundDim> bound_dims(const std::map<std::string, int64_t>& dims);
std::vector<StepScalar> scalars_of(const nb::dict& scalars, std::vector<std::string>* names);

void add_devices(nb::module_& module);
void add_buffers(nb::module_& module);
void add_models(nb::module_& module);
void add_graphs(nb::module_& module);
void add_imports(nb::module_& module);
void add_sessions(nb::module_& module);
void add_trainers(nb::module_& module);
void add_text(nb::module_& module);

}  // namespace bowline::python
