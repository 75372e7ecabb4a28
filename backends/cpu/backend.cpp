// The CPU backend: host memory, and recordings that run their kernels in order.
#include "device/backend.h"

#include <chrono>
#include <cstring>

#include "base/boundary.h"
#include "base/checked.h"
#include "base/memory.h"
#include "base/threads.h"
#include "compute/arm_extensions.h"
#include "compute/targets.h"
#include "device/external.h"
#include "kernel.h"

namespace bowline::detail::cpu {
namespace {

using namespace device;

constexpr uint64_t kAlignment = 64;
constexpr std::string_view kName = "The CPU";

// The memory of a Buffer. The address is the number of the Buffer.
struct Allocation {
  enum class Source : uint8_t { heap, mapping, program };
  std::byte* data;
  uint64_t bytes;
  Source source;
};

// Memory of the program. Null: it has none left.
void* allocate_of(const HostAllocator& allocator, uint64_t bytes) {
  void* data = nullptr;
  ignoring_exceptions([&] { data = allocator.allocate(bytes, kAlignment); });
  if (reinterpret_cast<uintptr_t>(data) % kAlignment != 0) {
    ignoring_exceptions([&] { allocator.free(data, bytes); });
    data = nullptr;
  }
  return data;
}

Allocation& allocation_of(Buffer buffer) {
  return *reinterpret_cast<Allocation*>(static_cast<uintptr_t>(buffer.id));
}

class CpuRecording : public Recording {
 public:
  CpuRecording(const Program& program, std::span<const Buffer> buffers, Threads& threads)
      : program_(program), constants_(program.records.size()) {
    for (const Buffer b : buffers) {
      bases_.push_back(b.valid() ? allocation_of(b).data : nullptr);
    }
    lists_.resize(program_.tables.size());
    for (size_t t = 0; t < lists_.size(); ++t) {
      for (const device::TableEntry& e : program_.tables[t].entries) {
        lists_[t].push_back(
            {reinterpret_cast<float*>(bases_[e.slot] + e.offset), e.elements, e.first});
      }
    }
    for (size_t i = 0; i < constants_.size(); ++i) {
      const Record& r = program_.records[i];
      const Kernel* kernel = r.kind == Record::Kind::op
                                 ? device::find_kernel<Kernel>(kKernels, r.op, r.type)
                                 : nullptr;
      if (kernel != nullptr && kernel->constant_bytes != nullptr) {
        constants_[i].resize(kernel->constant_bytes(r));
        kernel->make_constant(r, threads, constants_[i].data());
      }
      args_.reserve(std::max(args_.capacity(), r.inputs.size() + r.outputs.size()));
    }
  }

  uint64_t overhead_bytes() const override {
    uint64_t bytes = 0;
    for (const auto& c : constants_) {
      bytes += c.size();
    }
    return bytes;
  }

  // Calls `pause` after every record, or measures the time of every record. Returns false if
  // `threads` was stopped between two records. Throws Stopped if it was stopped within a record.
  bool run(Threads& threads, const std::function<void()>& pause, std::vector<RecordTime>* times) {
    size_t i = 0;
    threads.begin();
    while (i < program_.records.size() && !threads.is_stopped()) {
      if (program_.records[i].kind == Record::Kind::repeat_begin) {
        i = run_repeat(i, threads, pause, times);
      } else {
        run_record(i++, 0, threads, pause, times);
      }
    }
    return !threads.is_stopped();
  }

 private:
  Arg resolve(const Operand& o, uint32_t iteration) const {
    Arg arg;
    arg.shape = &o.shape;
    arg.encoding = &o.encoding;
    if (o.table != kNoTable) {
      arg.list = lists_[o.table];
      if (iteration < arg.list.size()) {
        arg.entry = arg.list[iteration];
        const device::TableEntry& entry = program_.tables[o.table].entries[iteration];
        arg.encoding = &entry.encoding;
        arg.scales = bases_[entry.slot] + entry.scales;
        arg.zeros = bases_[entry.slot] + entry.zeros;
      }
      arg.data = reinterpret_cast<std::byte*>(arg.entry.data);
      return arg;
    }
    const uint64_t step =
        o.modulo == 0 ? 0 : ((uint64_t{iteration} + o.shift) % o.modulo) * o.step_bytes;
    arg.data = bases_[o.slot] + o.offset + step;
    arg.scales = bases_[o.slot] + o.scales;
    arg.zeros = bases_[o.slot] + o.zeros;
    return arg;
  }

  // Runs a Repeat. Returns the position after its end record, or the end if it was stopped.
  size_t run_repeat(size_t begin, Threads& threads, const std::function<void()>& pause,
                    std::vector<RecordTime>* times) {
    const Record& loop = program_.records[begin];
    size_t end = begin;
    for (uint32_t k = 0; k < loop.count; ++k) {
      const uint32_t iteration = loop.reverse ? loop.count - 1 - k : k;
      for (end = begin + 1; program_.records[end].kind != Record::Kind::repeat_end; ++end) {
        if (threads.is_stopped()) {
          return program_.records.size();
        }
        run_record(end, iteration, threads, pause, times);
      }
    }
    return end + 1;
  }

  void run_record(size_t index, uint32_t iteration, Threads& threads,
                  const std::function<void()>& pause, std::vector<RecordTime>* times) {
    const Record& r = program_.records[index];
    args_.clear();
    for (const Operand& o : r.inputs) {
      args_.push_back(resolve(o, iteration));
    }
    for (const Operand& o : r.outputs) {
      args_.push_back(resolve(o, iteration));
    }
    const std::span<const Arg> all(args_);
    auto& head = *reinterpret_cast<device::StepHead*>(bases_[device::kStepSlot]);
    const Launch launch{r,
                        all.first(r.inputs.size()),
                        all.subspan(r.inputs.size()),
                        bases_[r.workspace.slot] + r.workspace.offset,
                        constants_[index].data(),
                        head,
                        threads,
                        iteration};
    const Kernel& kernel = *device::find_kernel<Kernel>(kKernels, r.op, r.type);
    if (times == nullptr) {
      kernel.run(launch);
      threads.rest();
      pause();
      return;
    }
    const auto start = std::chrono::steady_clock::now();
    kernel.run(launch);
    const std::chrono::duration<double, std::nano> d = std::chrono::steady_clock::now() - start;
    times->push_back({static_cast<uint32_t>(index), d.count()});
  }

  const Program program_;
  std::vector<std::byte*> bases_;
  std::vector<std::vector<ListItem>> lists_;
  std::vector<std::vector<std::byte>> constants_;  // by record
  std::vector<Arg> args_;  // operands of the running record; large enough for every record
};

class CpuDevice : public device::Device {
 public:
  CpuDevice(size_t threads, ThreadOptions options, HostAllocator allocator)
      : threads_(threads, std::move(options)), allocator_(std::move(allocator)) {
    capabilities_.alignment = kAlignment;
    capabilities_.host_memory = true;
  }

  const device::Capabilities& capabilities() const override { return capabilities_; }

  NodeAnswer query(const NodeQuery& node) const override {
    NodeAnswer answer;
    const Result<const Kernel*> found = device::kernel_of<Kernel>(kKernels, kName, node);
    if (!found.ok()) {
      answer.reason = found.status().message();
      return answer;
    }
    const Kernel& kernel = *found.value();
    answer.workspace_bytes = kernel.workspace ? kernel.workspace(node, threads_) : 0;
    answer.accumulates = kernel.accumulates;
    return answer;
  }

  Result<device::MemoryInfo> memory_info() override {
    return device::MemoryInfo{total_memory(), available_memory()};
  }

  Result<Buffer> allocate(uint64_t bytes, MemoryKind) override {
    // Large blocks get their own mapping: untouched pages cost nothing, and freeing returns the
    // memory.
    constexpr uint64_t kMapFrom = uint64_t{1} << 20;
    auto allocation = std::make_unique<Allocation>();
    uint64_t rounded = 0;
    std::byte* data = nullptr;
    auto source = bytes >= kMapFrom ? Allocation::Source::mapping : Allocation::Source::heap;
    if (checked_add(bytes, kAlignment - 1, rounded) && rounded <= SIZE_MAX) {
      const auto size =
          static_cast<size_t>(std::max<uint64_t>(rounded / kAlignment * kAlignment, kAlignment));
      rounded = size;
      if (allocator_.allocate != nullptr) {
        source = Allocation::Source::program;
        data = static_cast<std::byte*>(allocate_of(allocator_, size));
      } else {
        data = source == Allocation::Source::mapping ? map_memory(size)
                                                     : allocate_aligned(kAlignment, size);
      }
    }
    BOWLINE_REQUIRE_CODE(data != nullptr, Code::out_of_memory, "{} has no {} bytes left.",
                         source == Allocation::Source::program ? "DeviceOptions::allocator" : kName,
                         bytes);
    *allocation = {data, rounded, source};
    return Buffer{reinterpret_cast<uintptr_t>(allocation.release())};
  }
  Result<Buffer> import_memory(const MemoryImport& memory) override {
    if (memory.kind != MemoryImport::Kind::host) {
      return Device::import_memory(memory);
    }
    BOWLINE_TRY_ASSIGN(const Buffer buffer, allocate(memory.bytes, MemoryKind::device));
    *memory.address = allocation_of(buffer).data;
    return buffer;
  }
  void free(Buffer buffer) override {
    if (!buffer.valid()) {
      return;
    }
    Allocation& a = allocation_of(buffer);
    switch (a.source) {
      case Allocation::Source::heap:
        free_aligned(a.data);
        break;
      case Allocation::Source::mapping:
        unmap_memory(a.data, a.bytes);
        break;
      case Allocation::Source::program:
        ignoring_exceptions([&] { allocator_.free(a.data, a.bytes); });
        break;
    }
    delete &a;
  }

  Status copy_in(Buffer to, uint64_t offset, std::span<const std::byte> from) override {
    BOWLINE_TRY(check(to, offset, from.size()));
    if (!from.empty()) {
      std::memcpy(allocation_of(to).data + offset, from.data(), from.size());
    }
    return {};
  }
  Status copy_out(std::span<std::byte> to, Buffer from, uint64_t offset) override {
    BOWLINE_TRY(check(from, offset, to.size()));
    if (!to.empty()) {
      std::memcpy(to.data(), allocation_of(from).data + offset, to.size());
    }
    return {};
  }
  Status copy(Buffer to, uint64_t to_offset, Buffer from, uint64_t from_offset,
              uint64_t bytes) override {
    BOWLINE_TRY(check(to, to_offset, bytes));
    BOWLINE_TRY(check(from, from_offset, bytes));
    std::memmove(allocation_of(to).data + to_offset, allocation_of(from).data + from_offset, bytes);
    return {};
  }
  Status fill(Buffer to, uint64_t offset, uint64_t bytes, std::byte value) override {
    BOWLINE_TRY(check(to, offset, bytes));
    std::memset(allocation_of(to).data + offset, static_cast<int>(value), bytes);
    return {};
  }

  Result<std::unique_ptr<Recording>> record(const Program& program,
                                            std::span<const Buffer> buffers) override {
    BOWLINE_REQUIRE(buffers.size() == program.slots, "{} buffers are bound to {} slots.",
                    buffers.size(), program.slots);
    for (const Record& r : program.records) {
      if (r.kind == Record::Kind::op) {
        BOWLINE_TRY(device::require_kernel<Kernel>(kKernels, kName, r));
      }
    }
    return std::unique_ptr<Recording>(new CpuRecording(program, buffers, threads_));
  }
  Status submit(std::span<Recording* const> recordings) override {
    // Other threads may submit during a pause, with flags of their own.
    struct Run {
      CpuDevice& device;
      const std::atomic<bool>* asked;
      ~Run() { set(false); }
      void set(bool may_stop) const { device.threads_.set_stop(may_stop ? asked : nullptr); }
    };
    const size_t stoppable = stoppable_;
    const Run own{*this, asked_};
    bool may_stop = false;
    const auto pause = [&own, &may_stop] {
      own.device.pause_();
      own.set(may_stop);
    };
    const auto run_all = [&]() -> Status {
      for (size_t i = 0; i < recordings.size(); ++i) {
        may_stop = i < stoppable;
        own.set(may_stop);
        if (!static_cast<CpuRecording*>(recordings[i])->run(threads_, pause, nullptr)) {
          return Status(Code::cancelled, "The run was cancelled.");
        }
      }
      return {};
    };
#ifdef __cpp_exceptions
    try {
      return run_all();
    } catch (const Stopped&) {
      return Status(Code::cancelled, "The run was cancelled.");
    }
#else
    return run_all();
#endif
  }
  Status wait() override { return {}; }
  void set_stop(const std::atomic<bool>* asked, size_t recordings) override {
    asked_ = asked;
    stoppable_ = recordings;
  }
  void set_pause(std::function<void()> pause) override { pause_ = std::move(pause); }

  Result<std::vector<RecordTime>> timestamps(Recording& recording) override {
    std::vector<RecordTime> times;
    static_cast<CpuRecording&>(recording).run(threads_, pause_, &times);
    return times;
  }

 private:
  static Status check(Buffer buffer, uint64_t offset, uint64_t bytes) {
    BOWLINE_REQUIRE(buffer.valid(), "The buffer is not valid.");
    const uint64_t size = allocation_of(buffer).bytes;
    BOWLINE_REQUIRE(offset <= size && bytes <= size - offset,
                    "Bytes {}+{} lie outside a buffer of {}.", offset, bytes, size);
    return {};
  }

  Threads threads_;
  HostAllocator allocator_;  // empty: the memory of the process
  std::function<void()> pause_ = [] {};
  const std::atomic<bool>* asked_ = nullptr;
  size_t stoppable_ = 0;
  device::Capabilities capabilities_;
};

// Errors  bad_argument: an option is out of range.
Status check_options(const DeviceOptions& options) {
  BOWLINE_REQUIRE(options.max_load >= 0.05 && options.max_load <= 1,
                  "DeviceOptions::max_load is {}, outside 0.05 to 1.", options.max_load);
  BOWLINE_REQUIRE(options.nice >= 0 && options.nice <= 19,
                  "DeviceOptions::nice is {}, outside 0 to 19.", options.nice);
  BOWLINE_REQUIRE(
      options.executor == nullptr || (options.nice == 0 && options.cores.empty()),
      "With DeviceOptions::executor, the device has no threads, so `cores` and `nice` have no "
      "effect. Set them in the threads of the program.");
  BOWLINE_REQUIRE(
      (options.allocator.allocate == nullptr) == (options.allocator.free == nullptr),
      "DeviceOptions::allocator has only one of allocate() and free(). Set both, or none.");
  BOWLINE_REQUIRE_CODE(can_place_threads() || (options.nice == 0 && options.cores.empty()),
                       Code::unsupported, "DeviceOptions::cores and nice need Linux or Windows.");
  for (const int core : options.cores) {
    BOWLINE_REQUIRE(may_run_on(core),
                    "DeviceOptions::cores has core {}, which this process may not use. {}", core,
                    where_cores_are_listed());
  }
  return {};
}

class CpuBackend : public device::Backend {
 public:
  std::string_view name() const override { return "cpu"; }
  bool single() const override { return true; }
  int rank() const override { return 1; }
  std::vector<DeviceInfo> enumerate() const override {
    DeviceInfo info;
    info.unusable = restrict_instruction_set();
    info.description =
        format("{} cores, {}{}", usable_cores(), instruction_set(), instruction_extensions());
    return {info};
  }
  Result<std::unique_ptr<device::Device>> open(int, const DeviceOptions& options) const override {
    BOWLINE_TRY(check_options(options));
    const size_t by_default = options.cores.empty() ? usable_cores() : options.cores.size();
    const size_t threads = options.threads > 0 ? static_cast<size_t>(options.threads) : by_default;
    return std::unique_ptr<device::Device>(
        new CpuDevice(threads, {options.cores, options.nice, options.max_load, options.executor},
                      options.allocator));
  }
};

}  // namespace
}  // namespace bowline::detail::cpu

namespace bowline::detail::device {
const Backend& backend_cpu() {
  static const cpu::CpuBackend backend;
  return backend;
}
}  // namespace bowline::detail::device
