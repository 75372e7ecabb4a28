#include "device/device.h"

#include "base/boundary.h"
#include "base/checked.h"
#include "device/external.h"

namespace bowline::detail::device {

OpenDevice::OpenDevice(DeviceInfo info, std::unique_ptr<Device> device, uint64_t memory_budget,
                       bool has_memory)
    : info_(std::move(info)),
      device_(std::move(device)),
      memory_budget_(memory_budget),
      has_memory_(has_memory) {
  counters_.live_bytes = counters_.peak_bytes = device_->capabilities().staging_bytes;
  device_->set_pause([this] { give_way(); });
}

OpenDevice::~OpenDevice() {
  if (was_forked()) {
    // The destructor of the device would wait for threads of the parent process.
    static_cast<void>(device_.release());
  }
}

std::unique_lock<Turns> OpenDevice::take_turn() const {
  // After a fork, the thread that had the turn does not exist in this process.
  const ThreadId self = this_thread();
  const bool is_free = was_forked() || holder_ == self || inside_ == self;
  return is_free ? std::unique_lock<Turns>() : std::unique_lock(turns_);
}

OpenDevice::Hold::Hold(OpenDevice& device) : device_(device), turn_(device.take_turn()) {
  if (turn_.owns_lock()) {
    device_.holder_ = this_thread();
  }
}

OpenDevice::Hold::~Hold() {
  if (turn_.owns_lock()) {
    device_.holder_ = ThreadId();
  }
}

void OpenDevice::give_way() {
  if (turns_.waiting() == 0) {
    return;
  }
  // Long enough that a thread switch costs little in comparison.
  constexpr auto kSlice = std::chrono::milliseconds(1);
  using Clock = std::chrono::steady_clock;
  if (gives_way_at_ == Clock::time_point()) {
    gives_way_at_ = Clock::now() + kSlice;
  }
  if (Clock::now() < gives_way_at_) {
    return;
  }
  const ThreadId holder = holder_.exchange(ThreadId());
  const ThreadId inside = inside_.exchange(ThreadId());
  turns_.unlock();
  turns_.lock();
  holder_ = holder;
  inside_ = inside;
  gives_way_at_ = {};
}

Status OpenDevice::check_caller() const {
  BOWLINE_REQUIRE_CODE(!was_forked(), Code::device_lost,
                       "Device {} was opened before fork(), and this is the child process. Open a "
                       "device here, and load the model again.",
                       info_.name);
  const ThreadId self = this_thread();
  BOWLINE_REQUIRE(inside_ != self && logging_ != self,
                  "A callback of device {} calls a function that uses the device. It must return "
                  "first.",
                  info_.name);
  return {};
}

void OpenDevice::log(LogLevel level, std::string_view message) {
  const ThreadId self = this_thread();
  if (log_ == nullptr || was_forked() || logging_ == self) {
    return;
  }
  const std::lock_guard one_at_a_time(log_turns_);
  logging_ = self;
  ignoring_exceptions([&] { log_(level, message); });
  logging_ = ThreadId();
}

NodeAnswer OpenDevice::query(const NodeQuery& node) const {
  const std::unique_lock turn = take_turn();
  return device_->query(node);
}

uint32_t OpenDevice::choose(std::string_view key, uint32_t candidates) const {
  const std::unique_lock turn = take_turn();
  if (forced_) {
    return *forced_ < candidates ? *forced_ : kNoCandidate;
  }
  const auto found = choices_.find(key);
  // Another number of candidates: the build that measured them had other kernels.
  const bool fits = found != choices_.end() && found->second.candidates == candidates;
  return fits ? found->second.candidate : kNoCandidate;
}

Choices OpenDevice::choices() const {
  const std::unique_lock turn = take_turn();
  return choices_;
}

void OpenDevice::set_choices(Choices choices) {
  const std::unique_lock turn = take_turn();
  choices_ = std::move(choices);
}

void OpenDevice::force_candidate(std::optional<uint32_t> candidate) {
  const std::unique_lock turn = take_turn();
  forced_ = candidate;
}

Result<MemoryInfo> OpenDevice::memory_info() {
  BOWLINE_TRY(check_caller());
  const std::unique_lock turn = take_turn();
  return device_->memory_info();
}

void Demand::add(uint64_t block_bytes, MemoryKind kind) {
  const auto count = [block_bytes](uint64_t& sum) {
    if (!checked_add(sum, block_bytes, sum)) {
      sum = UINT64_MAX;
    }
  };
  count(bytes);
  if (kind != MemoryKind::io) {
    count(device_bytes);
  }
  largest = std::max(largest, block_bytes);
}

namespace {

// Asking for free memory is slow, so small allocations are left to the driver.
constexpr uint64_t kAskFrom = uint64_t{1} << 20;

}  // namespace

Status OpenDevice::check_budget(uint64_t bytes) const {
  const uint64_t held = counters_.live_bytes;
  BOWLINE_REQUIRE_CODE(
      memory_budget_ == 0 || (held <= memory_budget_ && bytes <= memory_budget_ - held),
      Code::over_budget,
      "{} bytes do not fit on device {}: {} bytes are in use, and its memory budget is {}.", bytes,
      info_.name, held, memory_budget_);
  return {};
}

Status OpenDevice::check_block(uint64_t bytes) const {
  const uint64_t most = capabilities().max_buffer_bytes;
  BOWLINE_REQUIRE_CODE(
      most == 0 || bytes <= most, Code::out_of_memory,
      "A block of {} bytes does not fit on device {}; its largest block can have {} bytes.", bytes,
      info_.name, most);
  return {};
}

Status OpenDevice::require_room(const Demand& demand) {
  BOWLINE_TRY(check_caller());
  const std::unique_lock turn = take_turn();
  BOWLINE_TRY(check_budget(demand.bytes));
  BOWLINE_TRY(check_block(demand.largest));
  if (demand.device_bytes < kAskFrom) {
    return {};
  }
  BOWLINE_TRY_ASSIGN(const MemoryInfo memory, device_->memory_info());
  if (capabilities().host_memory) {
    BOWLINE_REQUIRE_CODE(memory.total_bytes == 0 || demand.device_bytes <= memory.total_bytes,
                         Code::out_of_memory,
                         "{} bytes do not fit on device {}, which has {} bytes.",
                         demand.device_bytes, info_.name, memory.total_bytes);
    return {};
  }
  BOWLINE_REQUIRE_CODE(memory.available_bytes == 0 || demand.device_bytes <= memory.available_bytes,
                       Code::out_of_memory,
                       "{} bytes do not fit on device {}: {} of its {} bytes are free.",
                       demand.device_bytes, info_.name, memory.available_bytes, memory.total_bytes);
  return {};
}

Status OpenDevice::check_size(uint64_t bytes, MemoryKind kind) {
  BOWLINE_TRY(check_budget(bytes));
  BOWLINE_TRY(check_block(bytes));
  if (kind == MemoryKind::io || bytes < kAskFrom) {
    return {};
  }
  BOWLINE_TRY_ASSIGN(const MemoryInfo memory, device_->memory_info());
  BOWLINE_REQUIRE_CODE(memory.total_bytes == 0 || bytes <= memory.available_bytes,
                       Code::out_of_memory,
                       "{} bytes do not fit on device {}: {} of its {} bytes are free.", bytes,
                       info_.name, memory.available_bytes, memory.total_bytes);
  return {};
}

Result<Buffer> OpenDevice::allocate(uint64_t bytes, MemoryKind kind) {
  BOWLINE_TRY(check_caller());
  const Call call(*this);
  BOWLINE_TRY(check_size(bytes, kind));
  Result<Buffer> buffer = device_->allocate(bytes, kind);
  if (buffer.ok()) {
    ++counters_.allocations;
    counters_.live_bytes += bytes;
    counters_.peak_bytes = std::max(counters_.peak_bytes, counters_.live_bytes);
  }
  return buffer;
}

void OpenDevice::free(Buffer buffer, uint64_t bytes) {
  if (was_forked()) {
    return;
  }
  const Call call(*this);
  device_->free(buffer);
  counters_.live_bytes -= bytes;
}

Result<Buffer> OpenDevice::import_memory(const MemoryImport& memory, uint64_t counted_bytes) {
  BOWLINE_TRY(check_caller());
  const Call call(*this);
  const bool is_new =
      memory.kind == MemoryImport::Kind::exportable || memory.kind == MemoryImport::Kind::host;
  BOWLINE_TRY(is_new ? check_size(memory.bytes, MemoryKind::device) : check_budget(counted_bytes));
  Result<Buffer> buffer = device_->import_memory(memory);
  if (buffer.ok()) {
    counters_.allocations += counted_bytes == 0 ? 0 : 1;
    counters_.live_bytes += counted_bytes;
    counters_.peak_bytes = std::max(counters_.peak_bytes, counters_.live_bytes);
  }
  return buffer;
}

Result<std::pair<int, uint64_t>> OpenDevice::export_memory(Buffer buffer) {
  BOWLINE_TRY(check_caller());
  const Call call(*this);
  return device_->export_memory(buffer);
}

Result<uint64_t> OpenDevice::cuda_address(Buffer buffer) {
  BOWLINE_TRY(check_caller());
  const Call call(*this);
  return device_->cuda_address(buffer);
}

Result<uint64_t> OpenDevice::import_semaphore(const SemaphoreImport& semaphore) {
  BOWLINE_TRY(check_caller());
  const Call call(*this);
  return device_->import_semaphore(semaphore);
}

Result<int> OpenDevice::export_semaphore(uint64_t semaphore) {
  BOWLINE_TRY(check_caller());
  const Call call(*this);
  return device_->export_semaphore(semaphore);
}

void OpenDevice::free_semaphore(uint64_t semaphore) {
  if (!was_forked()) {
    const Call call(*this);
    device_->free_semaphore(semaphore);
  }
}

Status OpenDevice::wait_semaphore(uint64_t semaphore, uint64_t value) {
  BOWLINE_TRY(check_caller());
  const Call call(*this);
  return device_->wait_semaphore(semaphore, value);
}

Status OpenDevice::signal_semaphore(uint64_t semaphore, uint64_t value) {
  BOWLINE_TRY(check_caller());
  const Call call(*this);
  return device_->signal_semaphore(semaphore, value);
}

Result<LinkOffer> OpenDevice::offer_link() {
  BOWLINE_TRY(check_caller());
  const Call call(*this);
  return device_->offer_link();
}

Result<std::unique_ptr<Link>> OpenDevice::link(const LinkOffer& first, uint32_t rank, uint32_t size,
                                               double timeout_seconds) {
  BOWLINE_TRY(check_caller());
  const Call call(*this);
  return device_->link(first, rank, size, timeout_seconds);
}

Status OpenDevice::exchange(Link& link, std::span<const Transfer> sent,
                            std::span<const Transfer> received) {
  BOWLINE_TRY(check_caller());
  const Call call(*this);
  return link.exchange(sent, received);
}

void OpenDevice::release(std::unique_ptr<Link> link) {
  if (was_forked()) {
    static_cast<void>(link.release());
    return;
  }
  const Call call(*this);
  link.reset();
}

Status OpenDevice::copy_in(Buffer to, uint64_t offset, std::span<const std::byte> from) {
  BOWLINE_TRY(check_caller());
  const Call call(*this);
  ++counters_.copies_in;
  return device_->copy_in(to, offset, from);
}

Status OpenDevice::copy_out(std::span<std::byte> to, Buffer from, uint64_t offset) {
  BOWLINE_TRY(check_caller());
  const Call call(*this);
  ++counters_.copies_out;
  return guarded([&] { return device_->copy_out(to, from, offset); });
}

Status OpenDevice::copy(Buffer to, uint64_t to_offset, Buffer from, uint64_t from_offset,
                        uint64_t bytes) {
  BOWLINE_TRY(check_caller());
  const Call call(*this);
  ++counters_.copies;
  return device_->copy(to, to_offset, from, from_offset, bytes);
}

Status OpenDevice::fill(Buffer to, uint64_t offset, uint64_t bytes, std::byte value) {
  BOWLINE_TRY(check_caller());
  const Call call(*this);
  ++counters_.fills;
  return device_->fill(to, offset, bytes, value);
}

Result<std::unique_ptr<Recording>> OpenDevice::record(const Program& program,
                                                      std::span<const Buffer> buffers) {
  for (const Record& r : program.records) {
    BOWLINE_REQUIRE_CODE(r.step.size() == step_words(r.op).size(), Code::internal,
                         "A record of {} places {} per-step scalars instead of {}.", r.op,
                         r.step.size(), step_words(r.op).size());
  }
  BOWLINE_TRY(check_caller());
  const Call call(*this);
  auto recording = device_->record(program, buffers);
  if (recording.ok()) {
    const uint64_t bytes = recording.value()->overhead_bytes();
    BOWLINE_TRY(check_budget(bytes).at("While recording a plan."));
    ++counters_.records;
    counters_.live_bytes += bytes;
    counters_.peak_bytes = std::max(counters_.peak_bytes, counters_.live_bytes);
  }
  return recording;
}

void OpenDevice::release(std::unique_ptr<Recording> recording) {
  if (was_forked()) {
    static_cast<void>(recording.release());
    return;
  }
  const Call call(*this);
  counters_.live_bytes -= recording->overhead_bytes();
  recording.reset();
}

Status OpenDevice::submit(std::span<Recording* const> recordings, const Stop& stop) {
  BOWLINE_TRY(check_caller());
  const Call call(*this);
  BOWLINE_REQUIRE_CODE(stop.asked == nullptr || !stop.asked->load(), Code::cancelled,
                       "The run was cancelled before it began.");
  ++counters_.submits;
  gives_way_at_ = {};
  device_->set_stop(stop.asked, stop.recordings);
  Status done = guarded([&] {
    return clock_ == nullptr ? device_->submit(recordings) : submit_timed(recordings, stop);
  });
  device_->set_stop(nullptr, 0);
  return done;
}

Status OpenDevice::submit_timed(std::span<Recording* const> recordings, const Stop& stop) {
  for (size_t i = 0; i < recordings.size(); ++i) {
    BOWLINE_REQUIRE_CODE(stop.asked == nullptr || i >= stop.recordings || !stop.asked->load(),
                         Code::cancelled, "The run was cancelled.");
    BOWLINE_TRY_ASSIGN(std::vector<RecordTime> times, device_->timestamps(*recordings[i]));
    clock_->push_back({recordings[i], std::move(times)});
  }
  return {};
}

bool OpenDevice::start_clock(std::vector<RecordingTimes>* into) {
  const std::unique_lock turn = take_turn();
  const bool free = clock_ == nullptr;
  clock_ = free ? into : clock_;
  return free;
}

void OpenDevice::stop_clock() {
  const std::unique_lock turn = take_turn();
  clock_ = nullptr;
}

Status OpenDevice::wait() {
  BOWLINE_TRY(check_caller());
  const Call call(*this);
  return guarded([&] { return device_->wait(); });
}

DeviceCounters OpenDevice::counters() const {
  const std::unique_lock turn = take_turn();
  return counters_;
}

void OpenDevice::reset_counters() {
  const std::unique_lock turn = take_turn();
  const uint64_t live = counters_.live_bytes;
  counters_ = {};
  counters_.live_bytes = live;
  counters_.peak_bytes = live;
}

Result<std::shared_ptr<Block>> Block::allocate(const std::shared_ptr<OpenDevice>& device,
                                               uint64_t bytes, MemoryKind kind) {
  // Make the owner first, so that no buffer lacks an owner.
  std::shared_ptr<Block> block(new Block(device));
  BOWLINE_TRY_ASSIGN(block->buffer_, device->allocate(bytes, kind));
  block->bytes_ = block->counted_bytes_ = bytes;
  return block;
}

Result<std::shared_ptr<Block>> Block::import(const std::shared_ptr<OpenDevice>& device,
                                             const MemoryImport& memory) {
  std::shared_ptr<Block> block(new Block(device));
  const uint64_t counted = memory.is_of_program() ? 0 : memory.bytes;
  BOWLINE_TRY_ASSIGN(block->buffer_, device->import_memory(memory, counted));
  block->bytes_ = memory.bytes;
  block->counted_bytes_ = counted;
  return block;
}

std::shared_ptr<Block> Block::part(std::shared_ptr<const Block> whole, uint64_t offset,
                                   uint64_t bytes) {
  std::shared_ptr<Block> block(new Block(whole->device_));
  block->buffer_ = whole->buffer_;
  block->offset_ = whole->offset_ + offset;
  block->bytes_ = bytes;
  block->whole_ = std::move(whole);
  return block;
}

Result<std::shared_ptr<Block>> Block::copied(uint64_t at, uint64_t count) const {
  BOWLINE_TRY_ASSIGN(std::shared_ptr<Block> out, allocate(device_, count));
  BOWLINE_TRY(out->copy(0, *this, at, count));
  return out;
}

Status Block::write(uint64_t at, std::span<const std::byte> from) const {
  return from.empty() ? Status() : device_->copy_in(buffer_, offset_ + at, from);
}

Status Block::read(uint64_t at, std::span<std::byte> to) const {
  return to.empty() ? Status() : device_->copy_out(to, buffer_, offset_ + at);
}

Status Block::fill(std::byte value) const {
  return bytes_ == 0 ? Status() : device_->fill(buffer_, offset_, bytes_, value);
}

Status Block::copy(uint64_t at, const Block& from, uint64_t from_at, uint64_t count) const {
  return count == 0
             ? Status()
             : device_->copy(buffer_, offset_ + at, from.buffer_, from.offset_ + from_at, count);
}

namespace {

// Converts offsets in blocks to offsets in their allocations.
Program in_allocations(const Program& program, std::span<const Block* const> slots) {
  Program out = program;
  // Scales and zero points are in the same block. Plain operands do not use these offsets.
  const auto shift_parts = [&](auto& of) {
    const uint64_t by = slots[of.slot]->offset();
    of.offset += by;
    of.scales += by;
    of.zeros += by;
  };
  const auto shift = [&](Operand& o) {
    if (o.table == kNoTable) {
      shift_parts(o);
    }
  };
  for (Record& r : out.records) {
    std::ranges::for_each(r.inputs, shift);
    std::ranges::for_each(r.outputs, shift);
    shift(r.workspace);
  }
  for (Table& table : out.tables) {
    std::ranges::for_each(table.entries, shift_parts);
  }
  return out;
}

}  // namespace

Result<std::unique_ptr<Recording>> record(OpenDevice& device, const Program& program,
                                          std::span<const Block* const> slots) {
  std::vector<Buffer> buffers;
  for (const Block* block : slots) {
    buffers.push_back(block->buffer());
  }
  const bool parts = std::ranges::any_of(slots, [](const Block* b) { return b->offset() != 0; });
  return device.record(parts ? in_allocations(program, slots) : program, buffers);
}

}  // namespace bowline::detail::device
