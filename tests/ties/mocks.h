// Devices that keep the contract, but promise nothing else. Five of them prove that ties depend on
// neither pointers nor a layout or dtype. One proves that a plan declares all of its dependencies.
// Each wraps another device.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>

#include "faults/wrapped_device.h"
#include "graph/op_table.h"

namespace bowline::test {

// Handles have their own numbers, and the memory can be accessed only by copies in and out. Code
// that shares by pointer, by object or by a copy of a handle fails here.
class OpaqueDevice : public WrappedDevice {
 public:
  using WrappedDevice::WrappedDevice;

  Result<device::Buffer> allocate(uint64_t bytes, device::MemoryKind kind) override {
    BOWLINE_TRY_ASSIGN(const device::Buffer buffer, WrappedDevice::allocate(bytes, kind));
    next_ = next_ * 6364136223846793005ULL + 1442695040888963407ULL;
    const uint64_t id = next_ | 1;
    inner_of_[id] = buffer;
    return device::Buffer{id};
  }
  void free(device::Buffer buffer) override {
    const auto it = inner_of_.find(buffer.id);
    if (it != inner_of_.end()) {
      WrappedDevice::free(it->second);
      inner_of_.erase(it);
    }
  }
  Status copy_in(device::Buffer to, uint64_t offset, std::span<const std::byte> from) override {
    BOWLINE_TRY_ASSIGN(const device::Buffer buffer, resolve(to));
    return WrappedDevice::copy_in(buffer, offset, from);
  }
  Status copy_out(std::span<std::byte> to, device::Buffer from, uint64_t offset) override {
    BOWLINE_TRY_ASSIGN(const device::Buffer buffer, resolve(from));
    return WrappedDevice::copy_out(to, buffer, offset);
  }
  Status copy(device::Buffer to, uint64_t to_offset, device::Buffer from, uint64_t from_offset,
              uint64_t bytes) override {
    std::vector<std::byte> host(bytes);
    BOWLINE_TRY(copy_out(host, from, from_offset));
    return copy_in(to, to_offset, host);
  }
  Status fill(device::Buffer to, uint64_t offset, uint64_t bytes, std::byte value) override {
    return copy_in(to, offset, std::vector<std::byte>(bytes, value));
  }
  Result<std::unique_ptr<device::Recording>> record(
      const device::Program& program, std::span<const device::Buffer> buffers) override {
    std::vector<device::Buffer> inner;
    for (const device::Buffer b : buffers) {
      if (!b.valid()) {
        inner.push_back(b);
        continue;
      }
      BOWLINE_TRY_ASSIGN(const device::Buffer resolved, resolve(b));
      inner.push_back(resolved);
    }
    return WrappedDevice::record(program, inner);
  }

 private:
  Result<device::Buffer> resolve(device::Buffer buffer) const {
    const auto it = inner_of_.find(buffer.id);
    BOWLINE_REQUIRE(it != inner_of_.end(), "There is no buffer {} on this device.", buffer.id);
    return it->second;
  }
  std::map<uint64_t, device::Buffer> inner_of_;
  uint64_t next_ = 0x9E3779B97F4A7C15ULL;
};

// Reuses a freed address for the next allocation that fits, and fills the memory with NaN. It never
// reuses any other address. Code that remembers an address reads the bytes of another allocation.
class MovingDevice : public WrappedDevice {
 public:
  using WrappedDevice::WrappedDevice;
  ~MovingDevice() override {
    for (const auto& [bytes, buffer] : freed_) {
      WrappedDevice::free(buffer);
    }
  }

  Result<device::Buffer> allocate(uint64_t bytes, device::MemoryKind kind) override {
    const auto it = freed_.lower_bound(bytes);
    if (it != freed_.end() && it->first > 0) {
      const device::Buffer reused = it->second;
      BOWLINE_TRY(WrappedDevice::fill(reused, 0, it->first, std::byte{0xFF}));
      live_[reused.id] = it->first;
      freed_.erase(it);
      return reused;
    }
    BOWLINE_TRY_ASSIGN(const device::Buffer fresh, WrappedDevice::allocate(bytes, kind));
    live_[fresh.id] = bytes;
    return fresh;
  }
  void free(device::Buffer buffer) override {
    const auto it = live_.find(buffer.id);
    if (it == live_.end()) {
      return;
    }
    // A reader of a stale address must notice, so freed memory holds NaN.
    if (it->second > 0 && !WrappedDevice::fill(buffer, 0, it->second, std::byte{0xFF}).ok()) {
      WrappedDevice::free(buffer);
    } else {
      freed_.emplace(it->second, buffer);
    }
    live_.erase(it);
  }

 private:
  std::map<uint64_t, uint64_t> live_;  // buffer -> bytes
  std::multimap<uint64_t, device::Buffer> freed_;
};

// Queues its commands and executes them when a caller waits or reads. It reveals a value that is
// read too early, and a write that overtakes a run.
class LazyDevice : public WrappedDevice {
 public:
  using WrappedDevice::WrappedDevice;
  ~LazyDevice() override { (void)flush(); }

  void free(device::Buffer buffer) override {
    (void)flush();
    WrappedDevice::free(buffer);
  }
  Status copy_in(device::Buffer to, uint64_t offset, std::span<const std::byte> from) override {
    later_.push_back([this, to, offset, bytes = std::vector(from.begin(), from.end())] {
      return WrappedDevice::copy_in(to, offset, bytes);
    });
    return {};
  }
  Status copy_out(std::span<std::byte> to, device::Buffer from, uint64_t offset) override {
    BOWLINE_TRY(flush());
    return WrappedDevice::copy_out(to, from, offset);
  }
  Status copy(device::Buffer to, uint64_t to_offset, device::Buffer from, uint64_t from_offset,
              uint64_t bytes) override {
    later_.push_back(
        [=, this] { return WrappedDevice::copy(to, to_offset, from, from_offset, bytes); });
    return {};
  }
  Status fill(device::Buffer to, uint64_t offset, uint64_t bytes, std::byte value) override {
    later_.push_back([=, this] { return WrappedDevice::fill(to, offset, bytes, value); });
    return {};
  }
  Result<std::unique_ptr<device::Recording>> record(
      const device::Program& program, std::span<const device::Buffer> buffers) override {
    BOWLINE_TRY_ASSIGN(auto inner, WrappedDevice::record(program, buffers));
    return std::unique_ptr<device::Recording>(std::make_unique<Kept>(*this, std::move(inner)));
  }
  Status submit(std::span<device::Recording* const> recordings) override {
    for (device::Recording* r : recordings) {
      later_.push_back([this, r] {
        device::Recording* const inner[] = {static_cast<Kept*>(r)->inner.get()};
        return WrappedDevice::submit(inner);
      });
    }
    return {};
  }
  Status wait() override {
    BOWLINE_TRY(flush());
    return WrappedDevice::wait();
  }
  Result<std::vector<device::RecordTime>> timestamps(device::Recording& recording) override {
    BOWLINE_TRY(flush());
    return WrappedDevice::timestamps(*static_cast<Kept&>(recording).inner);
  }

 private:
  struct Kept : device::Recording {
    Kept(LazyDevice& of, std::unique_ptr<device::Recording> recorded)
        : device(of), inner(std::move(recorded)) {}
    ~Kept() override { (void)device.flush(); }
    uint64_t overhead_bytes() const override { return inner->overhead_bytes(); }
    uint32_t launches() const override { return inner->launches(); }
    LazyDevice& device;
    std::unique_ptr<device::Recording> inner;
  };

  Status flush() {
    const std::vector<std::function<Status()>> now = std::exchange(later_, {});
    for (const auto& one : now) {
      BOWLINE_TRY(one());
    }
    return WrappedDevice::wait();
  }
  std::vector<std::function<Status()>> later_;
};

// Keeps every buffer in blocks, last to first, with padding between them. The bytes follow the
// contract only during a run. Otherwise the memory holds NaN. Code fails here if it takes the bytes
// of a device for those of a parameter, or counts them.
class PackedDevice : public WrappedDevice {
 public:
  using WrappedDevice::WrappedDevice;

  Result<device::Buffer> allocate(uint64_t bytes, device::MemoryKind kind) override {
    BOWLINE_TRY_ASSIGN(const device::Buffer buffer, WrappedDevice::allocate(bytes, kind));
    packed_[buffer.id] = {
        bytes, std::vector<std::byte>((bytes + kBlock - 1) / kBlock * 2 * kBlock, std::byte{0xFF})};
    return buffer;
  }
  void free(device::Buffer buffer) override {
    packed_.erase(buffer.id);
    WrappedDevice::free(buffer);
  }
  Status copy_in(device::Buffer to, uint64_t offset, std::span<const std::byte> from) override {
    BOWLINE_TRY_ASSIGN(Packed* const p, range(to, offset, from.size()));
    for (uint64_t i = 0; i < from.size(); ++i) {
      p->at(offset + i) = from[i];
    }
    return {};
  }
  Status copy_out(std::span<std::byte> to, device::Buffer from, uint64_t offset) override {
    BOWLINE_TRY_ASSIGN(Packed* const p, range(from, offset, to.size()));
    for (uint64_t i = 0; i < to.size(); ++i) {
      to[i] = p->at(offset + i);
    }
    return {};
  }
  Status copy(device::Buffer to, uint64_t to_offset, device::Buffer from, uint64_t from_offset,
              uint64_t bytes) override {
    std::vector<std::byte> host(bytes);
    BOWLINE_TRY(copy_out(host, from, from_offset));
    return copy_in(to, to_offset, host);
  }
  Status fill(device::Buffer to, uint64_t offset, uint64_t bytes, std::byte value) override {
    return copy_in(to, offset, std::vector<std::byte>(bytes, value));
  }
  Status submit(std::span<device::Recording* const> recordings) override {
    BOWLINE_TRY(each([this](device::Buffer buffer, Packed& p) {
      std::vector<std::byte> plain(p.bytes);
      for (uint64_t i = 0; i < p.bytes; ++i) {
        plain[i] = p.at(i);
      }
      return WrappedDevice::copy_in(buffer, 0, plain);
    }));
    BOWLINE_TRY(WrappedDevice::submit(recordings));
    BOWLINE_TRY(WrappedDevice::wait());
    return each([this](device::Buffer buffer, Packed& p) -> Status {
      std::vector<std::byte> plain(p.bytes);
      BOWLINE_TRY(WrappedDevice::copy_out(plain, buffer, 0));
      for (uint64_t i = 0; i < p.bytes; ++i) {
        p.at(i) = plain[i];
      }
      return WrappedDevice::fill(buffer, 0, p.bytes, std::byte{0xFF});
    });
  }

 private:
  static constexpr uint64_t kBlock = 16;
  struct Packed {
    uint64_t bytes = 0;
    std::vector<std::byte> blocks;
    std::byte& at(uint64_t i) {
      const uint64_t count = blocks.size() / (2 * kBlock);
      return blocks[(count - 1 - i / kBlock) * 2 * kBlock + i % kBlock];
    }
  };

  Result<Packed*> range(device::Buffer buffer, uint64_t offset, uint64_t bytes) {
    const auto it = packed_.find(buffer.id);
    BOWLINE_REQUIRE(
        it != packed_.end() && offset <= it->second.bytes && bytes <= it->second.bytes - offset,
        "There are no {} bytes at {} of buffer {}.", bytes, offset, buffer.id);
    return &it->second;
  }
  template <class Do>
  Status each(const Do& work) {
    for (auto& [id, packed] : packed_) {
      if (packed.bytes > 0) {
        BOWLINE_TRY(work(device::Buffer{id}, packed));
      }
    }
    return {};
  }
  std::map<uint64_t, Packed> packed_;
};

// Has kernels for bf16, but f32 kernels only for operators that stay in f32: sums over many
// elements and their gradients, updates, and losses. Plans read bf16 copies of f32 storages. Code
// that takes the copies for the storages loses precision.
class NarrowDevice : public WrappedDevice {
 public:
  explicit NarrowDevice(std::unique_ptr<device::Device> inner)
      : WrappedDevice(std::move(inner)), capabilities_(WrappedDevice::capabilities()) {
    capabilities_.compute = DType::bf16;
  }

  const device::Capabilities& capabilities() const override { return capabilities_; }
  device::NodeAnswer query(const device::NodeQuery& node) const override {
    device::NodeAnswer answer = WrappedDevice::query(node);
    if (answer.reason.empty() && computes_in_f32(node)) {
      answer.reason = "This device computes in bf16.";
    }
    return answer;
  }

 private:
  // Returns true if the node reads f32 values that it could read in bf16, and computes new values.
  static bool computes_in_f32(const device::NodeQuery& node) {
    const OpDef& def = op_def(node.op);
    const bool updates =
        std::ranges::any_of(def.updates, [](const InPlace& pair) { return pair.input >= 0; });
    if (def.stays_f32 || node.op == Op::Scale || updates || def.takes_lists ||
        def.derived_copy == DerivedCopy::by_element) {
      return false;
    }
    bool numbers = false;
    bool moved = true;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const std::span<const DType> types = types_of_input(def.types, i);
      if (node.inputs[i].dtype == DType::f32 &&
          std::ranges::find(types, DType::bf16) != types.end()) {
        numbers = true;
        moved = moved && types.size() == kDTypes;
      }
    }
    const bool compares = !node.outputs.empty() && !is_float(node.outputs[0].dtype);
    return numbers && !moved && !compares;
  }
  device::Capabilities capabilities_;
};

// Runs the records of each level in reverse order, because the records of a level do not depend on
// each other. A record on the same level as its producer reads data that does not exist yet.
class ReorderingDevice : public WrappedDevice {
 public:
  using WrappedDevice::WrappedDevice;

  Result<std::unique_ptr<device::Recording>> record(
      const device::Program& program, std::span<const device::Buffer> buffers) override {
    device::Program reordered = program;
    std::vector<device::Record>& records = reordered.records;
    for (auto begin = records.begin(); begin != records.end();) {
      const auto other = [&](const device::Record& r) {
        return r.kind != begin->kind || r.level != begin->level;
      };
      const auto end = begin->kind == device::Record::Kind::op
                           ? std::find_if(begin, records.end(), other)
                           : begin + 1;
      std::reverse(begin, end);
      begin = end;
    }
    return WrappedDevice::record(reordered, buffers);
  }
};

}  // namespace bowline::test
