#include "matrix_units.h"

namespace bowline::detail::vulkan {
namespace {

// Of matmul_units.comp: K per tile. The sides of a matrix are 8 to 16 and divide it.
constexpr uint32_t kTileDepth = 32;
constexpr uint32_t kLargestSide = 16;
constexpr uint32_t kLeastSide = 8;

struct Features {
  bool matrices = false;
  bool bf16 = false;
  bool f16 = false;
  bool workgroups = false;
};

Features features_of(const Loader& loader, const Extensions& extensions, VkPhysicalDevice handle) {
  auto vulkan12 = typed<VkPhysicalDeviceVulkan12Features>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES);
  auto matrices = typed<CooperativeMatrixFeatures>(kCooperativeMatrixFeaturesType);
  auto bf16 = typed<Bfloat16Features>(kBfloat16FeaturesType);
  auto of_workgroups = typed<CooperativeMatrix2Features>(kCooperativeMatrix2FeaturesType);
  Chain chain;
  chain.add(&vulkan12);
  chain.add(&of_workgroups, has_extension(extensions, kCooperativeMatrix2Extension));
  chain.add(&matrices, has_extension(extensions, kCooperativeMatrixExtension));
  chain.add(&bf16, has_extension(extensions, kBfloat16Extension));
  auto all = typed<VkPhysicalDeviceFeatures2>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2);
  all.pNext = chain.first();
  loader.vkGetPhysicalDeviceFeatures2(handle, &all);
  return {matrices.cooperativeMatrix == VK_TRUE && vulkan12.vulkanMemoryModel == VK_TRUE,
          bf16.shaderBFloat16Type == VK_TRUE && bf16.shaderBFloat16CooperativeMatrix == VK_TRUE,
          vulkan12.shaderFloat16 == VK_TRUE,
          of_workgroups.cooperativeMatrixWorkgroupScope == VK_TRUE &&
              of_workgroups.cooperativeMatrixFlexibleDimensions == VK_TRUE};
}

bool fits(uint32_t side) {
  return side >= kLeastSide && side <= kLargestSide && kTileDepth % side == 0;
}

// The largest product of matrices of this type with sums in f32.
MatrixUnit largest(const std::vector<CooperativeMatrixProperties>& all, Component type) {
  MatrixUnit best;
  for (const CooperativeMatrixProperties& p : all) {
    const bool usable = p.scope == kScopeSubgroup && p.saturating == VK_FALSE && p.a == type &&
                        p.b == type && p.c == Component::f32 && p.result == Component::f32;
    if (usable && fits(p.m) && fits(p.n) && fits(p.k) &&
        p.m * p.n * p.k > best.m * best.n * best.k) {
      best = {p.m, p.n, p.k};
    }
  }
  return best;
}

// Sets what a device says about the matrices of workgroups.
void read_workgroup_units(const Loader& loader, PhysicalDevice* device) {
  if (loader.get_flexible_matrices == nullptr) {
    return;
  }
  const auto all = listed<FlexibleMatrixProperties>(kFlexibleMatrixType, [&](auto... to) {
    return loader.get_flexible_matrices(device->handle, to...);
  });
  if (all.empty()) {
    return;
  }
  auto limits = typed<CooperativeMatrix2Properties>(kCooperativeMatrix2PropertiesType);
  auto properties =
      typed<VkPhysicalDeviceProperties2>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2);
  properties.pNext = &limits;
  loader.vkGetPhysicalDeviceProperties2(device->handle, &properties);
  device->max_matrix_side = limits.cooperativeMatrixFlexibleDimensionsMaxDimension;
  device->reserved_shared_bytes = limits.cooperativeMatrixWorkgroupScopeReservedSharedMemory;
  for (const FlexibleMatrixProperties& p : all) {
    const bool is_small = p.a == Component::f16 || p.a == Component::bf16;
    const bool usable = p.scope == kScopeWorkgroup && p.saturating == VK_FALSE && is_small &&
                        p.b == p.a && p.c == Component::f32 && p.result == Component::f32 &&
                        p.m != 0 && p.n != 0 && p.k != 0 &&
                        p.invocations <= limits.cooperativeMatrixWorkgroupScopeMaxWorkgroupSize;
    if (usable) {
      device->workgroup_units.push_back(
          {p.a == Component::f16 ? DType::f16 : DType::bf16, p.invocations, {p.m, p.n, p.k}});
    }
  }
}

// Drivers also list products that they compute without matrix units. AMD's own driver does so for
// all GPUs, but only those with matrix units (RDNA3 and newer) have dot products of mixed signs.
// Mesa does so for all Intel GPUs. Arc A has matrix units, but is slower with these products
// (ggml-org/llama.cpp#24404). So only Xe2 and newer count; they have no subgroups of 8.
bool has_hardware(const Loader& loader, const Extensions& extensions,
                  const PhysicalDevice& device) {
  constexpr uint32_t kSmallestOfXe2 = 16;
  auto dot = typed<VkPhysicalDeviceShaderIntegerDotProductProperties>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_PROPERTIES);
  Chain chain;
  chain.add(&dot, has_extension(extensions, VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME));
  auto all = typed<VkPhysicalDeviceProperties2>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2);
  all.pNext = chain.first();
  loader.vkGetPhysicalDeviceProperties2(device.handle, &all);
  switch (device.vendor()) {
    case kAmd:
      return dot.integerDotProduct4x8BitPackedMixedSignednessAccelerated == VK_TRUE;
    case kIntel:
      return device.min_subgroup >= kSmallestOfXe2;
    default:
      return device.vendor() == kNvidia;
  }
}

}  // namespace

void read_matrix_units(const Loader& loader, const Extensions& extensions, PhysicalDevice* device) {
  // A subgroup has a part of the tile, so it must be whole. lavapipe of Mesa 26.1 multiplies 8 x 8
  // matrices with any number of lanes, but only with 8 lanes correctly.
  constexpr uint32_t kLanesOfLavapipe = 8;
  if (loader.get_matrices == nullptr || device->max_subgroup == 0 || !device->has_16bit_storage ||
      (device->is_software() && device->subgroup_size != kLanesOfLavapipe)) {
    return;
  }
  const Features features = features_of(loader, extensions, device->handle);
  if (!features.matrices) {
    return;
  }
  const auto all = listed<CooperativeMatrixProperties>(kCooperativeMatrixType, [&](auto... to) {
    return loader.get_matrices(device->handle, to...);
  });
  if (all.empty()) {
    return;
  }
  if (features.f16) {
    device->f16_unit = largest(all, Component::f16);
  }
  if (features.bf16) {
    device->bf16_unit = largest(all, Component::bf16);
  }
  if (features.workgroups) {
    read_workgroup_units(loader, device);
  }
  device->has_matrix_hardware = has_hardware(loader, extensions, *device);
}

}  // namespace bowline::detail::vulkan
