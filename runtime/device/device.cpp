#include "device/device.h"

#include "base/boundary.h"
#include "base/checked.h"
#include "bowline.h"
#include "device/planning.h"

namespace bowline::detail::device {
namespace {

std::string device_name(const Backend& backend, size_t index) {
  return backend.single() ? std::string(backend.name()) : format("{}:{}", backend.name(), index);
}

struct Candidate {
  const Backend* backend;
  int index;
  DeviceInfo info;
};

void add_candidates(const Backend& backend, std::vector<Candidate>& out) {
  std::vector<DeviceInfo> infos = backend.enumerate();
  for (size_t i = 0; i < infos.size(); ++i) {
    infos[i].name = device_name(backend, i);
    if (infos[i].unusable.empty() && backend.contract_version() != kContractVersion) {
      infos[i].unusable = format("It was built for version {} of the backend contract, not {}.",
                                 backend.contract_version(), kContractVersion);
    }
    out.push_back({&backend, static_cast<int>(i), std::move(infos[i])});
  }
}

std::vector<Candidate> all_candidates() {
  std::vector<Candidate> out;
  for (const Backend* backend : backends()) {
    add_candidates(*backend, out);
  }
  return out;
}

// The devices that may have this name. Asking a backend may load drivers. So only the named backend
// is asked, and for "best" and "gpu" the backends that may have a GPU or need none.
std::vector<Candidate> candidates_for(std::string_view name) {
  if (name == "best" || name == "gpu") {
    std::vector<Candidate> out;
    for (const Backend* backend : backends()) {
      if (backend->rank() < kGpuRank || backend->may_have_gpu()) {
        add_candidates(*backend, out);
      }
    }
    return out;
  }
  const std::string_view stem = name.substr(0, name.find(':'));
  for (const Backend* backend : backends()) {
    if (backend->name() == stem) {
      std::vector<Candidate> out;
      add_candidates(*backend, out);
      return out;
    }
  }
  return all_candidates();
}

int rank(const Candidate& c) { return c.info.software ? 0 : c.backend->rank(); }

// The best usable device of at least this rank, or null.
const Candidate* best_of(const std::vector<Candidate>& all, int least_rank) {
  const Candidate* best = nullptr;
  for (const Candidate& c : all) {
    if (c.info.unusable.empty() && !c.info.for_tests && rank(c) >= least_rank &&
        (!best || rank(c) > rank(*best))) {
      best = &c;
    }
  }
  return best;
}

// Lists all devices, each with the reason why it is not a usable GPU.
std::string why_no_gpu(const std::vector<Candidate>& all) {
  std::string out;
  for (const Candidate& c : all) {
    if (!c.info.for_tests) {
      out += format("\n- {} ({}): {}", c.info.name, c.info.description,
                    !c.info.unusable.empty() ? c.info.unusable
                    : c.info.software        ? "a software driver, not a GPU."
                                             : "the processor, not a GPU.");
    }
  }
  return out;
}

// The advice at the end of a message about a GPU: the device that needs no GPU.
std::string way_out(const std::vector<Candidate>& all) {
  const auto cpu = std::ranges::find_if(all, [](const Candidate& c) {
    return c.info.unusable.empty() && !c.info.for_tests && !c.info.software && rank(c) < kGpuRank;
  });
  return cpu == all.end() ? "" : format(" Device \"{}\" needs no GPU.", cpu->info.name);
}

// The error for an unknown device name.
Status unknown_device(std::string_view name) {
  const std::vector<Candidate> all = all_candidates();
  const std::string_view stem = name.substr(0, name.find(':'));
  const bool has_backend =
      std::ranges::any_of(all, [&](const Candidate& c) { return c.backend->name() == stem; });
  std::string names;
  for (const Candidate& c : all) {
    if (!c.info.for_tests || c.backend->name() == stem) {
      names += (names.empty() ? "" : ", ") + c.info.name;
    }
  }
  return Status(Code::bad_argument,
                format("There is no device \"{}\"{}. The devices are: {}.{}", name,
                       has_backend ? "" : format(": this build has no backend \"{}\"", stem), names,
                       way_out(all)));
}

}  // namespace

std::vector<DeviceInfo> list_devices() {
  std::vector<DeviceInfo> out;
  for (Candidate& c : all_candidates()) {
    out.push_back(std::move(c.info));
  }
  return out;
}

Result<std::shared_ptr<OpenDevice>> open_device(std::string_view name,
                                                const DeviceOptions& options) {
  const bool planning = name.starts_with(kPlanning);
  const std::string_view whole = name;
  name.remove_prefix(planning ? kPlanning.size() : 0);
  std::string_view model;  // of a device that this machine need not have
  if (const size_t at = name.find('@'); planning && at != std::string_view::npos) {
    model = name.substr(at + 1);
    name = name.substr(0, at);
  }
  const std::vector<Candidate> all = candidates_for(name);
  const Candidate* found = name == "best"  ? best_of(all, 0)
                           : name == "gpu" ? best_of(all, kGpuRank)
                                           : nullptr;
  if (found == nullptr && name == "gpu") {
    return Status(Code::unsupported,
                  format("No usable GPU was found.{}", why_no_gpu(all_candidates())));
  }
  for (const Candidate& c : all) {
    // "vulkan" means "vulkan:0".
    if (c.info.name == name || (c.index == 0 && c.backend->name() == name)) {
      found = &c;
    }
  }
  if (found == nullptr) {
    return unknown_device(name);
  }
  std::unique_ptr<Device> device;
  DeviceInfo info = found->info;
  if (!model.empty()) {
    device = found->backend->open_to_plan(model);
    BOWLINE_REQUIRE(device != nullptr, "There is no device \"{}\": {} cannot plan for \"{}\".",
                    whole, found->backend->name(), model);
  } else {
    BOWLINE_REQUIRE_CODE(found->info.unusable.empty(), Code::unsupported,
                         "Device {} cannot be used: {}{}", found->info.name, found->info.unusable,
                         way_out(all_candidates()));
    BOWLINE_TRY_ASSIGN(device, found->backend->open(found->index, options));
  }
  if (!planning) {
    BOWLINE_TRY_ASSIGN(info.switched_off, device->self_test());
  }
  const uint64_t staging = device->capabilities().staging_bytes;
  BOWLINE_REQUIRE_CODE(options.memory_budget == 0 || staging <= options.memory_budget,
                       Code::over_budget,
                       "Device {} needs {} bytes for staging buffers, but its memory budget is {}.",
                       found->info.name, staging, options.memory_budget);
  if (planning) {
    device = planning_device(std::move(device));
  }
  const TuningKey& key = device->capabilities().tuning;
  std::string path;
  Choices choices;
  if (!options.cache_folder.empty() && !key.model.empty()) {
    path = tuning_path(options.cache_folder, key);
    Result<Choices> read = read_tuning(path, key);
    if (read.ok()) {
      choices = std::move(read).value();
    } else {
      info.notice = format("{} It is ignored.", read.status().message());
    }
  }
  auto open = std::make_shared<OpenDevice>(std::move(info), std::move(device),
                                           options.memory_budget, !planning);
  open->set_choices(std::move(choices));
  open->set_tuning_path(std::move(path));
  return open;
}

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
  const bool is_free = was_forked() || holder_ == std::this_thread::get_id();
  return is_free ? std::unique_lock<Turns>() : std::unique_lock(turns_);
}

OpenDevice::Hold::Hold(OpenDevice& device) : device_(device), turn_(device.take_turn()) {
  if (turn_.owns_lock()) {
    device_.holder_ = std::this_thread::get_id();
  }
}

OpenDevice::Hold::~Hold() {
  if (turn_.owns_lock()) {
    device_.holder_ = std::thread::id();
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
  const std::thread::id holder = holder_.exchange(std::thread::id());
  turns_.unlock();
  turns_.lock();
  holder_ = holder;
  gives_way_at_ = {};
}

Status OpenDevice::check_process() const {
  BOWLINE_REQUIRE_CODE(!was_forked(), Code::device_lost,
                       "Device {} was opened before fork(), and this is the child process. Open a "
                       "device here, and load the model again.",
                       info_.name);
  return {};
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
  BOWLINE_TRY(check_process());
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
  BOWLINE_TRY(check_process());
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
  BOWLINE_TRY(check_process());
  const std::unique_lock turn = take_turn();
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
  const std::unique_lock turn = take_turn();
  device_->free(buffer);
  counters_.live_bytes -= bytes;
}

Status OpenDevice::copy_in(Buffer to, uint64_t offset, std::span<const std::byte> from) {
  BOWLINE_TRY(check_process());
  const std::unique_lock turn = take_turn();
  ++counters_.copies_in;
  return device_->copy_in(to, offset, from);
}

Status OpenDevice::copy_out(std::span<std::byte> to, Buffer from, uint64_t offset) {
  BOWLINE_TRY(check_process());
  const std::unique_lock turn = take_turn();
  ++counters_.copies_out;
  return guarded([&] { return device_->copy_out(to, from, offset); });
}

Status OpenDevice::copy(Buffer to, uint64_t to_offset, Buffer from, uint64_t from_offset,
                        uint64_t bytes) {
  BOWLINE_TRY(check_process());
  const std::unique_lock turn = take_turn();
  ++counters_.copies;
  return device_->copy(to, to_offset, from, from_offset, bytes);
}

Status OpenDevice::fill(Buffer to, uint64_t offset, uint64_t bytes, std::byte value) {
  BOWLINE_TRY(check_process());
  const std::unique_lock turn = take_turn();
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
  BOWLINE_TRY(check_process());
  const std::unique_lock turn = take_turn();
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
  const std::unique_lock turn = take_turn();
  counters_.live_bytes -= recording->overhead_bytes();
  recording.reset();
}

Status OpenDevice::submit(std::span<Recording* const> recordings) {
  BOWLINE_TRY(check_process());
  const std::unique_lock turn = take_turn();
  ++counters_.submits;
  gives_way_at_ = {};
  return guarded(
      [&] { return clock_ == nullptr ? device_->submit(recordings) : submit_timed(recordings); });
}

Status OpenDevice::submit_timed(std::span<Recording* const> recordings) {
  for (Recording* recording : recordings) {
    BOWLINE_TRY_ASSIGN(std::vector<RecordTime> times, device_->timestamps(*recording));
    clock_->push_back({recording, std::move(times)});
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
  BOWLINE_TRY(check_process());
  const std::unique_lock turn = take_turn();
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
  block->bytes_ = bytes;
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
