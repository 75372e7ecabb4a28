#include "planned_device.h"

#include <algorithm>

#include "query.h"
#include "stream.h"
#include "twin.h"

namespace bowline::detail::vulkan {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint32_t kQualcomm = 0x5143;

// What the driver of a device reports.
struct Model {
  std::string_view name;
  VkPhysicalDeviceType type;
  uint32_t vendor;
  struct {
    uint32_t size, min, max;  // min and max are 0: a pipeline can require no size
  } subgroup;
  uint32_t invocations;
  uint32_t shared_bytes;
  uint64_t memory_bytes;
  uint64_t buffer_bytes;  // limit of an allocation
  bool int64;
  MatrixUnit unit;  // of f16 and bf16
};

// RTX 4070 with NVIDIA's driver: its maxMemoryAllocationSize is usual for NVIDIA. RX 7800 XT with
// RADV: ggml-org/llama.cpp#17117 (allocations), #12015 (shared memory); Mesa 25.2
// has the bf16 matrices. Its device memory is 16 GiB. Arc A770 with ANV: its matrix units are not
// used (matrix_units.cpp). Adreno 740 with Qualcomm's driver: as Adreno 750,
// ggml-org/llama.cpp#8743, #16881.
constexpr Model kModels[] = {
    {"rtx4070",
     VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU,
     kNvidia,
     {32, 32, 32},
     1024,
     49152,
     12 * kGiB,
     4 * kGiB - 2 * kMiB,
     true,
     {16, 16, 16}},
    {"rx7800xt",
     VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU,
     kAmd,
     {64, 32, 64},
     1024,
     65536,
     16 * kGiB,
     4 * kGiB - 4,
     true,
     {16, 16, 16}},
    {"arc770",
     VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU,
     kIntel,
     {32, 8, 32},
     1024,
     65536,
     16 * kGiB,
     4 * kGiB,
     true,
     {}},
    {"adreno740",
     VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU,
     kQualcomm,
     {64, 0, 0},
     1024,
     32768,
     8 * kGiB,
     2 * kGiB,
     false,
     {}},
};

PhysicalDevice physical_of(const Model& model) {
  PhysicalDevice out;
  out.properties.deviceType = model.type;
  out.properties.vendorID = model.vendor;
  out.subgroup_size = out.default_subgroup = model.subgroup.size;
  out.min_subgroup = model.subgroup.min;
  out.max_subgroup = model.subgroup.max;
  out.max_invocations = model.invocations;
  out.max_shared_bytes = model.shared_bytes;
  out.memory_bytes = model.memory_bytes;
  out.max_allocation_bytes = out.max_buffer_bytes = model.buffer_bytes;
  out.is_discrete = model.type == VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
  out.has_int64 = model.int64;
  out.keeps_special_values = true;
  out.has_16bit_storage = out.has_8bit_storage = true;
  out.f16_unit = out.bf16_unit = model.unit;
  out.has_matrix_hardware = model.unit.m != 0;
  return out;
}

std::string name_of(const Command& command) {
  switch (command.kind) {
    case Command::Kind::copy:
      return "copy";
    case Command::Kind::fill:
      return "fill";
    default:
      return kPackedShaders[command.key.shader].name;
  }
}

// By record: the names of the launches of its first run.
std::vector<std::vector<std::string>> kernels_of(const device::Program& program,
                                                 std::span<const Command> commands) {
  std::vector<std::vector<std::string>> out(program.records.size());
  for (const Command& command : commands) {
    if (command.kind != Command::Kind::barrier) {
      out[command.record].push_back(name_of(command));
    }
  }
  uint32_t runs = 1;
  for (size_t r = 0; r < out.size(); ++r) {
    const device::Record& record = program.records[r];
    if (record.kind != device::Record::Kind::op) {
      runs = record.kind == device::Record::Kind::repeat_begin ? std::max(record.count, 1u) : 1;
    }
    out[r].resize(out[r].size() / runs);
  }
  return out;
}

class PlannedRecording final : public device::Recording {
 public:
  PlannedRecording(uint32_t launches, std::vector<std::vector<std::string>> kernels)
      : launches_(launches), kernels_(std::move(kernels)) {}
  uint32_t launches() const override { return launches_; }
  std::span<const std::vector<std::string>> kernels() const override { return kernels_; }

 private:
  uint32_t launches_;
  std::vector<std::vector<std::string>> kernels_;
};

Status no_hardware() {
  return Status(Code::unsupported, "This Vulkan device only makes plans: it has no hardware.");
}

class PlannedDevice final : public device::Device {
 public:
  explicit PlannedDevice(const PhysicalDevice& physical)
      : physical_(physical), capabilities_(capabilities_of(physical)) {
    capabilities_.tuning = {};
  }

  const device::Capabilities& capabilities() const override { return capabilities_; }
  device::NodeAnswer query(const device::NodeQuery& node) const override {
    return answer_to(node, physical_);
  }
  Result<std::unique_ptr<device::Recording>> plan(const device::Program& program) override {
    // The addresses are never used. They are aligned as those of a device.
    std::vector<Buffer> buffers(std::max(program.slots, device::kFirstStorageSlot));
    std::vector<const Buffer*> slots, hosts;
    for (size_t s = 0; s < buffers.size(); ++s) {
      buffers[s].address = (s + 1) << 40;
      buffers[s].bytes = capabilities_.max_buffer_bytes;
      slots.push_back(&buffers[s]);
      const bool is_twin =
          physical_.is_discrete && (s == device::kIoSlot || s == device::kStepSlot);
      hosts.push_back(is_twin ? &buffers[s] : nullptr);
    }
    CommandList list;
    fill_twins(program, slots, hosts, &list);
    BOWLINE_TRY(lower(physical_, program, slots, &list));
    read_twins(program, slots, hosts, &list);
    return std::unique_ptr<device::Recording>(std::make_unique<PlannedRecording>(
        launches_of(list.commands), kernels_of(program, list.commands)));
  }

  Result<device::MemoryInfo> memory_info() override { return no_hardware(); }
  Result<device::Buffer> allocate(uint64_t, device::MemoryKind) override { return no_hardware(); }
  void free(device::Buffer) override {}
  Status copy_in(device::Buffer, uint64_t, std::span<const std::byte>) override {
    return no_hardware();
  }
  Status copy_out(std::span<std::byte>, device::Buffer, uint64_t) override { return no_hardware(); }
  Status copy(device::Buffer, uint64_t, device::Buffer, uint64_t, uint64_t) override {
    return no_hardware();
  }
  Status fill(device::Buffer, uint64_t, uint64_t, std::byte) override { return no_hardware(); }
  Result<std::unique_ptr<device::Recording>> record(const device::Program&,
                                                    std::span<const device::Buffer>) override {
    return no_hardware();
  }
  Status submit(std::span<device::Recording* const>) override { return no_hardware(); }
  Status wait() override { return no_hardware(); }
  Result<std::vector<device::RecordTime>> timestamps(device::Recording&) override {
    return no_hardware();
  }

 private:
  PhysicalDevice physical_;
  device::Capabilities capabilities_;
};

}  // namespace

std::unique_ptr<device::Device> planned_device(std::string_view model) {
  const auto* const found = std::ranges::find(kModels, model, &Model::name);
  return found == std::end(kModels) ? nullptr
                                    : std::make_unique<PlannedDevice>(physical_of(*found));
}

}  // namespace bowline::detail::vulkan
