// Devices.
#include "support.h"

namespace bowline::python {

using namespace nb::literals;

void add_devices(nb::module_& module) {
  module.def(
      "devices", [] { return report_of(Device::list()); },
      "Returns all devices of this machine as dicts: name, description, unusable and so on.");

  nb::class_<Device>(module, "Device", "An open device. Copies refer to the same device.")
      .def(
          "__init__",
          [](Device* self, const std::string& name, int threads, std::string cache_folder,
             uint64_t memory_budget, bool tf32) {
            DeviceOptions options;
            options.threads = threads;
            options.cache_folder = std::move(cache_folder);
            options.memory_budget = memory_budget;
            options.matmul_precision = tf32 ? MatmulPrecision::tf32 : MatmulPrecision::f32;
            new (self) Device(take(unlocked([&] { return Device::open(name, options); })));
          },
          "name"_a = "best", nb::kw_only(), "threads"_a = 0, "cache_folder"_a = "",
          "memory_budget"_a = 0, "tf32"_a = false,
          "Opens a device: a name from devices(), \"gpu\" (CUDA before Vulkan) or \"best\" (a GPU, "
          "else the CPU).\n\nthreads: threads of the CPU, 0 for one per core. memory_budget: limit "
          "of the memory in bytes, 0 for none.")
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
