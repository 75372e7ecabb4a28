// A Program as a CUDA graph.
#pragma once

#include <vector>

#include "cuda_status.h"
#include "kernel.h"
#include "memory.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// The graph of a segment. It copies inputs and per-step scalars from pinned memory to the device,
// runs the kernels in the order of the Program with Repeats unrolled, and copies outputs and
// per-step scalars back. One call replays it, without host synchronization inside.
class CudaRecording : public device::Recording {
 public:
  // `buffers[s]` is slot s, or null. The block counters are those of Launch.
  static Result<std::unique_ptr<CudaRecording>> make(const device::Program& program,
                                                     std::span<const Memory* const> buffers,
                                                     cudaStream_t stream, const Blas* blas,
                                                     const Traits& traits,
                                                     uint32_t* block_counters);
  // Lists the launches of a program on a device with this library (or null) and these traits,
  // without a device.
  static Result<std::unique_ptr<CudaRecording>> plan(const device::Program& program,
                                                     const Blas* blas, const Traits& traits);
  ~CudaRecording() override;

  uint64_t overhead_bytes() const override { return tables_ ? tables_->bytes : 0; }
  uint32_t launches() const override { return launches_; }
  std::span<const std::vector<std::string>> kernels() const override { return kernels_; }

  // `stream`: any stream of the context.
  Status submit(cudaStream_t stream);
  // Runs the records one by one between events, without the graph.
  Result<std::vector<device::RecordTime>> timestamps();

 private:
  CudaRecording(device::Program program, std::vector<const Memory*> buffers, cudaStream_t stream,
                const Blas* blas, const Traits& traits, uint32_t* block_counters);
  // The tables of the program: all entries, all chunks, and the first of both per table.
  struct Tables {
    struct Place {
      size_t entry, chunk;
    };
    std::vector<ListEntry> entries;
    std::vector<Chunk> chunks;
    std::vector<Place> places;
  };
  Tables tables_of_program() const;
  void make_lists(const Tables& tables, const std::byte* entries, const std::byte* chunks);
  Status make_tables();
  void note_transfers();
  bool has_gradients() const;
  // StepHead::accumulate, as the host has written it.
  bool accumulates() const;
  // Lets the library choose the algorithms of all products.
  Status prepare(bool accumulates) const;
  Status capture(bool accumulates);
  void enqueue_transfers(bool in, Status& status) const;
  // Enqueues one record at one iteration.
  void enqueue(Launch::Context& context, size_t record, uint32_t iteration) const;
  Launch::Context context(bool accumulates) const;
  // Calls f(record, iteration) in execution order.
  template <class F>
  void for_each_record(F&& f) const;

  // A range of a buffer that the host can see.
  struct Transfer {
    const Memory* memory;
    uint64_t begin;
    uint64_t end;
  };
  static void note(std::vector<Transfer>& transfers, const Memory* memory, uint64_t begin,
                   uint64_t end);
  Transfer visible(const device::Operand& operand) const;
  void note_input(const device::Operand& operand);
  void note_step(uint64_t offset, uint64_t bytes);

  device::Program program_;
  std::vector<const Memory*> buffers_;
  std::vector<std::byte*> slots_;
  cudaStream_t stream_;
  const Blas* blas_;
  Traits traits_;
  uint32_t* block_counters_;
  std::unique_ptr<Memory> tables_;
  std::vector<List> lists_;
  std::vector<Transfer> in_;
  std::vector<Transfer> out_;
  cudaGraphExec_t graphs_[2] = {};  // by StepHead::accumulate; the second only for gradients
  uint32_t launches_ = 0;
  std::vector<std::vector<std::string>> kernels_;  // by record; only of a plan
};

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
