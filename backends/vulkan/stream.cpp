#include "stream.h"

#include <algorithm>
#include <utility>

#include "bindings.h"

namespace bowline::detail::vulkan {
namespace {

constexpr uint32_t kMaxGroups = 65535;  // limit of every device per axis of a dispatch

constexpr VkPipelineStageFlags kComputeStage = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT;
constexpr VkPipelineStageFlags kTransferStage = VK_PIPELINE_STAGE_TRANSFER_BIT;
constexpr VkPipelineStageFlags kHostStage = VK_PIPELINE_STAGE_HOST_BIT;

// Commands of the stages `to` wait for earlier commands of the stages `from`, and see what they
// wrote.
void memory_barrier(const DeviceFunctions& vk, VkCommandBuffer buffer, VkPipelineStageFlags from,
                    VkPipelineStageFlags to) {
  const auto accesses = [](VkPipelineStageFlags stages, VkAccessFlags compute,
                           VkAccessFlags transfer, VkAccessFlags host) {
    return ((stages & kComputeStage) != 0 ? compute : 0) |
           ((stages & kTransferStage) != 0 ? transfer : 0) |
           ((stages & kHostStage) != 0 ? host : 0);
  };
  auto barrier = typed<VkMemoryBarrier>(VK_STRUCTURE_TYPE_MEMORY_BARRIER);
  barrier.srcAccessMask =
      accesses(from, VK_ACCESS_SHADER_WRITE_BIT, VK_ACCESS_TRANSFER_WRITE_BIT, 0);
  barrier.dstAccessMask =
      accesses(to, VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT,
               VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT, VK_ACCESS_HOST_READ_BIT);
  vk.vkCmdPipelineBarrier(buffer, from, to, 0, 1, &barrier, 0, nullptr, 0, nullptr);
}

// A dispatch as rows of workgroups. Every row has `x` workgroups, except perhaps the last; shaders
// check their bounds.
struct Rows {
  uint32_t x = 1;
  uint32_t y = 1;
};

Rows rows_of(const Command& command, double limit_ns) {
  Rows rows;
  // A long dispatch gets at least as many rows as it has parts.
  const auto cuts = static_cast<uint64_t>(command.ns / limit_ns) + 1;
  const uint64_t x = std::clamp<uint64_t>((command.groups + cuts - 1) / cuts, 1, kMaxGroups);
  rows.x = static_cast<uint32_t>(x);
  rows.y = static_cast<uint32_t>((command.groups + x - 1) / x);
  return rows;
}

// Writes commands into a series of command buffers.
class Encoder {
 public:
  Encoder(Device& device, Pipelines& pipelines, std::span<const VkDescriptorSet> sets)
      : device_(device),
        vk_(device.call()),
        pipelines_(pipelines),
        sets_(sets),
        limit_ns_(kSubmissionNs / device.slowness()) {}

  VkResult begin() {
    auto allocate =
        typed<VkCommandBufferAllocateInfo>(VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO);
    allocate.commandPool = device_.command_pool();
    allocate.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
    allocate.commandBufferCount = 1;
    piece_ = {};
    bound_ = VK_NULL_HANDLE;
    bound_set_ = VK_NULL_HANDLE;
    VkResult result = vk_.vkAllocateCommandBuffers(device_.handle(), &allocate, &piece_.buffer);
    if (result != VK_SUCCESS) {
      return result;
    }
    const auto info = typed<VkCommandBufferBeginInfo>(VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO);
    result = vk_.vkBeginCommandBuffer(piece_.buffer, &info);
    used_ = kComputeStage | kTransferStage;  // by earlier buffers
    barrier();
    return result;
  }

  VkResult end(Piece* piece) {
    *piece = piece_;
    piece_ = {};
    return vk_.vkEndCommandBuffer(piece->buffer);
  }

  VkCommandBuffer buffer() const { return piece_.buffer; }
  double ns() const { return piece_.ns; }
  // Of a submission, as an estimated time.
  double limit_ns() const { return limit_ns_; }

  VkResult bind(const Command& command) {
    VkPipeline pipeline = VK_NULL_HANDLE;
    const VkResult result = pipelines_.get(command.key, &pipeline);
    if (result == VK_SUCCESS && pipeline != bound_) {
      vk_.vkCmdBindPipeline(piece_.buffer, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
      bound_ = pipeline;
    }
    if (result == VK_SUCCESS && !sets_.empty() && sets_[command.set] != bound_set_) {
      bound_set_ = sets_[command.set];
      vk_.vkCmdBindDescriptorSets(piece_.buffer, VK_PIPELINE_BIND_POINT_COMPUTE,
                                  pipelines_.layout(), 0, 1, &bound_set_, 0, nullptr);
    }
    if (result == VK_SUCCESS) {
      vk_.vkCmdPushConstants(piece_.buffer, pipelines_.layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0,
                             command.push.bytes(), command.push.data());
    }
    return result;
  }

  // To be called before the last end(): the host may read what the commands wrote.
  void show_host() { host_barrier(vk_, piece_.buffer); }

  // Rows [first, first + count) of the dispatch.
  void dispatch(const Command& command, const Rows& rows, uint32_t first, uint32_t count,
                double ns) {
    use(kComputeStage);
    vk_.vkCmdDispatchBase(piece_.buffer, 0, first, 0, rows.x, count, 1);
    used(command.record, ns);
  }

  void transfer(const Command& command) {
    use(kTransferStage);
    if (command.kind == Command::Kind::copy) {
      const VkBufferCopy region{command.from.offset, command.to.offset, command.bytes};
      vk_.vkCmdCopyBuffer(piece_.buffer, command.from.buffer, command.to.buffer, 1, &region);
    } else {
      vk_.vkCmdFillBuffer(piece_.buffer, command.to.buffer, command.to.offset,
                          (command.bytes + 3) / 4 * 4, command.word);
    }
    used(command.record, command.ns);
  }

  // Later commands wait for all earlier ones. The next command of each stage encodes the wait, so
  // that a dispatch does not wait for transfers if there are none.
  void barrier() {
    compute_waits_for_ |= used_;
    transfers_wait_for_ |= used_;
    used_ = 0;
  }

  // All later commands wait now.
  void end_all() {
    if (used_ != 0) {
      full_barrier(vk_, piece_.buffer);
    }
    used_ = compute_waits_for_ = transfers_wait_for_ = 0;
  }

 private:
  // To be called before a command of this stage is encoded.
  void use(VkPipelineStageFlags stage) {
    VkPipelineStageFlags& from = stage == kComputeStage ? compute_waits_for_ : transfers_wait_for_;
    if (from != 0) {
      memory_barrier(vk_, piece_.buffer, from, stage);
      from = 0;
    }
    used_ |= stage;
  }

  void used(uint32_t record, double ns) {
    piece_.first = piece_.ns == 0 ? record : piece_.first;
    piece_.last = record;
    piece_.ns += ns;
  }

  Device& device_;
  const DeviceFunctions& vk_;
  Pipelines& pipelines_;
  std::span<const VkDescriptorSet> sets_;
  double limit_ns_;
  Piece piece_;
  VkPipeline bound_ = VK_NULL_HANDLE;
  VkDescriptorSet bound_set_ = VK_NULL_HANDLE;
  // Stages of commands:
  VkPipelineStageFlags used_ = 0;  // since the last barrier
  VkPipelineStageFlags compute_waits_for_ = 0;
  VkPipelineStageFlags transfers_wait_for_ = 0;
};

// Encodes one command, and starts a new buffer when the time of the buffer is used up.
VkResult encode_one(const Command& command, Encoder* encoder, std::vector<Piece>* pieces) {
  VkResult result = VK_SUCCESS;
  const auto cut = [&]() {
    pieces->emplace_back();
    result = encoder->end(&pieces->back());
    return result == VK_SUCCESS ? encoder->begin() : result;
  };
  if (command.kind == Command::Kind::barrier) {
    encoder->barrier();
    return VK_SUCCESS;
  }
  const double limit = encoder->limit_ns();
  if (encoder->ns() > 0 && encoder->ns() + std::min(command.ns, limit) > limit) {
    result = cut();
  }
  if (result == VK_SUCCESS && command.kind != Command::Kind::dispatch) {
    encoder->transfer(command);
    return VK_SUCCESS;
  }
  const Rows rows = rows_of(command, limit);
  const double row_ns = command.ns / rows.y;
  const auto at_once = static_cast<uint32_t>(std::clamp(limit / row_ns, 1.0, 1.0 * rows.y));
  for (uint32_t y = 0; y < rows.y && result == VK_SUCCESS; y += at_once) {
    if (y > 0) {
      result = cut();
    }
    if (result == VK_SUCCESS) {
      result = encoder->bind(command);
    }
    if (result == VK_SUCCESS) {
      const uint32_t count = std::min(at_once, rows.y - y);
      encoder->dispatch(command, rows, y, count, row_ns * count);
    }
  }
  return result;
}

}  // namespace

void full_barrier(const DeviceFunctions& vk, VkCommandBuffer buffer) {
  memory_barrier(vk, buffer, kComputeStage | kTransferStage, kComputeStage | kTransferStage);
}

void host_barrier(const DeviceFunctions& vk, VkCommandBuffer buffer) {
  memory_barrier(vk, buffer, kComputeStage | kTransferStage, kHostStage);
}

namespace {

void free_all(Device& device, std::span<const Piece> pieces) {
  for (const Piece& piece : pieces) {
    if (piece.buffer != VK_NULL_HANDLE) {
      device.call().vkFreeCommandBuffers(device.handle(), device.command_pool(), 1, &piece.buffer);
    }
  }
}

}  // namespace

Submitted Stream::work_of(const Piece& first, const Piece& last) const {
  if (nodes.empty()) {
    return {};
  }
  return {nodes[first.first].number, nodes[last.last].number, nodes[first.first].op,
          nodes[last.last].op, 0};
}

Stream::~Stream() {
  if (device_->hung() != nullptr) {
    return;
  }
  free_all(*device_, pieces);
  if (set_pool != VK_NULL_HANDLE) {
    device_->call().vkDestroyDescriptorPool(device_->handle(), set_pool, nullptr);
  }
  destroy_buffer(*device_, &tables);
}

Status place_tables(const PhysicalDevice& physical, const device::Program& program,
                    const Buffer& tables, CommandList* list) {
  for (Command& command : list->commands) {
    if (!command.push.has_tables()) {
      continue;
    }
    command.push.place_tables(
        physical.has_buffer_addresses
            ? tables.address
            : address_of_bound(bind(tables.handle, &list->sets[command.set])) + tables.offset);
  }
  for (Command& command : list->commands) {
    if (physical.has_buffer_addresses || command.kind != Command::Kind::dispatch) {
      continue;
    }
    command.key.buffers = static_cast<uint32_t>(list->sets[command.set].size());
    BOWLINE_REQUIRE_CODE(command.key.buffers <= physical.max_bound_buffers, Code::unsupported,
                         "A launch of {} uses {} buffers of at most {} bytes. The device lacks "
                         "bufferDeviceAddress, and its shaders can bind {} buffers.",
                         program.records[command.record].op, command.key.buffers,
                         physical.max_buffer_bytes, physical.max_bound_buffers);
  }
  return {};
}

VkResult make_sets(Device& device, const Pipelines& pipelines, std::span<const BoundBuffers> all,
                   Stream* stream) {
  if (all.empty()) {
    return VK_SUCCESS;
  }
  const DeviceFunctions& vk = device.call();
  const auto count = static_cast<uint32_t>(all.size());
  const uint32_t buffers = device.physical().max_bound_buffers;
  const VkDescriptorPoolSize size{VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, count * buffers};
  auto pool = typed<VkDescriptorPoolCreateInfo>(VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO);
  pool.maxSets = count;
  pool.poolSizeCount = 1;
  pool.pPoolSizes = &size;
  VkResult result = vk.vkCreateDescriptorPool(device.handle(), &pool, nullptr, &stream->set_pool);
  if (result != VK_SUCCESS) {
    return result;
  }
  const std::vector<VkDescriptorSetLayout> layouts(count, pipelines.set_layout());
  auto info = typed<VkDescriptorSetAllocateInfo>(VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO);
  info.descriptorPool = stream->set_pool;
  info.descriptorSetCount = count;
  info.pSetLayouts = layouts.data();
  stream->sets.resize(count);
  result = vk.vkAllocateDescriptorSets(device.handle(), &info, stream->sets.data());
  if (result != VK_SUCCESS) {
    return result;
  }
  for (size_t i = 0; i < all.size(); ++i) {
    // Every descriptor of the layout must be valid. Shaders do not access those after the last.
    std::vector<VkDescriptorBufferInfo> infos(buffers, {all[i].back(), 0, VK_WHOLE_SIZE});
    for (size_t b = 0; b < all[i].size(); ++b) {
      infos[b].buffer = all[i][b];
    }
    auto write = typed<VkWriteDescriptorSet>(VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET);
    write.dstSet = stream->sets[i];
    write.descriptorCount = buffers;
    write.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
    write.pBufferInfo = infos.data();
    vk.vkUpdateDescriptorSets(device.handle(), 1, &write, 0, nullptr);
  }
  return VK_SUCCESS;
}

VkResult encode(Device& device, Pipelines& pipelines, Stream* stream) {
  stream->slowness = device.slowness();
  Encoder encoder(device, pipelines, stream->sets);
  VkResult result = encoder.begin();
  for (const Command& command : stream->commands) {
    if (result != VK_SUCCESS) {
      break;
    }
    result = encode_one(command, &encoder, &stream->pieces);
  }
  if (encoder.buffer() != VK_NULL_HANDLE) {
    // Also after a failure, so that the stream frees the last buffer.
    encoder.show_host();
    stream->pieces.emplace_back();
    const VkResult ended = encoder.end(&stream->pieces.back());
    result = result == VK_SUCCESS ? ended : result;
  }
  return result;
}

void cut_again(Device& device, Pipelines& pipelines, Stream* stream) {
  constexpr double kMuchFaster = 2;
  const double before = stream->slowness;
  if (stream->pieces.size() < 2 || device.slowness() * kMuchFaster > before) {
    return;
  }
  std::vector<Piece> old = std::exchange(stream->pieces, {});
  if (encode(device, pipelines, stream) != VK_SUCCESS) {
    stream->pieces.swap(old);
    stream->slowness = before;
  }
  free_all(device, old);
}

VkResult clock(Device& device, Pipelines& pipelines, const Stream& stream,
               std::vector<double>* ns) {
  const DeviceFunctions& vk = device.call();
  ns->assign(stream.nodes.size(), 0);
  const double period = device.physical().properties.limits.timestampPeriod;
  constexpr uint32_t kBatch = 1024;  // timed commands per submission
  auto info = typed<VkQueryPoolCreateInfo>(VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO);
  info.queryType = VK_QUERY_TYPE_TIMESTAMP;
  info.queryCount = kBatch + 1;
  VkQueryPool pool = VK_NULL_HANDLE;
  VkResult result = vk.vkCreateQueryPool(device.handle(), &info, nullptr, &pool);
  for (size_t first = 0; first < stream.commands.size() && result == VK_SUCCESS; first += kBatch) {
    const size_t end = std::min(stream.commands.size(), first + kBatch);
    Encoder encoder(device, pipelines, stream.sets);
    std::vector<Piece> pieces(1);
    result = encoder.begin();
    if (result == VK_SUCCESS) {
      vk.vkCmdResetQueryPool(encoder.buffer(), pool, 0, kBatch + 1);
      vk.vkCmdWriteTimestamp(encoder.buffer(), VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, pool, 0);
    }
    for (size_t i = first; i < end && result == VK_SUCCESS; ++i) {
      Command command = stream.commands[i];
      // profiled commands are not divided
      command.ns = std::min(command.ns, encoder.limit_ns() / kBatch);
      result = encode_one(command, &encoder, &pieces);
      encoder.end_all();
      vk.vkCmdWriteTimestamp(encoder.buffer(), VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, pool,
                             static_cast<uint32_t>(i - first + 1));
    }
    uint64_t value = 0;
    if (encoder.buffer() != VK_NULL_HANDLE) {
      encoder.show_host();
      const VkResult ended = encoder.end(&pieces[0]);
      result = result == VK_SUCCESS ? ended : result;
    }
    if (result == VK_SUCCESS) {
      result = device.submit(&pieces[0].buffer, 1, stream.work_of(pieces[0], pieces[0]), &value);
    }
    if (result == VK_SUCCESS) {
      result = device.wait(value);
    }
    std::vector<uint64_t> ticks(end - first + 1);
    if (result == VK_SUCCESS) {
      result =
          vk.vkGetQueryPoolResults(device.handle(), pool, 0, static_cast<uint32_t>(ticks.size()),
                                   ticks.size() * sizeof(uint64_t), ticks.data(), sizeof(uint64_t),
                                   VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT);
    }
    for (size_t i = first; i < end && result == VK_SUCCESS; ++i) {
      if (stream.commands[i].is_of_twin) {
        continue;
      }
      (*ns)[stream.commands[i].record] +=
          static_cast<double>(ticks[i - first + 1] - ticks[i - first]) * period;
    }
    if (pieces[0].buffer != VK_NULL_HANDLE) {
      vk.vkFreeCommandBuffers(device.handle(), device.command_pool(), 1, &pieces[0].buffer);
    }
  }
  if (pool != VK_NULL_HANDLE) {
    vk.vkDestroyQueryPool(device.handle(), pool, nullptr);
  }
  return result;
}

}  // namespace bowline::detail::vulkan
