// Devices.
#include "support.h"

namespace bowline::python {

using namespace nb::literals;

namespace {

// The callback of a program in Python. Its exceptions are ignored, as in C++.
std::function<void(LogLevel, std::string_view)> log_of(const nb::object& log) {
  if (log.is_none()) {
    return {};
  }
  // The last copy may die without the lock of the interpreter.
  const std::shared_ptr<nb::object> held(new nb::object(log), [](nb::object* o) {
    const nb::gil_scoped_acquire locked;
    delete o;
  });
  return [held](LogLevel level, std::string_view message) {
    const nb::gil_scoped_acquire locked;
    try {
      (*held)(report_of(level), nb::str(message.data(), message.size()));
    } catch (...) {  // it holds Python objects, so it ends here, under the lock
    }
  };
}

}  // namespace

void add_devices(nb::module_& module) {
  module.def(
      "devices", [] { return report_of(Device::list()); },
      "Returns all devices of this machine as dicts: name, description, unusable and so on.");

  nb::class_<Device>(module, "Device", "An open device. Copies refer to the same device.")
      .def(
          "__init__",
          [](Device* self, const std::string& name, int threads, std::string cache_folder,
             uint64_t memory_budget, bool tf32, std::vector<int> cores, int nice, double max_load,
             const nb::object& log) {
            DeviceOptions options;
            options.cores = std::move(cores);
            options.nice = nice;
            options.max_load = max_load;
            options.log = log_of(log);
            options.threads = threads;
            options.cache_folder = std::move(cache_folder);
            options.memory_budget = memory_budget;
            options.matmul_precision = tf32 ? MatmulPrecision::tf32 : MatmulPrecision::f32;
            new (self) Device(take(unlocked([&] { return Device::open(name, options); })));
          },
          "name"_a = "best", nb::kw_only(), "threads"_a = 0, "cache_folder"_a = "",
          "memory_budget"_a = 0, "tf32"_a = false, "cores"_a = std::vector<int>{}, "nice"_a = 0,
          "max_load"_a = 1.0, "log"_a = nb::none(),
          "Opens a device: a name from devices(), \"gpu\" (CUDA before Vulkan) or \"best\" (a GPU, "
          "else the CPU).\n\nthreads: threads of the CPU, 0 for one per core. memory_budget: limit "
          "of the memory in bytes, 0 for none.\n\ncores, nice and max_load: the cores, the lowered "
          "priority, and the largest share of the time of the threads of the CPU. log: is called "
          "with \"info\" or \"warning\" and a message; its exceptions are ignored.")
      .def_prop_ro(
          "info", [](const Device& d) { return report_of(d.info()); },
          "Name, hardware and driver of the device.")
      .def_prop_ro(
          "name", [](const Device& d) { return d.info().name; },
          "Name of the device, for example \"cpu\".")
      .def(
          "counters", [](const Device& d) { return report_of(d.counters()); },
          "Returns what the device did: allocations, copies, submissions.")
      .def(
          "reset_counters", [](Device& d) { d.reset_counters(); },
          "Sets all counters to zero, except live_bytes.")
      .def("__repr__", [](const Device& d) { return "bowline.Device(\"" + d.info().name + "\")"; });
}

}  // namespace bowline::python
