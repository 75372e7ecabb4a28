// The Vulkan backend on devices with the limits of phones, Macs and graphics cards: a fake driver
// opens, plans and records, and computes nothing.
#include <algorithm>
#include <set>
#include <tuple>

#include "emulation/gpt2.h"
#include "fake_vulkan.h"
#include "model/tied_model.h"
#include "open_device.h"
#include "ties/test_devices.h"
#include "train/tiny_lm.h"

namespace bowline::detail::vulkan {
namespace {

using profiles::Profile;
using test::must;

Result<std::unique_ptr<device::Device>> open_fake(void (*hide)(PhysicalDevice&) = nullptr,
                                                  const DeviceOptions& options = {}) {
  return OpenVulkan::open(0, options, hide, fake::get_proc);
}

const PhysicalDevice& physical_of(const device::Device& device) {
  return static_cast<const OpenVulkan&>(device).physical();
}

const Profile& named(std::string_view name) {
  return *std::ranges::find(profiles::kProfiles, name, &Profile::name);
}

class VulkanProfile : public testing::TestWithParam<Profile> {};
INSTANTIATE_TEST_SUITE_P(Devices, VulkanProfile, testing::ValuesIn(profiles::kProfiles),
                         [](const auto& p) { return test::test_name(p.param.name); });

TEST_P(VulkanProfile, IsRefusedWithTheReasonOrRecordsWhatItsLimitsAllow) {
  fake::reset(GetParam());
  auto opened = open_fake();
  ASSERT_EQ(opened.ok(), std::string_view(GetParam().refusal).empty());
  if (!opened.ok()) {
    EXPECT_EQ(opened.status().code(), Code::unsupported);
    EXPECT_EQ(opened.status().message(),
              format("Vulkan device 0 cannot be used. {}", GetParam().refusal));
    return;
  }
  const bowline::Device device = test::wrap("fake", std::move(opened).value());
  // 16-bit values too, which some of the devices cannot access.
  for (const DType compute : {DType::f32, DType::f16}) {
    test::TinyLm lm = test::tiny_lm();
    TrainOptions options = test::adamw(lm);
    options.precision.compute_dtype = compute;
    ASSERT_OK(lm.model.to(device));
    const Trainer trainer = must(Trainer::create(lm.model, device, options));
  }
  EXPECT_GT(fake::driver().dispatches, 100u);
  EXPECT_EQ(fake::driver().faults, std::vector<std::string>());
  const bool can_require = GetParam().subgroup.max != 0;
  EXPECT_EQ(fake::driver().required_subgroups > 10, can_require);
  EXPECT_GT(fake::driver().free_subgroups, 10u);
}

TEST(VulkanProfiles, EachSubgroupOperationOfTheKernelsIsAskedFor) {
  for (const auto& [flag, name] : {std::pair(VK_SUBGROUP_FEATURE_ARITHMETIC_BIT, "arithmetic"),
                                   {VK_SUBGROUP_FEATURE_BALLOT_BIT, "ballot"},
                                   {VK_SUBGROUP_FEATURE_SHUFFLE_BIT, "shuffle"}}) {
    fake::reset(named("Mali-G715"));
    fake::driver().lacking = static_cast<VkSubgroupFeatureFlags>(flag);
    const auto opened = open_fake();
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.status().message(),
              format("Vulkan device 0 cannot be used. Its driver lacks the subgroup operations "
                     "'{}' in compute shaders.",
                     name));
  }
}

TEST(VulkanProfiles, OnlyADiscreteDeviceHasTwinsOfIo) {
  for (const auto& [name, twins] :
       {std::pair("GeForce RTX 4070", true), {"Apple M1, MoltenVK", false}}) {
    fake::reset(named(name));
    const auto device = must(open_fake());
    fake::driver().memory_types.clear();
    const device::Buffer io = must(device->allocate(64, device::MemoryKind::io));
    const std::vector<uint32_t> expected =
        twins ? std::vector<uint32_t>{1, 0} : std::vector<uint32_t>{0};
    EXPECT_EQ(fake::driver().memory_types, expected) << name;
    device->free(io);
  }
}

std::vector<CooperativeMatrixProperties> matrices_of(
    std::initializer_list<std::pair<MatrixUnit, Component>> units) {
  std::vector<CooperativeMatrixProperties> all;
  for (const auto& [unit, type] : units) {
    auto& p = all.emplace_back(typed<CooperativeMatrixProperties>(kCooperativeMatrixType));
    std::tie(p.m, p.n, p.k) = std::tie(unit.m, unit.n, unit.k);
    p.a = p.b = type;
    p.c = p.result = Component::f32;
    p.scope = kScopeSubgroup;
  }
  // Sums in f16 are no replacement for sums in f32.
  all.push_back(all.front());
  all.back().c = all.back().result = Component::f16;
  all.back().k = 16;
  return all;
}

struct Units {
  const char* name;
  bool mixed_dots;
  uint32_t smallest_subgroup;
  bool are_used;
};

// Drivers list products that they compute without matrix units.
TEST(VulkanProfiles, MatrixUnitsAreUsedWhereTheHardwareHasThem) {
  for (const Units& u : {Units{"GeForce RTX 4070", false, 32, true},
                         {"Radeon RX 7800 XT, AMDVLK", true, 32, true},
                         {"Radeon RX 7800 XT, AMDVLK", false, 32, false},
                         {"Intel Arc A770", true, 16, true},
                         {"Intel Arc A770", true, 8, false},
                         {"Adreno 830", true, 64, false}}) {
    fake::reset(named(u.name));
    fake::driver().profile.subgroup.min = u.smallest_subgroup;
    fake::driver().has_mixed_dots = u.mixed_dots;
    fake::driver().matrices = matrices_of({{{16, 8, 8}, Component::f16},
                                           {{16, 16, 16}, Component::f16},
                                           {{64, 16, 16}, Component::f16}});
    Loader loader(fake::get_proc);
    ASSERT_EQ(loader.open(), nullptr);
    const PhysicalDevice device = physical_devices(loader).at(0);
    const MatrixUnit* const unit = device.matrix_unit(DType::f16);
    EXPECT_EQ(unit != nullptr, u.are_used) << u.name;
    EXPECT_TRUE(unit == nullptr || (unit->m == 16 && unit->n == 16 && unit->k == 16)) << u.name;
    EXPECT_EQ(device.matrix_unit(DType::bf16), nullptr);
    EXPECT_EQ(device.matrix_unit(DType::f32), nullptr);
  }
}

// The fake driver checks workgroups and subgroups.
TEST(VulkanProfiles, MatrixUnitsOfEachSizeTrain) {
  for (const auto& [name, unit] : {std::pair("GeForce RTX 4070", MatrixUnit{16, 8, 8}),
                                   {"Radeon RX 7800 XT, RADV", {16, 16, 16}},
                                   {"Intel Arc A770", {8, 16, 16}}}) {
    for (const DType compute : {DType::f16, DType::bf16}) {
      fake::reset(named(name));
      fake::driver().profile.subgroup.min = 16;
      fake::driver().has_mixed_dots = true;
      fake::driver().matrices = matrices_of({{unit, Component::f16}, {unit, Component::bf16}});
      const bowline::Device device = test::wrap("fake", must(open_fake()));
      test::TinyLm lm = test::tiny_lm();
      TrainOptions options = test::adamw(lm);
      options.precision.compute_dtype = compute;
      ASSERT_OK(lm.model.to(device));
      const Trainer trainer = must(Trainer::create(lm.model, device, options));
      EXPECT_EQ(fake::driver().faults, std::vector<std::string>()) << name;
      EXPECT_GT(fake::driver().matrix_modules, 0u) << name;
    }
  }
}

struct OfWorkgroups {
  const char* what;
  void (*change)(fake::Driver&);  // the driver, which has matrices of workgroups
  int64_t n;
  bool are_used;
  bool is_asked_for = true;  // with the variant
};

// The products that a workgroup computes together, and what prevents it.
TEST(VulkanProfiles, WorkgroupsMultiplyMatricesWhereTheDriverListsThem) {
  constexpr int64_t kM = 1000, kK = 512;
  for (const OfWorkgroups& c :
       {OfWorkgroups{"", [](fake::Driver&) {}, 1032, true},
        {"no extension", [](fake::Driver& d) { d.flexible_matrices.clear(); }, 1032, false},
        // As RADV and lavapipe of Mesa 26.1.
        {"no scope", [](fake::Driver& d) { d.has_workgroup_scope = false; }, 1032, false},
        {"no matrices of subgroups", [](fake::Driver& d) { d.matrices.clear(); }, 1032, false},
        {"too coarse a granularity",
         [](fake::Driver& d) {
           for (FlexibleMatrixProperties& p : d.flexible_matrices) {
             p.n = 512;
           }
         },
         1032, false},
        {"no variant", [](fake::Driver&) {}, 1032, false, false},
        {"few workgroups", [](fake::Driver&) {}, 136, false},
        {"rows that are no vectors", [](fake::Driver&) {}, 1036, false}}) {
    fake::reset(named("GeForce RTX 4070"));
    fake::add_workgroup_matrices();
    const MatrixUnit unit{16, 16, 16};
    fake::driver().matrices = matrices_of({{unit, Component::f16}, {unit, Component::bf16}});
    c.change(fake::driver());
    setenv("BOWLINE_VULKAN_VARIANT", c.is_asked_for ? "workgroup_matrices" : "", 1);
    const auto device = must(open_fake());
    unsetenv("BOWLINE_VULKAN_VARIANT");
    for (const DType type : {DType::f16, DType::bf16}) {
      device::Program program;
      program.slots = device::kFirstStorageSlot;
      device::Record& r = program.records.emplace_back();
      r.op = Op::MatMul;
      r.type = type;
      r.attributes = Attributes::of(file::MatMulAttributesT{});
      r.inputs.resize(2);
      r.outputs.resize(1);
      r.inputs[0].shape = Shape{kM, kK};
      r.inputs[1].shape = Shape{kK, c.n};
      r.outputs[0].shape = Shape{kM, c.n};
      for (device::Operand* const o : {&r.inputs[0], &r.inputs[1], &r.outputs[0]}) {
        o->dtype = type;
      }
      const device::NodeAnswer answer =
          device->query({r.op, r.type, r.attributes, r.inputs, r.outputs, device::kNoCandidate});
      r.workspace.shape = Shape{static_cast<int64_t>(answer.workspace_bytes)};
      r.workspace.dtype = DType::u8;
      const uint64_t before = fake::driver().workgroup_matrix_modules;
      std::vector<device::Buffer> buffers;
      for (const uint64_t size : {uint64_t{16} << 20, uint64_t{64}, uint64_t{64}}) {
        buffers.push_back(must(device->allocate(size, device::MemoryKind::device)));
      }
      must(device->record(program, buffers));
      EXPECT_EQ(fake::driver().workgroup_matrix_modules - before, c.are_used ? 1u : 0u) << c.what;
      // `bowline tune` measures them wherever they can run.
      uint64_t candidates = 0;
      for (r.candidate = 0; r.candidate < answer.candidates; ++r.candidate) {
        const uint64_t all = fake::driver().workgroup_matrix_modules;
        r.workspace.shape = Shape{static_cast<int64_t>(
            device->query({r.op, r.type, r.attributes, r.inputs, r.outputs, r.candidate})
                .workspace_bytes)};
        must(device->record(program, buffers));
        candidates += fake::driver().workgroup_matrix_modules - all;
      }
      const bool can_run = c.are_used || std::string_view(c.what) == "few workgroups";
      EXPECT_EQ(candidates > 0, can_run) << c.what;
    }
    EXPECT_EQ(fake::driver().faults, std::vector<std::string>()) << c.what;
  }
}

bool enables(const VkDeviceCreateInfo& info, const char* extension) {
  const std::span names(info.ppEnabledExtensionNames, info.enabledExtensionCount);
  return std::ranges::any_of(names, [&](std::string_view name) { return name == extension; });
}

bool enables_int64(const VkDeviceCreateInfo& info) {
  return static_cast<const VkPhysicalDeviceFeatures2*>(info.pNext)->features.shaderInt64 == VK_TRUE;
}

// Only what the driver refuses is off, and named.
TEST(VulkanProfiles, AFeatureThatTheDriverRefusesIsSwitchedOff) {
  struct Refusal {
    VkResult (*refuses)(const VkDeviceCreateInfo&);
    std::vector<std::string> off;
  };
  for (const Refusal& r :
       {Refusal{[](const VkDeviceCreateInfo& info) {
                  return enables_int64(info) ? VK_ERROR_FEATURE_NOT_PRESENT : VK_SUCCESS;
                },
                {"64-bit integers"}},
        Refusal{[](const VkDeviceCreateInfo& info) {
                  return enables(info, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME)
                             ? VK_ERROR_EXTENSION_NOT_PRESENT
                             : VK_SUCCESS;
                },
                {"required subgroup sizes"}},
        Refusal{[](const VkDeviceCreateInfo& info) {
                  return enables_int64(info) || enables(info, kBfloat16Extension)
                             ? VK_ERROR_FEATURE_NOT_PRESENT
                             : VK_SUCCESS;
                },
                {"matrix units for bf16", "64-bit integers"}}}) {
    fake::reset(named("GeForce RTX 4070"));
    const MatrixUnit unit{16, 8, 8};
    fake::driver().matrices = matrices_of({{unit, Component::f16}, {unit, Component::bf16}});
    // As if an earlier process had passed the self test, which the fake driver cannot compute.
    const test::Folder folder;
    const DeviceOptions options = {.cache_folder = folder / "cache"};
    save_self_test(options.cache_folder, physical_of(*must(open_fake(nullptr, options))), {});
    fake::driver().refuses = r.refuses;
    const auto device = must(open_fake(nullptr, options));
    const PhysicalDevice& physical = physical_of(*device);
    std::string named_off;
    for (const std::string& sentence : must(device->self_test())) {
      named_off += sentence + "\n";
    }
    for (const std::string& name : r.off) {
      EXPECT_NE(physical.variants.find("without " + name), std::string::npos) << name;
      EXPECT_NE(named_off.find(name + ": The driver"), std::string::npos) << named_off;
    }
    EXPECT_EQ(std::ranges::count(named_off, '\n'), std::ssize(r.off)) << named_off;
    EXPECT_EQ(std::ranges::count(physical.variants, ','), std::ssize(r.off) - 1)
        << physical.variants;
    // Matrix units need a required subgroup size.
    EXPECT_EQ(physical.matrix_unit(DType::f16) != nullptr, physical.max_subgroup != 0);
  }
  fake::driver().refuses = [](const VkDeviceCreateInfo&) { return VK_ERROR_FEATURE_NOT_PRESENT; };
  EXPECT_FALSE(open_fake().ok());
}

struct Divided {
  int64_t mn, k;
  uint64_t parts;
};

// Too few tiles for a GPU: workgroups divide the k, and another dispatch adds their results.
TEST(VulkanProfiles, ALongProductWithFewTilesIsDivided) {
  fake::reset(named("GeForce RTX 4070"));
  const auto device = must(open_fake());
  for (const Divided& d : {Divided{64, 8192, 16}, Divided{64, 1100, 2}, Divided{64, 1000, 1},
                           Divided{224, 8192, 2}, Divided{256, 8192, 1}}) {
    device::Program program;
    program.slots = device::kFirstStorageSlot;
    device::Record& r = program.records.emplace_back();
    r.op = Op::MatMul;
    r.attributes = Attributes::of(file::MatMulAttributesT{});
    r.inputs.resize(2);
    r.outputs.resize(1);
    r.inputs[0].shape = Shape{d.mn, d.k};
    r.inputs[1].shape = Shape{d.k, d.mn};
    r.outputs[0].shape = Shape{d.mn, d.mn};
    const auto query = [&](uint32_t candidate) {
      return device->query({r.op, r.type, r.attributes, r.inputs, r.outputs, candidate});
    };
    const device::NodeAnswer answer = query(device::kNoCandidate);
    const uint64_t bytes = r.outputs[0].bytes();
    EXPECT_EQ(answer.workspace_bytes, d.parts == 1 ? 0 : d.parts * bytes) << d.mn << " " << d.k;
    std::set<uint64_t> workspaces;
    for (uint32_t c = 0; c < answer.candidates; ++c) {
      workspaces.insert(query(c).workspace_bytes);
    }
    EXPECT_TRUE(workspaces.contains(0));
    EXPECT_TRUE(workspaces.contains(answer.workspace_bytes))
        << "`bowline tune` measures the choice";
    r.workspace.shape = Shape{static_cast<int64_t>(answer.workspace_bytes)};
    r.workspace.dtype = DType::u8;
    std::vector<device::Buffer> buffers;
    for (const uint64_t size : {uint64_t{16} << 20, uint64_t{64}, uint64_t{64}}) {
      buffers.push_back(must(device->allocate(size, device::MemoryKind::device)));
    }
    fake::driver().dispatches = 0;
    const auto recording = must(device->record(program, buffers));
    EXPECT_EQ(fake::driver().dispatches, d.parts == 1 ? 1u : 2u);
  }
  EXPECT_EQ(fake::driver().faults, std::vector<std::string>());
}

// A chain of products in a program of its own.
struct Chain {
  explicit Chain(device::Device& device, uint32_t length) {
    program.slots = device::kFirstStorageSlot;
    for (uint32_t i = 0; i < length; ++i) {
      device::Record& r = program.records.emplace_back();
      r.op = Op::MatMul;
      r.level = i;
      r.node = 100 + i;
      r.attributes = Attributes::of(file::MatMulAttributesT{});
      r.inputs.resize(2);
      r.outputs.resize(1);
      for (device::Operand* o : {&r.inputs[0], &r.inputs[1], &r.outputs[0]}) {
        o->shape = Shape{1024, 1024};
      }
      r.outputs[0].offset = uint64_t{1024} * 1024 * sizeof(float);
    }
    for (uint64_t bytes : {uint64_t{8} << 20, uint64_t{64}, uint64_t{64}}) {
      buffers.push_back(must(device.allocate(bytes, device::MemoryKind::device)));
    }
  }
  std::unique_ptr<device::Recording> record(device::Device& device) const {
    return must(device.record(program, buffers));
  }
  device::Program program;
  std::vector<device::Buffer> buffers;
};

Status run(device::Device& device, device::Recording& recording) {
  device::Recording* const all[] = {&recording};
  const Status submitted = device.submit(all);
  return submitted.ok() ? device.wait() : Status(submitted);
}

TEST(VulkanProfiles, ASubmissionThatHangsIsReportedWithItsNodes) {
  fake::reset(named("Apple M1, MoltenVK"));
  const auto device = must(open_fake());
  const Chain chain(*device, 3);
  const auto recording = chain.record(*device);
  EXPECT_OK(run(*device, *recording));
  fake::driver().hangs = true;
  const Status hung = run(*device, *recording);
  EXPECT_EQ(hung.code(), Code::device_lost);
  EXPECT_EQ(hung.message(),
            "The Vulkan device hangs: it has been running nodes 100 (MatMul) to 102 (MatMul) for "
            "more than 30 s.\n- While waiting for the device.");
  EXPECT_EQ(device->wait().code(), Code::device_lost);
}

TEST(VulkanProfiles, SubmissionsAreCutByTheMeasuredSpeed) {
  const auto submissions_after = [](double ms) {
    fake::reset(named("Apple M1, MoltenVK"));
    const auto device = must(open_fake());
    const Chain chain(*device, 20);
    fake::driver().slowness = ms;
    const auto first = chain.record(*device);
    EXPECT_OK(run(*device, *first));
    const uint64_t before = fake::driver().submitted;
    const auto second = chain.record(*device);
    EXPECT_OK(run(*device, *second));
    return fake::driver().submitted - before;
  };
  const uint64_t few = submissions_after(100);  // about the estimate
  const uint64_t many = submissions_after(1000);
  EXPECT_GE(many, 5 * few);
}

TEST(VulkanProfiles, ARecordingIsCutAgainOnceItsDeviceIsKnownToBeFast) {
  fake::reset(named("Apple M1, MoltenVK"));
  const auto device = must(open_fake());
  const Chain chain(*device, 10);
  const auto recording = chain.record(*device);
  const auto run_once = [&] {
    fake::driver().run = {};
    EXPECT_OK(run(*device, *recording));
    return fake::driver().run;
  };
  fake::driver().slowness = 90;  // about the estimate
  const uint64_t cut = run_once().submissions;
  EXPECT_GT(cut, 3u);
  EXPECT_EQ(run_once().submissions, cut);
  fake::driver().slowness = 1;
  EXPECT_EQ(run_once().submissions, cut) << "measures";
  const fake::Run whole = run_once();
  EXPECT_EQ(whole.submissions, 1u);
  EXPECT_EQ(whole.buffers, 1u + 2u) << "two have timestamps";
}

// Each recording takes 21 of at most 50 ms.
TEST(VulkanProfiles, RecordingsAreSubmittedTogetherWithinTheLimit) {
  fake::reset(named("Apple M1, MoltenVK"));
  const auto device = must(open_fake());
  const Chain chain(*device, 1);
  std::vector<std::unique_ptr<device::Recording>> recordings;
  std::vector<device::Recording*> all;
  for (int i = 0; i < 5; ++i) {
    recordings.push_back(chain.record(*device));
    all.push_back(recordings.back().get());
  }
  fake::driver().run = {};
  EXPECT_OK(device->submit(all));
  EXPECT_EQ(fake::driver().run.submissions, 3u);
}

// A measured submission has two more command buffers.
TEST(VulkanProfiles, AfterTheFirstSubmissionsFewAreMeasured) {
  fake::reset(named("GeForce RTX 4070"));
  const auto device = must(open_fake());
  const Chain chain(*device, 1);
  const auto recording = chain.record(*device);
  const auto buffers_of_16 = [&] {
    fake::driver().run = {};
    for (int i = 0; i < 16; ++i) {
      EXPECT_OK(run(*device, *recording));
    }
    return fake::driver().run.buffers;
  };
  EXPECT_EQ(buffers_of_16(), 16u * 3);
  EXPECT_EQ(buffers_of_16(), 16u + 2);
}

TEST(VulkanProfiles, ARecordingIsNotSubmittedWhileItRuns) {
  fake::reset(named("GeForce RTX 4070"));
  const auto device = must(open_fake());
  const Chain chain(*device, 1);
  const auto recording = chain.record(*device);
  device::Recording* const twice[] = {recording.get(), recording.get()};
  for (int i = 0; i < 3; ++i) {
    EXPECT_OK(device->submit(std::span(twice).first(1)));
    EXPECT_OK(device->submit(twice));
  }
  EXPECT_EQ(fake::driver().faults, std::vector<std::string>());
}

// The host's copies are no part of the time of a node.
TEST(VulkanProfiles, TimestampsLeaveOutTheCopiesOfTwins) {
  fake::reset(named("GeForce RTX 4070"));
  const auto device = must(open_fake());
  Chain chain(*device, 2);
  const auto total_ns = [&] {
    const auto recording = chain.record(*device);
    fake::driver().slowness = 1;  // ms per command
    double sum = 0;
    for (const device::RecordTime& time : must(device->timestamps(*recording))) {
      sum += time.ns;
    }
    return sum;
  };
  const double alone = total_ns();
  EXPECT_GT(alone, 1e6);
  const uint64_t copies = fake::driver().copies;
  for (device::Buffer& buffer : chain.buffers) {
    buffer = must(device->allocate(8 << 20, device::MemoryKind::io));
  }
  EXPECT_EQ(total_ns(), alone);
  EXPECT_GT(fake::driver().copies, copies + 2);
}

// Adds a record that reads the matrix at `from` and writes the one at `to`, both of 256 x 256.
device::Record& add_square(device::Program& program, Op op, uint32_t level, uint64_t from,
                           uint64_t to) {
  device::Record& r = program.records.emplace_back();
  r.op = op;
  r.level = level;
  r.inputs.resize(1);
  r.outputs.resize(1);
  r.inputs[0].shape = r.outputs[0].shape = Shape{256, 256};
  r.inputs[0].offset = from << 20;
  r.outputs[0].offset = to << 20;
  return r;
}

// Records a program of this arena of 8 MiB. Returns what the driver was asked to record.
std::vector<std::string> recorded(const device::Program& program,
                                  std::string_view profile = "GeForce RTX 4070",
                                  device::MemoryKind kind = device::MemoryKind::device) {
  fake::reset(named(profile));
  const auto device = must(open_fake());
  std::vector<device::Buffer> buffers;
  for (const uint64_t bytes : {uint64_t{8} << 20, uint64_t{64}, uint64_t{64}}) {
    buffers.push_back(must(device->allocate(bytes, kind)));
  }
  const auto recording = must(device->record(program, buffers));
  EXPECT_EQ(fake::driver().faults, std::vector<std::string>());
  return fake::driver().recorded;
}

// A barrier names the stages of the commands before it and of the next one. A level without
// transfers waits for no transfers, and the host waits once.
TEST(VulkanProfiles, BarriersNameTheStagesThatAreUsed) {
  device::Program program;
  program.slots = device::kFirstStorageSlot;
  add_square(program, Op::Relu, 0, 0, 1);
  add_square(program, Op::Relu, 0, 0, 2);
  add_square(program, Op::Relu, 1, 1, 3);
  add_square(program, Op::Copy, 2, 3, 4);
  add_square(program, Op::Relu, 3, 4, 5);
  add_square(program, Op::Copy, 3, 0, 6);
  const std::vector<std::string> expected = {"compute+transfer>compute",
                                             "dispatch",
                                             "dispatch",
                                             "compute>compute",
                                             "dispatch",
                                             "compute+transfer>transfer",
                                             "copy",
                                             "compute+transfer>compute",
                                             "dispatch",
                                             "transfer>transfer",
                                             "copy",
                                             "compute+transfer>host"};
  EXPECT_EQ(recorded(program), expected);
}

// A sum over long columns has two dispatches. Those of two records run side by side.
TEST(VulkanProfiles, RecordsOfALevelShareTheBarriersOfTheirKernels) {
  device::Program program;
  program.slots = device::kFirstStorageSlot;
  for (const uint64_t i : {0, 1}) {
    device::Record& r = add_square(program, Op::SumTo, 0, 0, 2 + i);
    r.inputs[0].shape = Shape{1024, 64};
    r.outputs[0].shape = Shape{64};
    r.workspace.offset = (4 + i) << 20;
    r.workspace.shape = Shape{1 << 20};
    r.workspace.dtype = DType::u8;
  }
  add_square(program, Op::Relu, 0, 0, 6);
  const std::vector<std::string> expected = {"compute+transfer>compute+transfer",  // the tables
                                             "copy",
                                             "compute+transfer>host",
                                             "compute+transfer>compute",
                                             "dispatch",
                                             "dispatch",
                                             "dispatch",
                                             "compute>compute",
                                             "dispatch",
                                             "dispatch",
                                             "compute+transfer>host"};
  EXPECT_EQ(recorded(program), expected);
}

// A device without small storage accesses copies whole words, so such copies run one by one even if
// their records are independent.
TEST(VulkanProfiles, CopiesOfPartsOfAWordWaitForEachOther) {
  device::Program program;
  program.slots = device::kFirstStorageSlot;
  for (const uint64_t i : {0, 1}) {
    device::Record& r = add_square(program, Op::Copy, 0, 0, 2 + i);
    r.type = r.inputs[0].dtype = r.outputs[0].dtype = DType::f16;
    r.inputs[0].shape = r.outputs[0].shape = Shape{3};
  }
  const std::vector<std::string> expected = {"compute+transfer>transfer", "copy",
                                             "transfer>transfer", "copy", "compute+transfer>host"};
  EXPECT_EQ(recorded(program, "GeForce GTX without 16-bit storage"), expected);
}

// The inputs are copied to the twin before the kernels run, and their results back after them.
TEST(VulkanProfiles, CopiesOfTwinsWaitForTheKernels) {
  device::Program program;
  program.slots = device::kFirstStorageSlot;
  add_square(program, Op::Relu, 0, 0, 1);
  const std::vector<std::string> expected = {
      "compute+transfer>transfer", "copy", "copy", "compute+transfer>compute", "dispatch",
      "compute+transfer>transfer", "copy", "copy", "compute+transfer>host"};
  EXPECT_EQ(recorded(program, "GeForce RTX 4070", device::MemoryKind::io), expected);
}

// Runs twice, and returns what the second run asked the driver for.
template <class F>
fake::Run second_run(const F& run) {
  run();
  fake::driver().run = {};
  run();
  return fake::driver().run;
}

void expect_at_most(const fake::Run& run, const fake::Run& most) {
  EXPECT_LE(run.dispatches, most.dispatches);
  EXPECT_LE(run.copies, most.copies);
  EXPECT_LE(run.barriers, most.barriers);
  EXPECT_LE(run.buffers, most.buffers);
  EXPECT_LE(run.submissions, most.submissions);
  EXPECT_LE(run.waits, most.waits);
  EXPECT_GE(run.dispatches, most.dispatches / 2) << "or this is no longer the model";
  EXPECT_EQ(fake::driver().faults, std::vector<std::string>());
}

// GPT-2 with its 12 layers, but fewer channels. The limits may only decrease. The names are those
// of fake::Run.
TEST(VulkanProfiles, LimitTheCommandsOfATrainingStep) {
  fake::reset(named("GeForce RTX 4070"));
  const bowline::Device device = test::wrap("fake", must(open_fake()));
  test::Gpt2 gpt({12, 64, 2, 512, 256});
  EXPECT_OK(gpt.model.materialize(1));
  EXPECT_OK(gpt.model.to(device));
  TrainOptions options;
  options.dims = {{"batch", 1}, {"seq", 256}};
  options.precision.compute_dtype = DType::bf16;
  Trainer trainer = must(Trainer::create(gpt.model, device, options));
  std::vector<int32_t> ids(256);
  const test::Dims shape = {1, 256};
  const Tensor batch[] = {test::tensor("tokens", shape, ids), test::tensor("labels", shape, ids)};
  expect_at_most(second_run([&] { EXPECT_OK(trainer.micro_step(batch).status()); }),
                 {.dispatches = 1019,
                  .copies = 9,
                  .barriers = 710,
                  .buffers = 4,
                  .submissions = 1,
                  .waits = 1});
}

TEST(VulkanProfiles, LimitTheCommandsOfAToken) {
  fake::reset(named("GeForce RTX 4070"));
  const bowline::Device device = test::wrap("fake", must(open_fake()));
  test::Gpt2 gpt({12, 64, 2, 512, 256});
  gpt.add_decode();
  EXPECT_OK(gpt.model.materialize(1));
  EXPECT_OK(gpt.model.resize("cache.*", 256).status());
  EXPECT_OK(gpt.model.to(device));
  const BoundDim length = {"kv_length", 256};
  Session session = must(Session::create(gpt.model, device, "decode", {&length, 1}));
  std::vector<int32_t> zero(1);
  const test::Dims one = {1}, row = {1, 1};
  const Tensor inputs[] = {test::tensor("tokens", row, zero), test::tensor("positions", one, zero)};
  std::vector<float> lse(1);
  const Tensor outputs[] = {test::tensor("lse", one, lse)};
  const StepScalar steps[] = {{"position", uint32_t{255}}, {"kv_length", uint32_t{256}}};
  expect_at_most(
      second_run([&] { EXPECT_OK(session.run(inputs, outputs, steps)); }),
      {.dispatches = 78, .copies = 5, .barriers = 81, .buffers = 1, .submissions = 1, .waits = 1});
}

}  // namespace
}  // namespace bowline::detail::vulkan
