// Buffers of devices, and their exchange through DLPack.
#include "buffers.h"

#include <cstring>

namespace bowline::python {

using namespace nb::literals;

Tensor PyBuffer::tensor(std::string_view name) const {
  Tensor out{name, dtype, {}};
  out.shape = std::span<const int64_t>(shape);
  out.buffer = &buffer;
  return out;
}

namespace {

Status unfit(std::string message) { return Status(Code::bad_argument, std::move(message)); }

std::string text_of(DType dtype, std::span<const int64_t> shape) {
  std::string out(name_of(dtype));
  for (const int64_t& size : shape) {
    out += (&size == shape.data() ? "[" : ",") + std::to_string(size);
  }
  return out + (shape.empty() ? "[]" : "]");
}

// The bytes of an array. Throws Failure if the shape is not one of a tensor.
uint64_t bytes_of(DType dtype, std::span<const int64_t> shape) {
  constexpr size_t kMostDims = 8;
  if (shape.size() > kMostDims) {
    throw Failure{unfit("The shape of the buffer has " + std::to_string(shape.size()) +
                        " dimensions. The most are 8.")};
  }
  uint64_t bytes = size_of(dtype);
  for (const int64_t size : shape) {
    const bool fits = size >= 0 && (bytes == 0 || static_cast<uint64_t>(size) <= INT64_MAX / bytes);
    if (!fits) {
      throw Failure{unfit("A buffer cannot be " + text_of(dtype, shape) + ": " +
                          (size < 0 ? "a size is negative." : "it has too many bytes."))};
    }
    bytes *= static_cast<uint64_t>(size);
  }
  return bytes;
}

PyBuffer new_buffer(const Device& device, DType dtype, std::vector<int64_t> shape) {
  const uint64_t bytes = bytes_of(dtype, shape);
  Result<HostBuffer> host = unlocked([&] { return create_host_buffer(device, bytes); });
  if (host.status().code() == Code::unsupported) {
    return {device, take(unlocked([&] { return DeviceBuffer::create(device, bytes); })), dtype,
            std::move(shape), nullptr};
  }
  HostBuffer made = take(std::move(host));
  return {device, std::move(made.buffer), dtype, std::move(shape), made.data};
}

void write_array(const PyBuffer& b, nb::handle array) {
  Arrays from;
  from.add("array", array);
  const Tensor& t = from.tensors()[0];
  if (t.buffer != nullptr) {
    throw Failure{unfit("The values are in a buffer. Read them first: write(other.read()).")};
  }
  const TensorShape shape = std::span<const int64_t>(b.shape);
  if (t.dtype != b.dtype || !(t.shape == shape)) {
    throw Failure{unfit("The array is " + text_of(t.dtype, {t.shape.begin(), t.shape.end()}) +
                        ", but the buffer is " + text_of(b.dtype, b.shape) + ".")};
  }
  const std::span values(static_cast<const std::byte*>(t.data), b.buffer.bytes());
  check(unlocked([&] { return b.buffer.write(0, values); }));
}

void read_into(const PyBuffer& b, void* to) {
  const std::span bytes(static_cast<std::byte*>(to), b.buffer.bytes());
  check(unlocked([&] { return b.buffer.read(0, bytes); }));
}

nb::object read_array(const PyBuffer& b) {
  NewArray out(b.dtype, std::span<const int64_t>(b.shape));
  read_into(b, out.data());
  out.finish();
  return out.array();
}

// ------------------------------------------------------------------------------------------ DLPack

constexpr int kHost = 1;  // kDLCPU

// An error that is a BufferError, as the Python array API demands.
Failure no_export(Code code, std::string message) {
  return {Status(code, std::move(message)), true};
}

std::pair<int, int> dlpack_device(const PyBuffer& b) {
  if (b.data == nullptr) {
    throw no_export(Code::unsupported,
                    "Device " + b.device.info().name +
                        " does not share its memory through DLPack. Call read(), or request a "
                        "copy in host memory with dl_device=(1, 0).");
  }
  return {kHost, 0};
}

// Sets DLPACK_FLAG_BITMASK_IS_COPIED in a capsule with a DLManagedTensorVersioned.
void set_copied(const nb::object& capsule) {
  struct Head {
    uint32_t version[2];
    void* context;
    void (*deleter)(void*);
    uint64_t flags;
  };
  constexpr const char* kVersioned = "dltensor_versioned";
  constexpr uint64_t kIsCopied = 2;
  if (PyCapsule_IsValid(capsule.ptr(), kVersioned) != 0) {
    static_cast<Head*>(PyCapsule_GetPointer(capsule.ptr(), kVersioned))->flags |= kIsCopied;
  }
}

nb::object dlpack(const PyBuffer& b, const nb::object& stream, const nb::object& max_version,
                  const std::optional<std::pair<int, int>>& dl_device,
                  const std::optional<bool>& copy) {
  if (!dl_device) {
    (void)dlpack_device(b);
  } else if (*dl_device != std::pair(kHost, 0)) {
    throw no_export(Code::unsupported, "A buffer of device " + b.device.info().name +
                                           " cannot be copied to another device. dl_device can be "
                                           "(1, 0), which is host memory.");
  }
  if (!stream.is_none()) {
    throw no_export(Code::bad_argument,
                    "Host memory has no streams. Pass stream=None to __dlpack__().");
  }
  const bool copies = b.data == nullptr || copy.value_or(false);
  if (copies && !copy.value_or(true)) {
    throw no_export(Code::unsupported,
                    "The buffer is in the memory of device " + b.device.info().name +
                        ", so host memory needs a copy. Pass copy=None or True.");
  }
  void* data = b.data;
  nb::capsule owner;
  if (copies) {
    auto values = std::make_unique<std::vector<std::byte>>(b.buffer.bytes());
    read_into(b, values->data());
    data = values->data();
    owner = nb::capsule(values.release(),
                        [](void* p) noexcept { delete static_cast<std::vector<std::byte>*>(p); });
  } else {
    owner = nb::capsule(new DeviceBuffer(b.buffer),
                        [](void* p) noexcept { delete static_cast<DeviceBuffer*>(p); });
  }
  const std::vector<size_t> shape(b.shape.begin(), b.shape.end());
  const nb::ndarray<nb::array_api> view(data, shape.size(), shape.data(), owner, nullptr,
                                        dlpack_of(b.dtype), kHost);
  nb::object capsule = nb::cast(view).attr("__dlpack__")("max_version"_a = max_version);
  if (copies) {
    set_copied(capsule);
  }
  return capsule;
}

}  // namespace

void add_buffers(nb::module_& module) {
  nb::class_<PyBuffer>(
      module, "DeviceBuffer",
      "An array in the memory of a device.\n\nPass it as an input of Session.run(), or as an "
      "output: the values then stay on the device. The output of one Session can be the input of "
      "another Session on the same Device. The buffer keeps its Device open.\n\nA buffer on the "
      "CPU shares its memory through DLPack: numpy.from_dlpack(buffer) and "
      "torch.from_dlpack(buffer) copy nothing, and keep the memory. Other devices only export "
      "copies, with __dlpack__(dl_device=(1, 0)).\n\nAny thread may use a buffer. write() and "
      "read() wait for the running call of the device. They do not wait for runs that "
      "Session.submit() started: call PendingRun.wait() before.")
      .def(
          "__init__",
          [](PyBuffer* self, const Device& device, std::vector<int64_t> shape,
             const std::string& dtype) {
            new (self) PyBuffer(new_buffer(device, dtype_named(dtype), std::move(shape)));
          },
          "device"_a, "shape"_a, "dtype"_a = "f32",
          "Allocates an array of zeros. dtype is f32, f16, bf16, i8, u8, i32, i64 or bool.")
      .def_static(
          "from_array",
          [](const Device& device, nb::handle array) {
            Arrays from;
            from.add("array", array);
            const Tensor& t = from.tensors()[0];
            PyBuffer out = new_buffer(device, t.dtype, {t.shape.begin(), t.shape.end()});
            write_array(out, array);
            return out;
          },
          "device"_a, "array"_a,
          "Allocates a buffer with a copy of an array: a NumPy array, or an object with DLPack in "
          "host memory.")
      .def("write", &write_array, "array"_a,
           "Copies an array to the buffer. It must have the dtype and the shape of the buffer.")
      .def("read", &read_array,
           "Returns the values as a new NumPy array. NumPy has no bf16; the array then has "
           "float32.")
      .def_prop_ro(
          "shape", [](const PyBuffer& b) { return nb::tuple(nb::cast(b.shape)); },
          "The shape, a tuple of ints.")
      .def_prop_ro(
          "dtype", [](const PyBuffer& b) { return std::string(name_of(b.dtype)); },
          "The name of the dtype, for example \"f32\".")
      .def_prop_ro(
          "bytes", [](const PyBuffer& b) { return b.buffer.bytes(); }, "The size in bytes.")
      .def_prop_ro(
          "device", [](const PyBuffer& b) { return b.device; }, "The Device.")
      .def("__dlpack_device__", &dlpack_device,
           "Returns (1, 0) for the CPU. Other devices raise an Error that is a BufferError.")
      .def("__dlpack__", &dlpack, nb::kw_only(), "stream"_a = nb::none(),
           "max_version"_a = nb::none(), "dl_device"_a = nb::none(), "copy"_a = nb::none(),
           "Exports the buffer as a DLPack capsule. Only dl_device=(1, 0) and copy=True copy "
           "values.")
      .def("__repr__", [](const PyBuffer& b) {
        return "bowline.DeviceBuffer(" + text_of(b.dtype, b.shape) + " on \"" +
               b.device.info().name + "\")";
      });
}

}  // namespace bowline::python
