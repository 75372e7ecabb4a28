// CUDA kernels: they turn an operator into launches. A kernel is a function in a table that the
// build generates from the files of kernels/. A file has the name of its operator, or lists its
// operators in the head ("//! ops Add Sub Mul"). During graph capture, the function runs once per
// iteration of a Repeat and enqueues its launches on the stream.
#pragma once

#include <vector>

#include "blas.h"
#include "device/backend.h"
#include "device/kernel_table.h"
#include "platform.h"
#include "traits.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// An entry of a list operand, in device memory.
struct ListEntry {
  float* data;
  uint64_t elements;
  uint32_t first;  // device::TableEntry::first
};

// Up to kChunk elements of one entry. A launch over all storages has one block per chunk.
struct Chunk {
  uint32_t entry;
  uint32_t length;
  uint64_t begin;
};
constexpr uint32_t kChunk = 4096;

// The number of Launch::block_counters.
constexpr uint32_t kBlockCounters = 16384;

// A list operand: its entries, and all their chunks in order. Entries with 0 elements have no
// chunk.
struct List {
  const ListEntry* entries = nullptr;  // device memory
  const Chunk* chunks = nullptr;       // device memory
  uint32_t entry_count = 0;
  uint32_t chunk_count = 0;
};

// Description of a node for queries.
struct NodeView {
  const device::NodeQuery& query;
  const Blas* blas;  // null: use Bowline's own products
  const Traits& traits;
  const Shape& in(size_t i) const { return query.inputs[i].shape; }
  const Shape& out(size_t i) const { return query.outputs[i].shape; }
  template <class Table>
  const Table& attributes() const {
    return query.attributes.as<Table>();
  }
};

// The operands of a record at one iteration, and the stream on which it runs.
class Launch {
 public:
  struct Context {
    const device::Program& program;
    std::span<std::byte* const> slots;  // device addresses
    std::span<const List> lists;        // by table of the program
    cudaStream_t stream;
    const Blas* blas;
    const Traits& traits;
    uint32_t* block_counters;
    bool accumulates;       // gradients are added to those of earlier submissions
    bool prepares = false;  // nothing is enqueued; the library chooses its algorithms
    bool plans = false;     // there is no device; launches are only counted
    uint32_t launches = 0;
    // The last launch was a kernel of this backend. After anything else, a launch waits as usual.
    bool follows_kernel = false;
    std::vector<std::string>* kernels = nullptr;  // (optional) receives the names of launches
    Status status = {};                           // the first failure
  };
  Launch(Context& context, const device::Record& record, uint32_t iteration)
      : context_(context), record_(record), iteration_(iteration) {}

  const device::Record& record() const { return record_; }
  Op op() const { return record_.op; }
  const Attributes& attributes() const { return record_.attributes; }
  template <class Table>
  const Table& attributes() const {
    return record_.attributes.as<Table>();
  }
  size_t inputs() const { return record_.inputs.size(); }
  size_t outputs() const { return record_.outputs.size(); }
  bool has_input(size_t i) const { return i < inputs(); }
  const Shape& in_shape(size_t i) const { return record_.inputs[i].shape; }
  const Shape& out_shape(size_t i) const { return record_.outputs[i].shape; }
  DType in_type(size_t i) const { return record_.inputs[i].dtype; }
  DType out_type(size_t i) const { return record_.outputs[i].dtype; }
  DType type() const { return record_.type; }
  uint32_t candidate() const { return record_.candidate; }
  template <class T>
  const T* in_as(size_t i) const {
    return reinterpret_cast<const T*>(at(record_.inputs[i]));
  }
  template <class T>
  T* out_as(size_t i) const {
    return reinterpret_cast<T*>(at(record_.outputs[i]));
  }
  const float* in(size_t i) const { return reinterpret_cast<const float*>(at(record_.inputs[i])); }
  const int32_t* in_i32(size_t i) const {
    return reinterpret_cast<const int32_t*>(at(record_.inputs[i]));
  }
  float* out(size_t i) const { return reinterpret_cast<float*>(at(record_.outputs[i])); }
  float* workspace() const { return reinterpret_cast<float*>(at(record_.workspace)); }
  uint64_t workspace_bytes() const { return record_.workspace.bytes(); }
  // The layout of a quantized input, from Encoding::layout and Encoding::place.
  struct CodeParts {
    const uint8_t* codes;
    const uint8_t* scales;
    const uint8_t* zeros;
  };
  bool is_encoded(size_t i) const { return !record_.inputs[i].encoding.is_plain(); }
  const Encoding& encoding(size_t i) const {
    return device::encoding_of(context_.program, record_.inputs[i], iteration_);
  }
  CodeLayout code_layout(size_t i) const { return *encoding(i).layout(record_.inputs[i].shape); }
  CodeParts code_parts(size_t i) const;
  // The head of the step buffer in device memory. The host writes it before each submission and
  // reads it back afterwards.
  device::StepHead* head() const {
    return reinterpret_cast<device::StepHead*>(context_.slots[device::kStepSlot]);
  }
  // A per-step scalar that the operator declares, in device memory.
  template <class T>
  T* step(StepWord<T> word) const {
    return reinterpret_cast<T*>(context_.slots[device::kStepSlot] + record_.step[word.index]);
  }
  // The number of valid elements along an axis of input i, in device memory; null: all elements
  // (Operand::counted_axis).
  const uint32_t* count(size_t i, int axis) const {
    const device::Operand& o = record_.inputs[i];
    return o.counted_axis == axis
               ? reinterpret_cast<const uint32_t*>(context_.slots[device::kStepSlot] + o.count_at)
               : nullptr;
  }
  // Numbers in device memory that are 0 before and after each launch (device/last_block.cuh,
  // device/grid_barrier.cuh).
  uint32_t* block_counters() const { return context_.block_counters; }
  uint32_t node() const { return record_.node; }
  uint32_t iteration() const { return iteration_; }
  const Traits& traits() const { return context_.traits; }

  // A list operand.
  List in_list(size_t i) const { return context_.lists[record_.inputs[i].table]; }
  List out_list(size_t i) const { return context_.lists[record_.outputs[i].table]; }
  // The same on the host. `data` of the entries are device addresses.
  std::vector<ListEntry> in_entries(size_t i) const;
  // The table entry of this iteration, on the host. `data` is a device address.
  const device::TableEntry& entry(const device::Operand& operand) const {
    return context_.program.tables[operand.table].entries[iteration_];
  }
  const device::Operand& in_operand(size_t i) const { return record_.inputs[i]; }
  const device::Operand& out_operand(size_t i) const { return record_.outputs[i]; }
  // True if output i is a gradient (device::Record::accumulate).
  bool is_gradient(size_t i) const { return (record_.accumulate >> i & 1) != 0; }
  // True if output i is a gradient that this contribution adds to. False: it overwrites output i.
  bool adds(size_t i) const {
    return is_gradient(i) && (!entry(out_operand(i)).first || context_.accumulates);
  }

  // True if there is a library that supports the product.
  bool can_multiply(const BlasProduct& product, const BlasOperands& operands) const {
    return context_.blas != nullptr && context_.status.ok() &&
           (context_.plans ? context_.blas->supports(product)
                           : context_.blas->prepare(product, operands));
  }
  // Multiplies with the library. Returns false, without doing anything, if there is none or if it
  // does not support the product.
  bool multiply(const BlasProduct& product, const BlasOperands& operands);
  // kernel<<<grid, block>>>(args...). A grid without blocks launches nothing.
  template <class... P, class... A>
  void launch(const char* name, void (*kernel)(P...), dim3 grid, dim3 block, A... args) {
    launch_shared(name, kernel, grid, block, 0, args...);
  }
  // The same with `shared_bytes` of dynamic shared memory per block, at most
  // Traits::shared_bytes().
  template <class... P, class... A>
  void launch_shared(const char* name, void (*kernel)(P...), dim3 grid, dim3 block,
                     unsigned shared_bytes, A... args) {
    launch_as(Blocks::independent, name, kernel, grid, block, shared_bytes, args...);
  }
  // The same for blocks that wait for one another (device/grid_barrier.cuh). The GPU must have
  // cooperative launches and hold all the blocks at once.
  template <class... P, class... A>
  void launch_together(const char* name, void (*kernel)(P...), dim3 grid, dim3 block,
                       unsigned shared_bytes, A... args) {
    launch_as(Blocks::together, name, kernel, grid, block, shared_bytes, args...);
  }
  void fail(Status status);
  void copy(void* to, const void* from, uint64_t bytes);
  void zero(float* to, uint64_t bytes);

 private:
  std::byte* at(const device::Operand& o) const;
  bool is_enqueuing() const { return context_.status.ok() && !context_.prepares; }
  template <class... P, class... A>
  void launch_as(Blocks blocks, const char* name, void (*kernel)(P...), dim3 grid, dim3 block,
                 unsigned shared_bytes, A... args) {
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || !is_enqueuing()) {
      return;
    }
    if (blocks == Blocks::independent && starts_early()) {
      blocks = Blocks::early;
    }
    done(name, context_.plans
                   ? cudaSuccess
                   : BOWLINE_CUDA_NAMESPACE::launch(name, kernel, blocks, grid, block, shared_bytes,
                                                    context_.stream, args...));
    context_.follows_kernel = true;
  }
  bool starts_early() const { return context_.follows_kernel && context_.traits.starts_early(); }
  // Counts a launch and keeps the first failure.
  void done(const char* name, cudaError_t error);

  Context& context_;
  const device::Record& record_;
  uint32_t iteration_;
};

// Kernel::accumulates for the outputs of a mask.
template <uint32_t kMask>
uint32_t outputs(const NodeView&) {
  return kMask;
}

struct Kernel {
  void (*run)(Launch& launch) = nullptr;
  // (optional) Bytes of scratch memory. Default: 0.
  uint64_t (*workspace)(const NodeView& node) = nullptr;
  // (optional) NodeAnswer::candidates. Default: 0.
  uint32_t (*candidates)(const NodeView& node) = nullptr;
  // (optional) Returns a sentence why the node cannot run here, or null.
  const char* (*refusal)(const NodeView& node) = nullptr;
  // (optional) Bit i: output i may be a gradient. Default: none.
  uint32_t (*accumulates)(const NodeView& node) = nullptr;
  uint32_t encoded = 0;  // bit i: input i may be quantized (Encoding::layout)
};

// BOWLINE_KERNELS_OF_FLOATS
using KernelF16 = __half;
using KernelBf16 = __nv_bfloat16;

// One row per operator; null if no file of kernels/ implements it. Generated.
extern const device::KernelTable<Kernel> kKernels;

// Number of blocks of `threads` threads for n elements, with `each` elements per thread.
constexpr unsigned blocks_for(uint64_t n, uint64_t threads, uint64_t each = 1) {
  return static_cast<unsigned>((n + threads * each - 1) / (threads * each));
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
