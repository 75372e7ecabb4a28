// The null backend: the template for new backends. It allocates memory, checks every call, and
// computes nothing.
//
// To start a backend: cp -r backends/null backends/foo, rename, and fill in from top to bottom. See
// backends/README.md.
#include "device/backend.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>

#include "core/code_rows.h"

namespace bowline::detail::null {
namespace {

using device::Buffer;
using device::kNoTable;
using device::MemoryKind;
using device::NodeAnswer;
using device::NodeQuery;
using device::Operand;
using device::Program;
using device::Record;
using device::Recording;
using device::RecordTime;

constexpr uint64_t kAlignment = 64;

class NullRecording : public Recording {};

class NullDevice : public device::Device {
 public:
  NullDevice() {
    capabilities_.alignment = kAlignment;
    capabilities_.host_memory = true;
  }

  const device::Capabilities& capabilities() const override { return capabilities_; }

  // Supports every operator. A real device returns the reason why it cannot run a node.
  NodeAnswer query(const NodeQuery&) const override { return {}; }

  Result<device::MemoryInfo> memory_info() override {
    return device::MemoryInfo{uint64_t{1} << 40, uint64_t{1} << 40};
  }

  Result<Buffer> allocate(uint64_t bytes, MemoryKind) override {
    // Untouched pages cost nothing.
    Memory memory;
    memory.data.reset(static_cast<std::byte*>(std::calloc(std::max<uint64_t>(bytes, 1), 1)));
    memory.bytes = bytes;
    BOWLINE_REQUIRE_CODE(memory.data != nullptr, Code::out_of_memory, "There are no {} bytes left.",
                         bytes);
    const Buffer buffer{++last_id_};
    memory_.emplace(buffer.id, std::move(memory));
    return buffer;
  }
  void free(Buffer buffer) override { memory_.erase(buffer.id); }

  Status copy_in(Buffer to, uint64_t offset, std::span<const std::byte> from) override {
    BOWLINE_TRY(check(to, offset, from.size()));
    std::ranges::copy(from, at(to, offset));
    return {};
  }
  Status copy_out(std::span<std::byte> to, Buffer from, uint64_t offset) override {
    BOWLINE_TRY(check(from, offset, to.size()));
    std::copy_n(at(from, offset), to.size(), to.begin());
    return {};
  }
  Status copy(Buffer to, uint64_t to_offset, Buffer from, uint64_t from_offset,
              uint64_t bytes) override {
    BOWLINE_TRY(check(to, to_offset, bytes));
    BOWLINE_TRY(check(from, from_offset, bytes));
    std::memmove(at(to, to_offset), at(from, from_offset), bytes);
    return {};
  }
  Status fill(Buffer to, uint64_t offset, uint64_t bytes, std::byte value) override {
    BOWLINE_TRY(check(to, offset, bytes));
    std::memset(at(to, offset), static_cast<int>(value), bytes);
    return {};
  }

  Result<std::unique_ptr<Recording>> record(const Program& program,
                                            std::span<const Buffer> buffers) override {
    BOWLINE_TRY(check_program(program, buffers));
    return std::unique_ptr<Recording>(new NullRecording);
  }
  Status submit(std::span<Recording* const>) override { return {}; }
  Status wait() override { return {}; }
  Result<std::vector<RecordTime>> timestamps(Recording&) override {
    return std::vector<RecordTime>();
  }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  struct Memory {
    std::unique_ptr<std::byte, Free> data;
    uint64_t bytes = 0;
  };

  std::byte* at(Buffer buffer, uint64_t offset) { return memory_[buffer.id].data.get() + offset; }

  Status check(Buffer buffer, uint64_t offset, uint64_t bytes) const {
    const auto it = memory_.find(buffer.id);
    BOWLINE_REQUIRE(it != memory_.end(), "There is no buffer {}.", buffer.id);
    const uint64_t size = it->second.bytes;
    BOWLINE_REQUIRE(offset <= size && bytes <= size - offset,
                    "Bytes {}+{} lie outside a buffer of {}.", offset, bytes, size);
    return {};
  }

  // Checks the guarantees of a Program on which every backend may rely.
  Status check_program(const Program& program, std::span<const Buffer> buffers) const {
    BOWLINE_REQUIRE(buffers.size() == program.slots, "{} buffers are bound to {} slots.",
                    buffers.size(), program.slots);
    const Record* repeat = nullptr;
    for (const Record& r : program.records) {
      if (r.kind == Record::Kind::repeat_begin) {
        BOWLINE_REQUIRE(repeat == nullptr && r.count >= 1,
                        "A Repeat starts inside another Repeat, or has a count of 0.");
        repeat = &r;
      } else if (r.kind == Record::Kind::repeat_end) {
        BOWLINE_REQUIRE(repeat != nullptr, "A Repeat ends without a start.");
        repeat = nullptr;
      } else {
        BOWLINE_TRY(check_step_words(buffers, r).at(format("In a record of {}.", r.op)));
        for (const std::vector<Operand>* side : {&r.inputs, &r.outputs}) {
          for (const Operand& o : *side) {
            BOWLINE_TRY(
                check_operand(program, buffers, o, repeat).at(format("In a record of {}.", r.op)));
          }
        }
      }
    }
    BOWLINE_REQUIRE(repeat == nullptr, "A Repeat does not end.");
    return {};
  }

  Status check_step_words(std::span<const Buffer> buffers, const Record& r) const {
    const std::span<const StepWordInfo> words = step_words(r.op);
    for (size_t i = 0; i < words.size(); ++i) {
      const uint32_t bytes = size_of(words[i].type);
      BOWLINE_REQUIRE(r.step[i] >= sizeof(device::StepHead) && r.step[i] % bytes == 0,
                      "Per-step scalar {} is at byte {}.", words[i].name, r.step[i]);
      BOWLINE_TRY(check(buffers[device::kStepSlot], r.step[i], bytes));
    }
    return {};
  }

  Status check_codes(Buffer buffer, const Operand& o, const CodePlace& place) const {
    const std::optional<CodeLayout> layout = o.encoding.layout(o.shape);
    BOWLINE_REQUIRE(layout.has_value(), "No kernel reads {}.", o.encoding);
    return check(buffer, 0, codes_end(*layout, place, o.shape));
  }

  Status check_operand(const Program& program, std::span<const Buffer> buffers, const Operand& o,
                       const Record* repeat) const {
    if (o.counted_axis >= 0) {
      BOWLINE_REQUIRE(o.counted_axis < o.shape.rank() && o.count_at >= sizeof(device::StepHead) &&
                          o.count_at % size_of(StepType::u32) == 0,
                      "The current size of axis {} of {} is at byte {}.", o.counted_axis, o.shape,
                      o.count_at);
      BOWLINE_TRY(check(buffers[device::kStepSlot], o.count_at, size_of(StepType::u32)));
    }
    if (o.table != kNoTable) {
      BOWLINE_REQUIRE(o.table < program.tables.size(), "Table {} does not exist.", o.table);
      const auto& entries = program.tables[o.table].entries;
      BOWLINE_REQUIRE(repeat == nullptr || entries.size() == repeat->count,
                      "A table has {} entries for {} iterations.", entries.size(),
                      repeat == nullptr ? 0 : repeat->count);
      for (const device::TableEntry& e : entries) {
        BOWLINE_REQUIRE(e.slot < buffers.size(), "Slot {} does not exist.", e.slot);
        const CodePlace place{e.offset, e.scales, e.zeros};
        BOWLINE_TRY(o.encoding.is_plain()
                        ? check(buffers[e.slot], e.offset, e.elements * size_of(o.dtype))
                        : check_codes(buffers[e.slot], o, place));
      }
      return {};
    }
    BOWLINE_REQUIRE(o.slot < buffers.size(), "Slot {} does not exist.", o.slot);
    BOWLINE_REQUIRE(o.modulo == 0 || repeat != nullptr, "An operand steps outside a Repeat.");
    if (!o.encoding.is_plain()) {
      return check_codes(buffers[o.slot], o, {o.offset, o.scales, o.zeros});
    }
    const uint64_t steps = o.modulo == 0 ? 0 : (o.modulo - 1) * o.step_bytes;
    return check(buffers[o.slot], o.offset + steps, o.bytes());
  }

  device::Capabilities capabilities_;
  std::map<uint64_t, Memory> memory_;
  uint64_t last_id_ = 0;
};

class NullBackend : public device::Backend {
 public:
  std::string_view name() const override { return "null"; }
  bool single() const override { return true; }
  int rank() const override { return -1; }
  std::vector<DeviceInfo> enumerate() const override {
    DeviceInfo info;
    info.description = "validates everything, computes nothing";
    info.for_tests = true;
    info.computes = false;
    return {info};
  }
  Result<std::unique_ptr<device::Device>> open(int, const DeviceOptions&) const override {
    return std::unique_ptr<device::Device>(new NullDevice);
  }
};

}  // namespace
}  // namespace bowline::detail::null

namespace bowline::detail::device {
const Backend& backend_null() {
  static const null::NullBackend backend;
  return backend;
}
}  // namespace bowline::detail::device
