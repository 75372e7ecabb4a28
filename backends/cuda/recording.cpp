#include "recording.h"

#include <algorithm>

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

using device::kArenaSlot;
using device::kNoTable;
using device::Operand;
using device::Program;
using device::Record;
using device::RecordTime;

namespace {

// The operands decide how fast the library is: on tensor cores if they have 16 bits, and slower if
// rows do not consist of whole packs of 16 bytes.
const char* name_of(const BlasProduct& p) {
  if (p.type == DType::f32) {
    return "cublasLtMatmul, f32";
  }
  return p.has_packs() ? "cublasLtMatmul" : "cublasLtMatmul, unaligned rows";
}

}  // namespace

void Launch::fail(Status status) {
  if (context_.status.ok()) {
    context_.status = std::move(status);
  }
}

void Launch::done(const char* name, cudaError_t error) {
  ++context_.launches;
  context_.follows_kernel = false;
  if (context_.kernels != nullptr) {
    context_.kernels->emplace_back(name);
  }
  if (error != cudaSuccess) {
    fail(status_of(error, format("launch {} of node {}", name, record_.node)));
  }
}

bool Launch::multiply(const BlasProduct& product, const BlasOperands& operands) {
  if (context_.blas == nullptr || !context_.status.ok()) {
    return false;
  }
  if (context_.prepares) {
    return context_.blas->prepare(product, operands);
  }
  const bool is_done = context_.plans ? context_.blas->supports(product)
                                      : context_.blas->multiply(product, operands, context_.stream);
  if (is_done) {
    done(name_of(product), cudaSuccess);
  }
  return is_done;
}

void Launch::copy(void* to, const void* from, uint64_t bytes) {
  if (bytes > 0 && to != from && is_enqueuing()) {
    done("a copy", context_.plans ? cudaSuccess
                                  : cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice,
                                                    context_.stream));
  }
}

void Launch::zero(float* to, uint64_t bytes) {
  if (bytes > 0 && is_enqueuing()) {
    done("a fill", context_.plans ? cudaSuccess : cudaMemsetAsync(to, 0, bytes, context_.stream));
  }
}

std::byte* Launch::at(const Operand& o) const {
  if (o.table != kNoTable) {
    const device::TableEntry& e = entry(o);
    return context_.slots[e.slot] + e.offset;
  }
  const uint64_t step =
      o.modulo == 0 ? 0 : (uint64_t{iteration_} + o.shift) % o.modulo * o.step_bytes;
  return context_.slots[o.slot] + o.offset + step;
}

Launch::CodeParts Launch::code_parts(size_t i) const {
  const Operand& o = record_.inputs[i];
  const bool listed = o.table != kNoTable;
  const std::byte* const base = context_.slots[listed ? entry(o).slot : o.slot];
  const auto at = [base](uint64_t offset) {
    return reinterpret_cast<const uint8_t*>(base + offset);
  };
  return listed ? CodeParts{at(entry(o).offset), at(entry(o).scales), at(entry(o).zeros)}
                : CodeParts{at(o.offset), at(o.scales), at(o.zeros)};
}

std::vector<ListEntry> Launch::in_entries(size_t i) const {
  std::vector<ListEntry> out;
  for (const device::TableEntry& e : context_.program.tables[record_.inputs[i].table].entries) {
    out.push_back({reinterpret_cast<float*>(context_.slots[e.slot] + e.offset), e.elements,
                   e.first ? 1u : 0u});
  }
  return out;
}

CudaRecording::CudaRecording(Program program, std::vector<const Memory*> buffers,
                             cudaStream_t stream, const Blas* blas, const Traits& traits,
                             uint32_t* block_counters)
    : program_(std::move(program)),
      buffers_(std::move(buffers)),
      stream_(stream),
      blas_(blas),
      traits_(traits),
      block_counters_(block_counters) {
  for (const Memory* m : buffers_) {
    slots_.push_back(m == nullptr ? nullptr : m->device);
  }
}

CudaRecording::~CudaRecording() {
  for (cudaGraphExec_t graph : graphs_) {
    if (graph != nullptr) {
      (void)cudaGraphExecDestroy(graph);
    }
  }
}

Result<std::unique_ptr<CudaRecording>> CudaRecording::make(const Program& program,
                                                           std::span<const Memory* const> buffers,
                                                           cudaStream_t stream, const Blas* blas,
                                                           const Traits& traits,
                                                           uint32_t* block_counters) {
  std::unique_ptr<CudaRecording> out(new CudaRecording(program, {buffers.begin(), buffers.end()},
                                                       stream, blas, traits, block_counters));
  BOWLINE_TRY(out->make_tables());
  out->note_transfers();
  BOWLINE_TRY(out->capture(false));
  BOWLINE_TRY(out->has_gradients() ? out->capture(true) : Status());
  return out;
}

Result<std::unique_ptr<CudaRecording>> CudaRecording::plan(const Program& program, const Blas* blas,
                                                           const Traits& traits) {
  const std::vector<const Memory*> buffers(program.slots, nullptr);
  std::unique_ptr<CudaRecording> out(
      new CudaRecording(program, buffers, nullptr, blas, traits, nullptr));
  // No launch uses an address, but kernels ask whether one is null and to what it is aligned.
  std::ranges::fill(out->slots_, reinterpret_cast<std::byte*>(uintptr_t{kAlignment}));
  out->make_lists(out->tables_of_program(), nullptr, nullptr);
  Launch::Context context = out->context(false);
  context.plans = true;
  out->kernels_.resize(program.records.size());
  out->for_each_record([&](size_t record, uint32_t iteration) {
    const bool is_first = out->kernels_[record].empty();
    context.kernels = is_first ? &out->kernels_[record] : nullptr;
    out->enqueue(context, record, iteration);
  });
  BOWLINE_TRY(std::move(context.status));
  out->launches_ = context.launches;
  return out;
}

CudaRecording::Tables CudaRecording::tables_of_program() const {
  Tables out;
  for (const device::Table& table : program_.tables) {
    out.places.push_back({out.entries.size(), out.chunks.size()});
    for (uint32_t i = 0; i < table.entries.size(); ++i) {
      const device::TableEntry& e = table.entries[i];
      out.entries.push_back(
          {reinterpret_cast<float*>(slots_[e.slot] + e.offset), e.elements, e.first ? 1u : 0u});
      for (uint64_t begin = 0; begin < e.elements; begin += kChunk) {
        out.chunks.push_back(
            {i, static_cast<uint32_t>(std::min<uint64_t>(kChunk, e.elements - begin)), begin});
      }
    }
  }
  out.places.push_back({out.entries.size(), out.chunks.size()});
  return out;
}

void CudaRecording::make_lists(const Tables& tables, const std::byte* entries,
                               const std::byte* chunks) {
  const auto* const first_entry = reinterpret_cast<const ListEntry*>(entries);
  const auto* const first_chunk = reinterpret_cast<const Chunk*>(chunks);
  const std::vector<Tables::Place>& places = tables.places;
  for (size_t t = 0; t + 1 < places.size(); ++t) {
    lists_.push_back({first_entry + places[t].entry, first_chunk + places[t].chunk,
                      static_cast<uint32_t>(places[t + 1].entry - places[t].entry),
                      static_cast<uint32_t>(places[t + 1].chunk - places[t].chunk)});
  }
}

// Creates all tables of the program: the entries, then the chunks of each table.
Status CudaRecording::make_tables() {
  const Tables tables = tables_of_program();
  const uint64_t entry_bytes = tables.entries.size() * sizeof(ListEntry);
  const uint64_t chunk_bytes = tables.chunks.size() * sizeof(Chunk);
  BOWLINE_TRY_ASSIGN(tables_,
                     Memory::allocate(entry_bytes + chunk_bytes, device::MemoryKind::device));
  std::byte* const first_entry = tables_->device;
  std::byte* const first_chunk = first_entry + entry_bytes;
  const auto upload = [&](std::byte* to, const void* from, uint64_t bytes) {
    return bytes == 0 ? cudaSuccess
                      : cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_);
  };
  BOWLINE_CUDA(upload(first_entry, tables.entries.data(), entry_bytes),
               "copy the tables of a graph");
  BOWLINE_CUDA(upload(first_chunk, tables.chunks.data(), chunk_bytes),
               "copy the tables of a graph");
  BOWLINE_CUDA(cudaStreamSynchronize(stream_), "copy the tables of a graph");
  make_lists(tables, first_entry, first_chunk);
  return {};
}

template <class F>
void CudaRecording::for_each_record(F&& f) const {
  const std::vector<Record>& records = program_.records;
  for (size_t i = 0; i < records.size(); ++i) {
    if (records[i].kind == Record::Kind::op) {
      f(i, 0u);
      continue;
    }
    const Record& loop = records[i];
    size_t end = i + 1;
    while (records[end].kind != Record::Kind::repeat_end) {
      ++end;
    }
    for (uint32_t k = 0; k < loop.count; ++k) {
      const uint32_t iteration = loop.reverse ? loop.count - 1 - k : k;
      for (size_t body = i + 1; body < end; ++body) {
        f(body, iteration);
      }
    }
    i = end;
  }
}

// Merges ranges into one copy if only padding is between them. Operands start at multiples of
// Capabilities::alignment, so a smaller gap holds no operand.
void CudaRecording::note(std::vector<Transfer>& transfers, const Memory* memory, uint64_t begin,
                         uint64_t end) {
  if (begin == end) {
    return;
  }
  for (Transfer& t : transfers) {
    if (t.memory == memory && begin < t.end + kAlignment && t.begin < end + kAlignment) {
      t.begin = std::min(t.begin, begin);
      t.end = std::max(t.end, end);
      return;
    }
  }
  transfers.push_back({memory, begin, end});
}

// The range of an operand in memory that the host can see; an empty range for other operands.
CudaRecording::Transfer CudaRecording::visible(const Operand& o) const {
  if (o.table != kNoTable || buffers_[o.slot] == nullptr || buffers_[o.slot]->host == nullptr) {
    return {nullptr, 0, 0};
  }
  const uint64_t bytes = o.modulo == 0 ? o.bytes() : (o.modulo - 1) * o.step_bytes + o.bytes();
  return {buffers_[o.slot], o.offset, o.offset + bytes};
}

// An input that an earlier record writes stays on the device.
void CudaRecording::note_input(const Operand& o) {
  const Transfer range = visible(o);
  const bool is_written = std::ranges::any_of(out_, [&](const Transfer& t) {
    return t.memory == range.memory && t.begin <= range.begin && range.end <= t.end;
  });
  if (!is_written) {
    note(in_, range.memory, range.begin, range.end);
  }
}

void CudaRecording::note_step(uint64_t offset, uint64_t bytes) {
  const Memory* const step = buffers_[device::kStepSlot];
  if (step != nullptr && step->host != nullptr) {
    note(in_, step, offset, offset + bytes);
    note(out_, step, offset, offset + bytes);
  }
}

void CudaRecording::enqueue_transfers(bool in, Status& status) const {
  for (const Transfer& t : in ? in_ : out_) {
    std::byte* const device = t.memory->device + t.begin;
    std::byte* const host = t.memory->host + t.begin;
    const cudaError_t error =
        in ? cudaMemcpyAsync(device, host, t.end - t.begin, cudaMemcpyHostToDevice, stream_)
           : cudaMemcpyAsync(host, device, t.end - t.begin, cudaMemcpyDeviceToHost, stream_);
    if (error != cudaSuccess && status.ok()) {
      status = status_of(error, "copy the inputs and outputs of a graph");
    }
  }
}

void CudaRecording::enqueue(Launch::Context& context, size_t record, uint32_t iteration) const {
  const device::Record& r = program_.records[record];
  Launch launch(context, r, iteration);
  device::find_kernel<Kernel>(kKernels, r.op, r.type)->run(launch);
}

Launch::Context CudaRecording::context(bool accumulates) const {
  return {program_, slots_, lists_, stream_, blas_, traits_, block_counters_, accumulates};
}

void CudaRecording::note_transfers() {
  note_step(0, sizeof(device::StepHead));
  for (const Record& r : program_.records) {
    const std::span<const StepWordInfo> words = step_words(r.op);
    for (size_t i = 0; i < words.size(); ++i) {
      note_step(r.step[i], size_of(words[i].type));
    }
    for (const Operand& o : r.inputs) {
      note_input(o);
      note_step(o.count_at, o.counted_axis >= 0 ? size_of(StepType::u32) : 0);
    }
    for (const Operand& o : r.outputs) {
      const Transfer range = visible(o);
      note(out_, range.memory, range.begin, range.end);
    }
  }
}

// A product that overwrites a gradient must not read it: its memory may hold anything. The choice
// is made on the host, so there is one graph for each value of StepHead::accumulate.
bool CudaRecording::has_gradients() const {
  return std::ranges::any_of(program_.records, [](const Record& r) { return r.accumulate != 0; });
}

bool CudaRecording::accumulates() const {
  // A program without gradients can have something else in the slot of the step.
  const Memory* const step = has_gradients() ? buffers_[device::kStepSlot] : nullptr;
  return step != nullptr && reinterpret_cast<const device::StepHead*>(step->host)->accumulate != 0;
}

Status CudaRecording::prepare(bool accumulates) const {
  Launch::Context context = this->context(accumulates);
  context.prepares = true;
  for_each_record([&](size_t record, uint32_t iteration) { enqueue(context, record, iteration); });
  return std::move(context.status);
}

Status CudaRecording::capture(bool accumulates) {
  BOWLINE_TRY(prepare(accumulates));
  BOWLINE_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
               "begin a capture");
  Launch::Context context = this->context(accumulates);
  enqueue_transfers(true, context.status);
  for_each_record([&](size_t record, uint32_t iteration) { enqueue(context, record, iteration); });
  enqueue_transfers(false, context.status);
  cudaGraph_t graph = nullptr;
  const cudaError_t error = cudaStreamEndCapture(stream_, &graph);
  if (context.status.ok() && error == cudaSuccess) {
    context.status =
        status_of(cudaGraphInstantiate(&graphs_[accumulates], graph, 0), "instantiate a graph");
  }
  if (graph != nullptr) {
    (void)cudaGraphDestroy(graph);
  }
  BOWLINE_TRY(std::move(context.status));
  launches_ = std::max(launches_, context.launches);
  return status_of(error, "capture a graph");
}

Status CudaRecording::submit(cudaStream_t stream) {
  cudaGraphExec_t const graph = graphs_[accumulates()];
  return status_of(cudaGraphLaunch(graph, stream), "launch a graph");
}

Result<std::vector<RecordTime>> CudaRecording::timestamps() {
  std::vector<RecordTime> times;
  std::vector<cudaEvent_t> events;
  Launch::Context context = this->context(accumulates());
  const auto mark = [&] {
    context.follows_kernel = false;  // the time of a record begins when those before have ended
    cudaEvent_t event = nullptr;
    Status status = status_of(cudaEventCreate(&event), "create an event");
    if (status.ok()) {
      events.push_back(event);
      status = status_of(cudaEventRecord(event, stream_), "record an event");
    }
    if (context.status.ok()) {
      context.status = std::move(status);
    }
  };
  enqueue_transfers(true, context.status);
  mark();
  for_each_record([&](size_t record, uint32_t iteration) {
    enqueue(context, record, iteration);
    mark();
    times.push_back({static_cast<uint32_t>(record), 0});
  });
  enqueue_transfers(false, context.status);
  Status status = status_of(cudaStreamSynchronize(stream_), "wait for the device");
  for (size_t i = 0; i < times.size() && status.ok() && context.status.ok(); ++i) {
    float ms = 0;
    status = status_of(cudaEventElapsedTime(&ms, events[i], events[i + 1]), "read an event");
    times[i].ns = static_cast<double>(ms) * 1e6;
  }
  for (cudaEvent_t event : events) {
    (void)cudaEventDestroy(event);
  }
  BOWLINE_TRY(std::move(context.status));
  BOWLINE_TRY(std::move(status));
  return times;
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
