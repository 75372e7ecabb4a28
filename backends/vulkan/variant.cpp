#include "variant.h"

#include <cstdlib>

#include "device/variants.h"

namespace bowline::detail::vulkan {
namespace {

constexpr device::KernelVariant<PhysicalDevice> kDeviceVariants[] = {
    // A software device runs the kernels of GPUs.
    {"gpu", [](PhysicalDevice& d) { d.runs_gpu_kernels = true; }},
    // Nothing but what every device with Vulkan 1.2 has.
    {"plain",
     [](PhysicalDevice& d) {
       d.runs_gpu_kernels = true;
       d.max_invocations = 128;
       d.max_shared_bytes = 16384;
       d.min_subgroup = d.max_subgroup = 0;
       d.has_16bit_storage = d.has_8bit_storage = false;
       d.f16_unit = d.bf16_unit = {};
     }},
    // The tiles of GPUs with many registers.
    {"many_registers",
     [](PhysicalDevice& d) {
       d.runs_gpu_kernels = true;
       d.properties.vendorID = kAmd;
     }},
    // Small products use the tiles of large products.
    {"large_tiles", [](PhysicalDevice& d) { d.many_groups = 1; }},
    // The k of every product has parts.
    {"many_parts", [](PhysicalDevice& d) { d.least_part = 1; }},
    // Inputs, outputs and per-step scalars have a twin in device memory.
    {"discrete", [](PhysicalDevice& d) { d.is_discrete = true; }},
    // No buffer has an address, and a launch can bind as many as Vulkan guarantees.
    {"descriptors",
     [](PhysicalDevice& d) {
       d.use_descriptors();
       d.max_bound_buffers = 4;
     }},
    // With descriptors, a launch has several buffers even if the program is small.
    {"separate_buffers", [](PhysicalDevice& d) { d.shares_blocks = false; }},
    {"no_matrix_units", [](PhysicalDevice& d) { d.f16_unit = d.bf16_unit = {}; }},
    // Off by default: on an H200, driver 580.159.04 ends the process when it compiles the kernel.
    {"workgroup_matrices", [](PhysicalDevice& d) { d.uses_workgroup_units = true; }},
};

}  // namespace

std::string apply_variants(PhysicalDevice* device) {
  const char* const variants = std::getenv("BOWLINE_VULKAN_VARIANT");
  device->variants = variants == nullptr ? "" : variants;
  std::string refusal =
      device::apply_variants<PhysicalDevice>("BOWLINE_VULKAN_VARIANT", kDeviceVariants, device);
  if (!device->uses_workgroup_units) {
    device->workgroup_units.clear();
  }
  return refusal;
}

}  // namespace bowline::detail::vulkan
