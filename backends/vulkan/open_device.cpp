#include "open_device.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "query.h"
#include "twin.h"
#include "vk_status.h"

namespace bowline::detail::vulkan {
namespace {

// Bytes per staged copy, for memory that the host cannot see.
constexpr uint64_t kStagingBytes = 4u << 20;
// A problem of the self test takes less than this time.
constexpr uint64_t kTestWaitNs = 10'000'000'000;

}  // namespace

Result<std::unique_ptr<device::Device>> OpenVulkan::open(int index, const DeviceOptions& options,
                                                         void (*hide)(PhysicalDevice&),
                                                         PFN_vkGetInstanceProcAddr driver) {
  std::unique_ptr<OpenVulkan> self(new OpenVulkan(driver));
  if (const char* reason = self->loader_.open(); reason != nullptr) {
    return Status(Code::unsupported, reason);
  }
  std::vector<PhysicalDevice> devices = physical_devices(self->loader_);
  BOWLINE_REQUIRE(index >= 0 && static_cast<size_t>(index) < devices.size(),
                  "There is no Vulkan device {} (of {}).", index, devices.size());
  PhysicalDevice& physical = devices[static_cast<size_t>(index)];
  if (hide != nullptr) {
    hide(physical);
  }
  BOWLINE_REQUIRE_CODE(physical.reason.empty(), Code::unsupported,
                       "Vulkan device {} cannot be used. {}", index, physical.reason);
  BOWLINE_TRY(self->start_first(physical, options));
  return std::unique_ptr<device::Device>(std::move(self));
}

Status OpenVulkan::start_first(PhysicalDevice physical, const DeviceOptions& options) {
  // For tests: copies are staged even where the host sees the device's memory.
  stages_all_ = std::getenv("BOWLINE_VULKAN_STAGE_COPIES") != nullptr;
  cache_folder_ = options.cache_folder;
  switched_off_ = read_self_test(options.cache_folder, physical);
  with_all_variants_ = physical;
  if (switched_off_.has_value()) {
    for (const SwitchedOff& off : *switched_off_) {
      switch_off(off.variant, &physical);
    }
  }
  return start(physical);
}

VkResult OpenVulkan::make_device(const PhysicalDevice& physical) {
  const auto make = [&](const PhysicalDevice& with) {
    device_ = std::make_unique<vulkan::Device>(loader_, with, program_ ? &*program_ : nullptr);
    return device_->open();
  };
  const VkResult first = make(physical);
  if (first != VK_ERROR_FEATURE_NOT_PRESENT && first != VK_ERROR_EXTENSION_NOT_PRESENT) {
    return first;
  }
  // Without all variants, then with one variant after another that the driver does not refuse. The
  // simple ones come first, because complex ones need them.
  std::vector<std::string_view> off = suspects(physical).back();
  const auto make_without = [&](std::string_view tried) {
    PhysicalDevice without = physical;
    for (const std::string_view name : off) {
      if (name != tried) {
        switch_off(name, &without);
      }
    }
    return make(without);
  };
  for (size_t i = off.size(); i-- > 0;) {
    if (make_without(off[i]) == VK_SUCCESS) {
      off.erase(off.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  const VkResult result = make_without("");
  if (result == VK_SUCCESS) {
    for (const std::string_view name : off) {
      refused_.push_back({std::string(name), "The driver lists its features, but refuses them."});
    }
  }
  return result;
}

Status OpenVulkan::start(const PhysicalDevice& physical) {
  pipelines_ = nullptr;
  lost_ = false;
  BOWLINE_TRY(check(make_device(physical), "opening the device"));
  pipelines_ = std::make_unique<Pipelines>(*device_);
  BOWLINE_TRY(check(pipelines_->open(cache_folder_), "making the pipeline layout"));
  auto info = typed<VkCommandBufferAllocateInfo>(VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO);
  info.commandPool = device_->command_pool();
  info.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
  info.commandBufferCount = 1;
  BOWLINE_TRY(check(device_->call().vkAllocateCommandBuffers(device_->handle(), &info, &copies_),
                    "making the command buffer for copies"));
  capabilities_ = capabilities_of(device_->physical());
  BOWLINE_TRY(find_out_staging());
  return {};
}

// Copies are staged if the host cannot see the device's memory or reads it slowly.
Status OpenVulkan::find_out_staging() {
  Buffer any;
  BOWLINE_TRY(check(create_buffer(*device_, 4, MemoryUse::device, &any), "allocating a buffer", 4));
  if (stages_all_ || any.mapped == nullptr || !any.cached) {
    capabilities_.staging_bytes = kStagingBytes;
  }
  destroy_buffer(*device_, &any);
  return {};
}

void OpenVulkan::stop() {
  if (device_ == nullptr || device_->handle() == VK_NULL_HANDLE) {
    return;
  }
  if (device_->hung() != nullptr) {
    has_hung_ = true;
    return;
  }
  device_->wait_idle();
  if (device_->hung() != nullptr) {
    has_hung_ = true;
    return;
  }
  for (const auto& entry : semaphores_) {
    destroy_semaphore(entry.second);
  }
  semaphores_.clear();
  for (auto* const buffers : {&buffers_, &twins_}) {
    for (auto& entry : *buffers) {
      destroy_buffer(*device_, &entry.second);
    }
  }
  destroy_buffer(*device_, &staging_);
  if (pipelines_ != nullptr && !lost_) {
    pipelines_->save();
  }
}

OpenVulkan::~OpenVulkan() {
  stop();
  if (has_hung_) {
    loader_.leave_open();
  }
}

Result<std::vector<std::string>> OpenVulkan::self_test() {
  if (!switched_off_.has_value()) {
    switched_off_.emplace();
    BOWLINE_TRY(find_variants_that_fail());
    save_self_test(cache_folder_, with_all_variants_, *switched_off_);
  }
  std::vector<std::string> sentences;
  for (const auto* const all : {&refused_, &*switched_off_}) {
    for (const SwitchedOff& off : *all) {
      sentences.push_back(format("{}: {}", off.variant, off.reason));
    }
  }
  return sentences;
}

Status OpenVulkan::find_variants_that_fail() {
  device_->limit_waits(kTestWaitNs);
  std::optional<TestFailure> failure = first_failure(*this);
  while (failure.has_value()) {
    const PhysicalDevice physical = device_->physical();
    const std::optional<TestFailure> before = failure;
    for (const std::vector<std::string_view>& variants : suspects(physical)) {
      PhysicalDevice without = physical;
      for (const std::string_view name : variants) {
        switch_off(name, &without);
      }
      stop();
      BOWLINE_TRY(start(without));
      failure = first_failure(*this);
      if (!failure.has_value() || failure->problem > before->problem) {
        for (const std::string_view name : variants) {
          switched_off_->push_back({std::string(name), before->what});
        }
        break;
      }
    }
    BOWLINE_REQUIRE_CODE(
        !failure.has_value() || failure->problem > before->problem, Code::unsupported,
        "The Vulkan device cannot be used, because its self test fails. {}", failure->what);
  }
  device_->limit_waits(with_all_variants_.wait_limit_ns);
  destroy_buffer(*device_, &staging_);  // the first copy makes it
  return {};
}

Status OpenVulkan::check(VkResult result, std::string_view doing, uint64_t bytes) {
  lost_ = lost_ || result == VK_ERROR_DEVICE_LOST || result == VK_TIMEOUT;
  if (result == VK_TIMEOUT) {
    return hung(doing);
  }
  return to_status(result, doing, bytes);
}

Status OpenVulkan::hung(std::string_view doing) const {
  const Submitted& work = *device_->hung();
  const std::string what = work.first_op == Op::Invalid
                               ? "copying"
                               : format("running nodes {} ({}) to {} ({})", work.first_node,
                                        work.first_op, work.last_node, work.last_op);
  return Status(Code::device_lost,
                format("The Vulkan device hangs: it has been {} for more than {} s.\n- While {}.",
                       what, device_->physical().wait_limit_ns / 1'000'000'000, doing));
}

Status OpenVulkan::check_alive() const {
  return lost_ ? Status(Code::device_lost, "The Vulkan device was lost earlier.") : Status();
}

device::NodeAnswer OpenVulkan::query(const device::NodeQuery& query) const {
  return answer_to(query, device_->physical());
}

Result<device::MemoryInfo> OpenVulkan::memory_info() {
  BOWLINE_TRY(check_alive());
  const MemoryBudget budget = memory_budget(*device_);
  uint64_t own = 0;
  for (const auto* const buffers : {&buffers_, &twins_}) {
    for (const auto& entry : *buffers) {
      own += entry.second.allocated_bytes;
    }
  }
  // Without the extension, only the allocations of this object are known.
  const uint64_t available =
      budget.measured ? budget.free_bytes : budget.total_bytes - std::min(own, budget.total_bytes);
  return device::MemoryInfo{budget.total_bytes, available};
}

Result<device::Buffer> OpenVulkan::allocate(uint64_t bytes, device::MemoryKind kind) {
  BOWLINE_TRY(check_alive());
  Buffer buffer;
  const MemoryUse use = kind == device::MemoryKind::io ? MemoryUse::staging : MemoryUse::device;
  BOWLINE_TRY(check(create_buffer(*device_, bytes, use, &buffer), "allocating a buffer", bytes));
  if (stages_all_ && use == MemoryUse::device) {
    buffer.mapped = nullptr;
  }
  const uint64_t id = next_id_++;
  if (use == MemoryUse::staging && device_->physical().is_discrete) {
    Buffer twin;
    const VkResult result = create_buffer(*device_, bytes, MemoryUse::device, &twin);
    if (result != VK_SUCCESS) {
      destroy_buffer(*device_, &buffer);
      return check(result, "allocating the twin of a buffer", bytes);
    }
    twins_.emplace(id, twin);
  }
  buffers_.emplace(id, buffer);
  return device::Buffer{id};
}

void OpenVulkan::free(device::Buffer buffer) {
  const auto found = buffers_.find(buffer.id);
  if (found == buffers_.end()) {
    return;
  }
  if (!lost_) {
    (void)check(device_->wait_all(), "waiting before memory is freed");
  }
  destroy_buffer(*device_, &found->second);
  buffers_.erase(found);
  if (const auto twin = twins_.find(buffer.id); twin != twins_.end()) {
    destroy_buffer(*device_, &twin->second);
    twins_.erase(twin);
  }
}

Result<Buffer*> OpenVulkan::find(device::Buffer buffer, uint64_t offset, uint64_t bytes) {
  const auto found = buffers_.find(buffer.id);
  BOWLINE_REQUIRE(found != buffers_.end(), "There is no buffer {}.", buffer.id);
  const uint64_t size = found->second.bytes;
  BOWLINE_REQUIRE(offset <= size && bytes <= size - offset,
                  "Bytes {} to {} are outside a buffer of {} bytes.", offset, offset + bytes, size);
  return &found->second;
}

template <class Write>
VkResult OpenVulkan::run_now(const Write& write) {
  const DeviceFunctions& vk = device_->call();
  auto info = typed<VkCommandBufferBeginInfo>(VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO);
  info.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
  VkResult result = vk.vkBeginCommandBuffer(copies_, &info);
  if (result != VK_SUCCESS) {
    return result;
  }
  full_barrier(vk, copies_);
  write(vk, copies_);
  host_barrier(vk, copies_);
  result = vk.vkEndCommandBuffer(copies_);
  uint64_t value = 0;
  if (result == VK_SUCCESS) {
    result = device_->submit(&copies_, 1, {}, &value);
  }
  return result == VK_SUCCESS ? device_->wait(value) : result;
}

VkResult OpenVulkan::copy_now(const Buffer& from, uint64_t from_offset, const Buffer& to,
                              uint64_t to_offset, uint64_t bytes) {
  return run_now([&](const DeviceFunctions& vk, VkCommandBuffer buffer) {
    const VkBufferCopy region{from.offset + from_offset, to.offset + to_offset, bytes};
    vk.vkCmdCopyBuffer(buffer, from.handle, to.handle, 1, &region);
  });
}

template <class Step>
VkResult OpenVulkan::in_stages(uint64_t all, const Step& step) {
  VkResult result = VK_SUCCESS;
  if (staging_.handle == VK_NULL_HANDLE) {
    result = create_buffer(*device_, kStagingBytes, MemoryUse::staging, &staging_);
  }
  for (uint64_t done = 0; done < all && result == VK_SUCCESS; done += kStagingBytes) {
    result = step(done, std::min(kStagingBytes, all - done));
  }
  return result;
}

VkResult OpenVulkan::staged_in(const Buffer& to, uint64_t offset, std::span<const std::byte> from) {
  return in_stages(from.size(), [&](uint64_t done, uint64_t bytes) {
    std::memcpy(staging_.mapped, from.data() + done, bytes);
    return copy_now(staging_, 0, to, offset + done, bytes);
  });
}

VkResult OpenVulkan::staged_out(std::span<std::byte> to, const Buffer& from, uint64_t offset) {
  return in_stages(to.size(), [&](uint64_t done, uint64_t bytes) {
    const VkResult result = copy_now(from, offset + done, staging_, 0, bytes);
    if (result == VK_SUCCESS) {
      std::memcpy(to.data() + done, staging_.mapped, bytes);
    }
    return result;
  });
}

Status OpenVulkan::copy_in(device::Buffer to, uint64_t offset, std::span<const std::byte> from) {
  BOWLINE_TRY(check_alive());
  BOWLINE_TRY_ASSIGN(Buffer * buffer, find(to, offset, from.size()));
  if (from.empty()) {
    return {};
  }
  if (buffer->mapped == nullptr) {
    return check(staged_in(*buffer, offset, from), "copying to the device", from.size());
  }
  BOWLINE_TRY(check(device_->wait_all(), "waiting before a copy to the device"));
  std::memcpy(static_cast<std::byte*>(buffer->mapped) + offset, from.data(), from.size());
  return {};
}

Status OpenVulkan::copy_out(std::span<std::byte> to, device::Buffer from, uint64_t offset) {
  BOWLINE_TRY(check_alive());
  BOWLINE_TRY_ASSIGN(Buffer * buffer, find(from, offset, to.size()));
  if (to.empty()) {
    return {};
  }
  if (buffer->mapped == nullptr || !buffer->cached) {
    return check(staged_out(to, *buffer, offset), "copying from the device", to.size());
  }
  BOWLINE_TRY(check(device_->wait_all(), "waiting before a copy from the device"));
  std::memcpy(to.data(), static_cast<const std::byte*>(buffer->mapped) + offset, to.size());
  return {};
}

Status OpenVulkan::copy(device::Buffer to, uint64_t to_offset, device::Buffer from,
                        uint64_t from_offset, uint64_t bytes) {
  BOWLINE_TRY(check_alive());
  BOWLINE_TRY_ASSIGN(Buffer * target, find(to, to_offset, bytes));
  BOWLINE_TRY_ASSIGN(Buffer * source, find(from, from_offset, bytes));
  BOWLINE_REQUIRE(
      target != source || to_offset + bytes <= from_offset || from_offset + bytes <= to_offset,
      "Source and target of a copy of {} bytes overlap.", bytes);
  if (bytes == 0) {
    return {};
  }
  return check(copy_now(*source, from_offset, *target, to_offset, bytes), "copying on the device");
}

Status OpenVulkan::fill(device::Buffer to, uint64_t offset, uint64_t bytes, std::byte value) {
  BOWLINE_TRY(check_alive());
  BOWLINE_TRY_ASSIGN(Buffer * buffer, find(to, offset, bytes));
  if (bytes == 0) {
    return {};
  }
  if (buffer->mapped != nullptr) {
    BOWLINE_TRY(check(device_->wait_all(), "waiting before a fill"));
    std::memset(static_cast<std::byte*>(buffer->mapped) + offset, std::to_integer<int>(value),
                bytes);
    return {};
  }
  if (offset % 4 != 0 || bytes % 4 != 0) {
    const std::vector<std::byte> host(bytes, value);
    return check(staged_in(*buffer, offset, host), "filling a buffer", bytes);
  }
  return check(run_now([&](const DeviceFunctions& vk, VkCommandBuffer commands) {
                 vk.vkCmdFillBuffer(commands, buffer->handle, buffer->offset + offset, bytes,
                                    std::to_integer<uint32_t>(value) * 0x01010101u);
               }),
               "filling a buffer");
}

Result<std::unique_ptr<device::Recording>> OpenVulkan::record(
    const device::Program& program, std::span<const device::Buffer> buffers) {
  return record_for(device_->physical(), program, buffers);
}

Result<std::unique_ptr<device::Recording>> OpenVulkan::record_for(
    const PhysicalDevice& physical, const device::Program& program,
    std::span<const device::Buffer> buffers) {
  BOWLINE_TRY(check_alive());
  std::vector<const Buffer*> slots;  // as the kernels see them
  std::vector<const Buffer*> hosts;  // on the host, if the slot is a twin
  for (const device::Buffer& buffer : buffers) {
    BOWLINE_TRY_ASSIGN(const Buffer* slot, find(buffer, 0, 0));
    const auto twin = twins_.find(buffer.id);
    slots.push_back(twin == twins_.end() ? slot : &twin->second);
    hosts.push_back(twin == twins_.end() ? nullptr : slot);
  }
  BOWLINE_REQUIRE(program.slots <= slots.size() && slots.size() > device::kStepSlot,
                  "{} buffers are bound to a program of {} slots.", slots.size(), program.slots);
  CommandList list;
  fill_twins(program, slots, hosts, &list);
  BOWLINE_TRY(lower(physical, program, slots, &list));
  read_twins(program, slots, hosts, &list);
  auto stream = std::make_unique<Stream>(*device_);
  for (const device::Record& record : program.records) {
    stream->nodes.push_back({record.node, record.op});
  }
  if (!list.words.empty()) {
    const auto bytes = std::as_bytes(std::span<const uint32_t>(list.words));
    BOWLINE_TRY(check(create_buffer(*device_, bytes.size(), MemoryUse::device, &stream->tables),
                      "allocating the tables of a recording", bytes.size()));
    if (stream->tables.mapped != nullptr) {
      std::memcpy(stream->tables.mapped, bytes.data(), bytes.size());
    } else {
      BOWLINE_TRY(check(staged_in(stream->tables, 0, bytes), "copying the tables of a recording"));
    }
  }
  BOWLINE_TRY(place_tables(physical, program, stream->tables, &list));
  BOWLINE_TRY(check(make_sets(*device_, *pipelines_, list.sets, stream.get()),
                    "making the descriptor sets of a recording"));
  stream->commands = std::move(list.commands);
  BOWLINE_TRY(check(encode(*device_, *pipelines_, stream.get()), "recording a program"));
  return std::unique_ptr<device::Recording>(std::move(stream));
}

Status OpenVulkan::submit(std::span<device::Recording* const> recordings) {
  BOWLINE_TRY(check_alive());
  // Neighbours are submitted together while their time stays below the limit of a submission.
  std::array<VkCommandBuffer, vulkan::Device::kMostBuffers> together;
  Submitted work;
  uint32_t count = 0;
  bool may_stop = true;
  bool has_rest = false;  // the next submission has a part of a recording that must not stop
  const auto flush = [&]() -> Status {
    uint64_t value = 0;
    const uint32_t buffers = std::exchange(count, 0);
    if (buffers == 0) {
      return {};
    }
    if (asked_ != nullptr && may_stop) {
      // One submission runs while this one is prepared, so the device never waits for the host.
      const uint64_t latest = device_->submitted();
      BOWLINE_TRY(check(device_->wait(latest == 0 ? 0 : latest - 1), "waiting for the device"));
      BOWLINE_REQUIRE_CODE(!asked_->load(), Code::cancelled, "The run was cancelled.");
    }
    may_stop = may_stop && !has_rest;
    return check(device_->submit(together.data(), buffers, work, &value), "submitting");
  };
  for (size_t i = 0; i < recordings.size(); ++i) {
    Stream& stream = *static_cast<Stream*>(recordings[i]);
    BOWLINE_TRY(stream.submitted > device_->submitted() ? flush() : Status());
    BOWLINE_TRY(check(device_->wait(std::min(stream.submitted, device_->submitted())),
                      "waiting for an earlier run"));
    cut_again(*device_, *pipelines_, &stream);
    for (const Piece& piece : stream.pieces) {
      if ((work.estimated_ns + piece.ns) * device_->slowness() > kSubmissionNs ||
          count == together.size()) {
        BOWLINE_TRY(flush());
      }
      const Submitted own = stream.work_of(piece, piece);
      const double earlier = count == 0 ? 0 : work.estimated_ns;
      work = count == 0 ? own
                        : Submitted{work.first_node, own.last_node, work.first_op, own.last_op, 0};
      work.estimated_ns = earlier + piece.ns;
      together[count++] = piece.buffer;
      has_rest = has_rest || i >= stoppable_;
      stream.submitted = device_->submitted() + 1;
    }
  }
  return flush();
}

Status OpenVulkan::wait() {
  BOWLINE_TRY(check_alive());
  return check(device_->wait_all(), "waiting for the device");
}

Result<std::vector<device::RecordTime>> OpenVulkan::timestamps(device::Recording& recording) {
  BOWLINE_TRY(check_alive());
  const Stream& stream = static_cast<Stream&>(recording);
  std::vector<double> ns;
  BOWLINE_REQUIRE_CODE(device_->physical().timestamp_bits > 0, Code::unsupported,
                       "The queue of this Vulkan device has no timestamps.");
  BOWLINE_TRY(check(clock(*device_, *pipelines_, stream, &ns), "measuring a recording"));
  std::vector<device::RecordTime> times;
  for (uint32_t r = 0; r < stream.nodes.size(); ++r) {
    times.push_back({r, ns[r]});
  }
  return times;
}

void OpenVulkan::trim() {
  if (!lost_ && device_->wait_all() == VK_SUCCESS) {
    destroy_buffer(*device_, &staging_);
    pipelines_->save();
  }
}

}  // namespace bowline::detail::vulkan
