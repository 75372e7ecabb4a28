// Vulkan devices without optional features that kernels might use: features of the driver are
// hidden and not enabled.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>

#include "bindings.h"
#include "conformance/suite.h"
#include "float_controls.h"
#include "need.h"
#include "open_device.h"
#include "packed_shaders.h"
#include "spirv.h"
#include "ties/seed_models.h"
#include "ties/test_devices.h"
#include "vulkan_shaders.h"
#include "word_elements.h"

namespace bowline::detail::vulkan {
namespace {

using test::must;

using Hide = void (*)(PhysicalDevice&);

std::shared_ptr<device::OpenDevice> open_without(Hide hide) {
  DeviceInfo info;
  info.name = "vulkan:0";
  DeviceOptions options;
  options.cache_folder.clear();
  return std::make_shared<device::OpenDevice>(std::move(info),
                                              must(OpenVulkan::open(0, options, hide)), 0);
}

std::set<uint32_t> capabilities_of(std::span<const uint32_t> module) {
  std::set<uint32_t> out;
  spirv::for_each_instruction(module, [&](spirv::Instruction i) {
    if (spirv::operation(i) == spirv::kCapability) {
      out.insert(i[1]);
    }
  });
  return out;
}

// Such modules run only on devices with VK_KHR_cooperative_matrix, which have small elements and
// compute with them. The validator of Debian 12 does not know the extension.
bool uses_matrix_units(std::span<const uint32_t> module) {
  return capabilities_of(module).contains(spirv::kCooperativeMatrix);
}

// The numbers of SPV_KHR_cooperative_matrix. The order of operands is checked too, because a driver
// may take any constant as a layout.
TEST(VulkanShaders, MatrixUnitsAreUsedThroughTheExtensionOfKhronos) {
  enum : uint32_t { kType = 4456, kMatrixLoad, kMatrixStore, kMultiply, kFirstOfNv = 5358 };
  enum : uint32_t { kTypeFloat = 22, kBfloat16 = 5116, kBfloat16Matrix = 5118 };
  struct Kernel {
    uint32_t number;
    bool has_bf16;
    bool is_of_workgroup;
  };
  for (const Kernel& kernel : {Kernel{shader::matmul_units_store.f16, false, false},
                               {shader::matmul_units_store.bf16, true, false},
                               {shader::matmul_units_follow.f16, false, false},
                               {shader::matmul_units_follow.bf16, true, false},
                               {shader::matmul_workgroup.f16, false, true},
                               {shader::matmul_workgroup.bf16, true, true}}) {
    const std::vector<uint32_t> module = shader_module(kernel.number);
    std::map<uint32_t, uint32_t> constants, use_of, type_of;
    size_t products = 0;
    spirv::for_each_instruction(module, [&](spirv::Instruction i) {
      const uint32_t op = spirv::operation(i);
      EXPECT_TRUE(op < kFirstOfNv || op > kFirstOfNv + 4) << op;
      if (op == spirv::kConstant) {
        constants[i[2]] = i[3];
      } else if (op == kType) {
        use_of[i[1]] = constants.at(i[6]);
        EXPECT_EQ(constants.at(i[3]), kernel.is_of_workgroup ? kScopeWorkgroup : kScopeSubgroup);
      } else if (op == kTypeFloat && i[2] == 16) {
        EXPECT_EQ(i.size(), kernel.has_bf16 ? 4u : 3u);
      } else if (op == kMatrixLoad) {
        EXPECT_LE(constants.at(i[4]), 1u);
      } else if (op == kMatrixStore) {
        EXPECT_LE(constants.at(i[3]), 1u);
      } else if (op == kMultiply) {
        ++products;
        for (const uint32_t operand : {0, 1, 2}) {
          EXPECT_EQ(use_of.at(type_of.at(i[3 + operand])), operand);
        }
      }
      if (i.size() > 2 && use_of.contains(i[1]) && op != kType) {
        type_of[i[2]] = i[1];
      }
    });
    EXPECT_EQ(products, 1u);
    EXPECT_EQ(capabilities_of(module).contains(kBfloat16), kernel.has_bf16);
    EXPECT_EQ(capabilities_of(module).contains(kBfloat16Matrix), kernel.has_bf16);
  }
}

// What follows a product makes NVIDIA's compiler give slow code, even if it never runs.
TEST(VulkanShaders, ProductsThatNothingFollowsHaveNoCodeForIt) {
  const auto follows = [](uint32_t number) {
    bool has_constant = false;
    spirv::for_each_instruction(shader_module(number), [&](spirv::Instruction i) {
      constexpr uint32_t kDecorate = 71, kNumberOfConstant = 1, kFollow = 4;
      has_constant = has_constant || (spirv::operation(i) == kDecorate &&
                                      i[2] == kNumberOfConstant && i[3] == kFollow);
    });
    return has_constant;
  };
  EXPECT_TRUE(follows(shader::matmul_units_follow.f16));
  EXPECT_FALSE(follows(shader::matmul_units_store.f16));
  EXPECT_FALSE(follows(shader::matmul_units_store.bf16));
}

// The SPIR-V capabilities that the device enables: 16-bit and 8-bit values are loaded and stored,
// but not computed with.
TEST(VulkanShaders, NeedNoArithmeticOf16Bits) {
  enum : uint32_t { kShader = 1, kInt64 = 11 };
  constexpr uint32_t kFirstGroup = 61, kLastGroup = 68;  // GroupNonUniform and its parts
  std::set<uint32_t> seen;
  for (uint32_t i = 0; i < kShaderCount; ++i) {
    if (!uses_matrix_units(shader_module(i))) {
      seen.merge(capabilities_of(shader_module(i)));
    }
  }
  EXPECT_TRUE(seen.contains(spirv::kStorageBuffer16BitAccess) && seen.contains(kShader))
      << "the modules are read";
  std::erase_if(seen, [](uint32_t c) {
    return c == kShader || c == kInt64 || c == spirv::kPhysicalStorageBufferAddresses ||
           c == spirv::kStorageBuffer16BitAccess || c == spirv::kStorageBuffer8BitAccess ||
           (c >= kFirstGroup && c <= kLastGroup);
  });
  EXPECT_TRUE(seen.empty()) << "capability " << *seen.begin();
}

// If the module is not valid, spirv-val prints the reason.
bool is_valid(std::span<const uint32_t> module) {
  FILE* validator = popen(BOWLINE_SPIRV_VAL " --target-env vulkan1.2 --scalar-block-layout -", "w");
  const bool written =
      validator != nullptr &&
      std::fwrite(module.data(), sizeof(uint32_t), module.size(), validator) == module.size();
  return validator != nullptr && pclose(validator) == 0 && written;
}

// The modules are valid and do not need the feature. Modules without small elements stay unchanged.
TEST(VulkanShaders, InWordsNeedNoAccessToSmallerElements) {
  for (uint32_t i = 0; i < kShaderCount; ++i) {
    const std::vector<uint32_t> module = shader_module(i);
    if (uses_matrix_units(module)) {
      continue;
    }
    const std::set<uint32_t> needed = capabilities_of(module);
    const bool has_16 = needed.contains(spirv::kStorageBuffer16BitAccess);
    const bool has_8 = needed.contains(spirv::kStorageBuffer8BitAccess);
    for (const auto& [lacks_16, lacks_8] : {std::pair(true, false), {false, true}, {true, true}}) {
      const std::vector<uint32_t> words = elements_in_words(module, {lacks_16, lacks_8});
      const std::set<uint32_t> left = capabilities_of(words);
      EXPECT_EQ(left.contains(spirv::kStorageBuffer16BitAccess), has_16 && !lacks_16);
      EXPECT_EQ(left.contains(spirv::kStorageBuffer8BitAccess), has_8 && !lacks_8);
      EXPECT_EQ(std::ranges::equal(words, module), !(has_16 && lacks_16) && !(has_8 && lacks_8));
      if (has_16 >= lacks_16 && has_8 >= lacks_8) {  // each module once
        EXPECT_TRUE(is_valid(words)) << kPackedShaders[i].name;
      }
    }
  }
}

// The modules are valid and need no feature that the originals do not need. Small elements may be
// parts of words.
TEST(VulkanShaders, WithBindingsNeedNoAddresses) {
  constexpr uint32_t kBuffers[] = {1, 2, 4};
  for (uint32_t i = 0; i < kShaderCount; ++i) {
    std::vector<uint32_t> module = shader_module(i);
    if (uses_matrix_units(module)) {
      continue;
    }
    if (i % 8 == 0) {
      module = elements_in_words(module, {true, true});
    }
    std::set<uint32_t> needed = capabilities_of(module);
    EXPECT_EQ(needed.erase(spirv::kPhysicalStorageBufferAddresses), 1u);
    const std::vector<uint32_t> bound = with_bindings(module, kBuffers[i % std::size(kBuffers)]);
    EXPECT_EQ(capabilities_of(bound), needed) << kPackedShaders[i].name;
    EXPECT_TRUE(is_valid(bound)) << kPackedShaders[i].name;
  }
}

// A driver may assume that no value is NaN or infinite, and then drop tests for them. Bit tests
// stay.
TEST(VulkanShaders, DoNotAskTheDriverForNan) {
  enum : uint32_t { kIsNan = 156, kIsInf = 157, kFirstCompare = 180, kLastCompare = 191 };
  for (uint32_t i = 0; i < kShaderCount; ++i) {
    const std::vector<uint32_t> module = shader_module(i);
    spirv::for_each_instruction(module, [&](spirv::Instruction in) {
      const uint32_t op = spirv::operation(in);
      EXPECT_TRUE(op != kIsNan && op != kIsInf) << kPackedShaders[i].name;
      EXPECT_FALSE(op >= kFirstCompare && op <= kLastCompare && in[3] == in[4])
          << kPackedShaders[i].name << " compares a value with itself";
    });
  }
}

// Vulkan lets a driver round exp, log, pow, sine and others coarsely, and flush small values in
// halves that it unpacks (section "Precision and operation of SPIR-V instructions"). shaders/lib
// has functions of its own.
TEST(VulkanShaders, CallNoFunctionThatADriverMayRoundCoarsely) {
  enum : uint32_t { kExtended = 12 };
  // GLSL.std.450: signs and rounding; sqrt, which all known drivers round well; min, max and clamp;
  // fma; bits.
  constexpr std::pair<uint32_t, uint32_t> kAllowed[] = {
      {1, 10}, {31, 31}, {37, 45}, {50, 50}, {73, 75}};
  for (uint32_t i = 0; i < kShaderCount; ++i) {
    const std::vector<uint32_t> module = shader_module(i);
    spirv::for_each_instruction(module, [&](spirv::Instruction in) {
      const bool is_call = spirv::operation(in) == kExtended;
      EXPECT_TRUE(!is_call || std::ranges::any_of(kAllowed,
                                                  [&](const auto& range) {
                                                    return in[4] >= range.first &&
                                                           in[4] <= range.second;
                                                  }))
          << kPackedShaders[i].name << " calls function " << in[4];
    });
  }
}

TEST(VulkanShaders, WithSpecialValuesStayValid) {
  enum : uint32_t { kEveryFew = 16 };  // the validator is a process
  for (uint32_t i = 0; i < kShaderCount; ++i) {
    const std::vector<uint32_t> words = with_special_values(shader_module(i));
    size_t modes = 0;
    spirv::for_each_instruction(words, [&](spirv::Instruction in) {
      modes += spirv::operation(in) == spirv::kExecutionMode &&
               in[2] == spirv::kModeSignedZeroInfNanPreserve && in[3] == 32;
    });
    EXPECT_EQ(modes, 1u) << kPackedShaders[i].name;
    if (i % kEveryFew == 0 && !uses_matrix_units(words)) {
      EXPECT_TRUE(is_valid(words)) << kPackedShaders[i].name;
    }
  }
}

// With as few descriptors as Vulkan guarantees.
constexpr auto kNoAddresses = [](PhysicalDevice& d) {
  d.use_descriptors();
  d.max_bound_buffers = 4;
};

constexpr auto kNoSmallElements = [](PhysicalDevice& d) {
  d.has_16bit_storage = d.has_8bit_storage = false;
};

// A driver that records the capabilities of the modules that it gets.
struct {
  PFN_vkGetDeviceProcAddr get_proc = nullptr;
  PFN_vkCreateShaderModule create = nullptr;
  std::set<uint32_t> needed;
} noted;

VKAPI_ATTR VkResult VKAPI_CALL create_noted(VkDevice device, const VkShaderModuleCreateInfo* info,
                                            const VkAllocationCallbacks* callbacks,
                                            VkShaderModule* module) {
  noted.needed = capabilities_of({info->pCode, info->codeSize / sizeof(uint32_t)});
  return noted.create(device, info, callbacks, module);
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL find_noted(VkDevice device, const char* name) {
  const PFN_vkVoidFunction found = noted.get_proc(device, name);
  if (std::string_view(name) != "vkCreateShaderModule") {
    return found;
  }
  noted.create = reinterpret_cast<PFN_vkCreateShaderModule>(found);
  return reinterpret_cast<PFN_vkVoidFunction>(create_noted);
}

// lavapipe would also run a module whose features are not enabled.
TEST(VulkanWithoutSmallElements, ModulesNeedWhatTheDeviceHas) {
  BOWLINE_NEED(test::why_missing("vulkan:0"));
  Loader loader;
  ASSERT_EQ(loader.open(), nullptr);
  noted.get_proc = loader.vkGetDeviceProcAddr;
  loader.vkGetDeviceProcAddr = find_noted;
  PhysicalDevice physical = physical_devices(loader).at(0);
  for (const auto& [has_16, has_8] : {std::pair(false, false), {false, true}, {true, false}}) {
    physical.has_16bit_storage = has_16;
    physical.has_8bit_storage = has_8;
    physical.keeps_special_values = has_16;
    Device device(loader, physical);
    ASSERT_EQ(device.open(), VK_SUCCESS);
    Pipelines pipelines(device);
    ASSERT_EQ(pipelines.open(""), VK_SUCCESS);
    VkPipeline made = VK_NULL_HANDLE;
    ASSERT_EQ(pipelines.get({shader::cast_1_2, 1, {physical.subgroup_size}}, &made), VK_SUCCESS);
    EXPECT_EQ(noted.needed.contains(spirv::kStorageBuffer16BitAccess), has_16);
    EXPECT_EQ(noted.needed.contains(spirv::kStorageBuffer8BitAccess), has_8);
    EXPECT_EQ(noted.needed.contains(spirv::kSignedZeroInfNanPreserve), has_16);
  }
}

struct Hidden {
  const char* name;
  Hide hide;
  bool refuses;  // cases that need the feature
  friend void PrintTo(const Hidden& h, std::ostream* out) { *out << h.name; }
};

class VulkanWithout : public testing::TestWithParam<Hidden> {};
INSTANTIATE_TEST_SUITE_P(Features, VulkanWithout,
                         testing::Values(Hidden{"storage16_storage8", kNoSmallElements, false},
                                         Hidden{"storage8_int64",
                                                [](PhysicalDevice& d) {
                                                  d.has_8bit_storage = d.has_int64 = false;
                                                },
                                                true}),
                         [](const auto& p) { return std::string(p.param.name); });

// Runs the cases of every operator in every dtype. A case that does not run is a gap with a reason
// (backends/vulkan/conformance.cpp). BOWLINE_ALL_CASES runs every case of every suite.
TEST_P(VulkanWithout, ComputesTheRest) {
  BOWLINE_NEED(test::why_missing("vulkan:0"));
  const bool all = std::getenv("BOWLINE_ALL_CASES") != nullptr;
  uint64_t refused = 0;
  for (const std::string_view suite : conformance::suites()) {
    if (conformance::needs_no_device(suite) || (!all && suite != "ops")) {
      continue;
    }
    const auto report =
        must(conformance::run(suite, open_without(GetParam().hide), {.quick = !all}));
    EXPECT_GT(report.passed, report.cases / 10 * 9) << suite;
    for (const conformance::Failure& f : report.failures) {
      ADD_FAILURE() << f.where << ": " << f.what;
    }
    for (const auto& [reason, cases] : report.refused) {
      EXPECT_NE(reason.find("64-bit integers"), std::string::npos) << reason;
      refused += cases;
    }
  }
  EXPECT_EQ(refused > 0, GetParam().refuses);
}

// Odd sizes: a view starts inside of a word, and the last word of a value is partial. Bools are
// bytes.
Model small_model(DType type) {
  Model m;
  const Parameter w = must(m.parameter("w", {3, 5}, Init::normal(1), StorageRole::weight, type));
  View lower;
  lower.row_start = 1;
  const Parameter lower_rows = must(m.tied_parameter("lower_rows", w, lower));
  GraphBuilder g(m, "loss");
  const Value x = g.op("Cast", {g.input("x", DType::f32, {3, 5})}, {{"to", name_of(type)}});
  const Value upper = g.op("Linear", {x, g.parameter(w)});
  const Value y =
      g.op("Concat", {upper, g.op("Linear", {x, g.parameter(lower_rows)})}, {{"axis", 1}});
  const Value kept = g.op("Where", {g.op("Greater", {y, x}), y, x});
  g.output("loss", g.op("ReduceMean", {g.op("Mul", {kept, kept})}));
  EXPECT_OK(g.finish());
  EXPECT_OK(m.materialize(1));
  return m;
}

struct Trained {
  std::vector<float> losses;
  std::vector<std::byte> weight;
  bool operator==(const Trained&) const = default;
};

Trained trained(Model m, DType type, const bowline::Device& device) {
  EXPECT_OK(m.to(device));
  Trainer t = must(Trainer::create(m, device, test::plain_sgd(0.1f)));
  test::Floats in(15);
  for (size_t i = 0; i < in.size(); ++i) {
    in[i] = static_cast<float>(i) / 8 - 1;
  }
  const Tensor batch[] = {test::tensor("x", {3, 5}, in)};
  const std::span<const Tensor> batches[] = {batch};
  Trained out;
  for (int step = 0; step < 3; ++step) {
    out.losses.push_back(must(t.step(batches)).loss);
  }
  out.weight.resize(15 * size_of(type));
  const int64_t shape[] = {3, 5};
  EXPECT_OK(m.get_value("w", {"", type, shape, out.weight.data()}));
  return out;
}

// Bit for bit as on the device with the features.
TEST(VulkanWithoutSmallElements, AModelOf16BitsIsTrained) {
  BOWLINE_NEED(test::why_missing("vulkan:0"));
  for (const DType type : {DType::f16, DType::bf16}) {
    const auto on = [&](Hide hide) {
      return trained(small_model(type), type, Internals::device(open_without(hide)));
    };
    const Trained expected = on(nullptr);
    EXPECT_LT(expected.losses[2], expected.losses[0]);
    EXPECT_EQ(on(kNoSmallElements), expected) << name_of(type);
  }
}

TEST(VulkanWithoutAddresses, AModelIsTrained) {
  BOWLINE_NEED(test::why_missing("vulkan:0"));
  for (const DType type : {DType::f32, DType::bf16}) {
    const auto on = [&](Hide hide) {
      return trained(small_model(type), type, Internals::device(open_without(hide)));
    };
    const Trained expected = on(nullptr);
    const Hide several = [](PhysicalDevice& d) {
      d.use_descriptors();
      d.shares_blocks = false;
    };
    const Hide discrete = [](PhysicalDevice& d) {
      kNoAddresses(d);
      d.is_discrete = true;
    };
    const Hide in_words = [](PhysicalDevice& d) {
      kNoAddresses(d);
      kNoSmallElements(d);
    };
    for (const Hide hide : {Hide(kNoAddresses), several, discrete, in_words}) {
      EXPECT_EQ(on(hide), expected) << name_of(type);
    }
  }
}

std::vector<std::byte> pattern_of(size_t bytes, int first) {
  std::vector<std::byte> out(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    out[i] = static_cast<std::byte>(first + static_cast<int>(i % 251));
  }
  return out;
}

// Buffers of any sizes share memory, and no one sees what is written to another one.
TEST(VulkanWithoutAddresses, BuffersDoNotOverlap) {
  BOWLINE_NEED(test::why_missing("vulkan:0"));
  DeviceOptions options;
  options.cache_folder.clear();
  const std::unique_ptr<device::Device> device = must(OpenVulkan::open(0, options, kNoAddresses));
  std::map<uint64_t, std::vector<std::byte>> content;
  const auto add = [&](size_t bytes, int first) {
    const device::Buffer buffer = must(device->allocate(bytes, device::MemoryKind::device));
    content[buffer.id] = pattern_of(bytes, first);
    EXPECT_OK(device->copy_in(buffer, 0, content[buffer.id]));
    return buffer;
  };
  std::vector<device::Buffer> all;
  for (int i = 0; i < 40; ++i) {
    all.push_back(add(static_cast<size_t>(1 + i * 12345 % 70000), i));
  }
  for (size_t i = 0; i < all.size(); i += 3) {  // holes of one and of two
    device->free(all[i]);
    content.erase(all[i].id);
    if (i % 2 == 0) {
      device->free(all[i + 1]);
      content.erase(all[i + 1].id);
    }
  }
  for (int i = 0; i < 30; ++i) {
    add(static_cast<size_t>(1 + i * 4321 % 90000), 100 + i);
  }
  add(40u << 20, 7);  // a block of its own
  for (const auto& [id, expected] : content) {
    std::vector<std::byte> found(expected.size());
    EXPECT_OK(device->copy_out(found, device::Buffer{id}, 0));
    EXPECT_TRUE(found == expected) << id;
  }
  const auto too_large =
      device->allocate(device->capabilities().max_buffer_bytes + 1, device::MemoryKind::device);
  EXPECT_FALSE(too_large.ok());
}

TEST(VulkanWithoutAddresses, TooManyBuffersOfALaunchAreRefused) {
  BOWLINE_NEED(test::why_missing("vulkan:0"));
  const auto device = Internals::device(open_without([](PhysicalDevice& d) {
    d.use_descriptors();
    d.shares_blocks = false;
    d.max_bound_buffers = 1;
  }));
  Model m = small_model(DType::f32);
  ASSERT_OK(m.to(device));
  const Result<Trainer> t = Trainer::create(m, device, test::plain_sgd(0.1f));
  ASSERT_FALSE(t.ok());
  EXPECT_EQ(t.status().code(), Code::unsupported);
  EXPECT_NE(t.status().message().find("The device lacks bufferDeviceAddress"), std::string::npos)
      << t.status().message();
}

// Kernels use a copy of inputs, outputs and per-step scalars in device memory.
TEST(VulkanDiscrete, TwinsOfIoChangeNoResult) {
  BOWLINE_NEED(test::why_missing("vulkan:0"));
  const auto on = [](Hide hide) {
    return trained(small_model(DType::bf16), DType::bf16, Internals::device(open_without(hide)));
  };
  EXPECT_EQ(on([](PhysicalDevice& d) { d.is_discrete = true; }), on(nullptr));
}

}  // namespace
}  // namespace bowline::detail::vulkan
