// Structures of extensions that are newer than the oldest Vulkan headers of a build (Debian 12).
// Names, values and layouts: the Vulkan specification, registry vk.xml.
#pragma once

#include <vulkan/vulkan_core.h>

namespace bowline::detail::vulkan {

// VK_KHR_cooperative_matrix
constexpr char kCooperativeMatrixExtension[] = "VK_KHR_cooperative_matrix";
constexpr auto kCooperativeMatrixFeaturesType = static_cast<VkStructureType>(1000506000);
constexpr auto kCooperativeMatrixType = static_cast<VkStructureType>(1000506001);
constexpr uint32_t kScopeWorkgroup = 2;
constexpr uint32_t kScopeSubgroup = 3;

struct CooperativeMatrixFeatures {
  VkStructureType sType;
  void* pNext;
  VkBool32 cooperativeMatrix;
  VkBool32 cooperativeMatrixRobustBufferAccess;
};

// Types of the elements of a cooperative matrix (VkComponentTypeKHR).
enum class Component : uint32_t { f16 = 0, f32 = 1, bf16 = 1000141000 };

struct CooperativeMatrixProperties {
  VkStructureType sType;
  void* pNext;
  uint32_t m, n, k;
  Component a, b, c, result;
  VkBool32 saturating;
  uint32_t scope;
};

using GetCooperativeMatrices = VkResult(VKAPI_PTR*)(VkPhysicalDevice device, uint32_t* count,
                                                    CooperativeMatrixProperties* properties);

// VK_NV_cooperative_matrix2
constexpr char kCooperativeMatrix2Extension[] = "VK_NV_cooperative_matrix2";
constexpr auto kCooperativeMatrix2FeaturesType = static_cast<VkStructureType>(1000593000);
constexpr auto kFlexibleMatrixType = static_cast<VkStructureType>(1000593001);
constexpr auto kCooperativeMatrix2PropertiesType = static_cast<VkStructureType>(1000593002);

struct CooperativeMatrix2Features {
  VkStructureType sType;
  void* pNext;
  VkBool32 cooperativeMatrixWorkgroupScope;
  VkBool32 cooperativeMatrixFlexibleDimensions;
  VkBool32 cooperativeMatrixReductions;
  VkBool32 cooperativeMatrixConversions;
  VkBool32 cooperativeMatrixPerElementOperations;
  VkBool32 cooperativeMatrixTensorAddressing;
  VkBool32 cooperativeMatrixBlockLoads;
};

struct CooperativeMatrix2Properties {
  VkStructureType sType;
  void* pNext;
  uint32_t cooperativeMatrixWorkgroupScopeMaxWorkgroupSize;
  uint32_t cooperativeMatrixFlexibleDimensionsMaxDimension;
  uint32_t cooperativeMatrixWorkgroupScopeReservedSharedMemory;
};

// The sides of the matrices are multiples of m, n and k.
struct FlexibleMatrixProperties {
  VkStructureType sType;
  void* pNext;
  uint32_t m, n, k;
  Component a, b, c, result;
  VkBool32 saturating;
  uint32_t scope;
  uint32_t invocations;  // of the workgroup, if the scope is the workgroup
};

using GetFlexibleMatrices = VkResult(VKAPI_PTR*)(VkPhysicalDevice device, uint32_t* count,
                                                 FlexibleMatrixProperties* properties);

// VK_KHR_shader_bfloat16
constexpr char kBfloat16Extension[] = "VK_KHR_shader_bfloat16";
constexpr auto kBfloat16FeaturesType = static_cast<VkStructureType>(1000141000);

struct Bfloat16Features {
  VkStructureType sType;
  void* pNext;
  VkBool32 shaderBFloat16Type;
  VkBool32 shaderBFloat16DotProduct;
  VkBool32 shaderBFloat16CooperativeMatrix;
};

// VK_KHR_portability_subset: drivers over another API, such as MoltenVK.
constexpr char kPortabilitySubsetExtension[] = "VK_KHR_portability_subset";

}  // namespace bowline::detail::vulkan
