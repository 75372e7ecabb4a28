// The interface of CPU kernels. The build generates the table kKernels from the files of kernels/:
// a file has the name of its operator, or lists its operators in the head ("//! ops Add Sub Mul",
// "//! ops(f16, bf16) MatMul").
#pragma once

#include <algorithm>

#include "base/float16.h"
#include "compute/codes.h"
#include "device/backend.h"
#include "device/kernel_table.h"
#include "threads.h"

namespace bowline::detail::cpu {

// A list operand of an optimizer, with resolved addresses.
struct ListItem {
  float* data = nullptr;
  uint64_t elements = 0;
  bool first = false;
};

// An operand, resolved for one iteration.
struct Arg {
  std::byte* data = nullptr;
  const Shape* shape = nullptr;
  ListItem entry;                  // table operand: its entry at this iteration
  std::span<const ListItem> list;  // list operand: all entries
  // Only for quantized operands (device::Operand::encoding).
  const Encoding* encoding = nullptr;
  std::byte* scales = nullptr;
  const std::byte* zeros = nullptr;

  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
  float* f32() const { return as<float>(); }
  const int32_t* i32() const { return as<const int32_t>(); }
  int64_t elements() const { return shape->elements(); }
};

struct Launch {
  const device::Record& record;
  std::span<const Arg> in;
  std::span<const Arg> out;
  std::byte* workspace;
  const std::byte* constant;  // written by Kernel::make_constant
  device::StepHead& head;
  Threads& threads;
  uint32_t iteration;

  template <class Table>
  const Table& attributes() const {
    return record.attributes.as<Table>();
  }
  bool has_input(size_t i) const { return i < in.size(); }
  // Number of valid elements along an axis of input i: its size, or the current size from the step
  // buffer (Operand::counted_axis).
  int64_t extent(size_t i, int axis) const {
    const device::Operand& o = record.inputs[i];
    return o.counted_axis == axis ? int64_t{*reinterpret_cast<const uint32_t*>(
                                        reinterpret_cast<const std::byte*>(&head) + o.count_at)}
                                  : o.shape[axis];
  }
  // True if input i is quantized; codes(i) describes its layout.
  bool is_encoded(size_t i) const { return kHasQuantized && !record.inputs[i].encoding.is_plain(); }
  Codes codes(size_t i) const {
    return {in[i].data, in[i].scales, in[i].zeros, *in[i].encoding->layout(*in[i].shape)};
  }
  bool is_gradient(size_t i) const { return (record.accumulate >> i & 1) != 0; }
  // Reports an out-of-range index. The first node that reports is named, because gradient nodes
  // read the same indices again. The caller has already made the access harmless.
  void bad_index(int32_t value) const {
    if (head.error == 0) {
      head.error = static_cast<uint32_t>(device::StepError::index_out_of_range);
      head.error_node = record.node;
      head.error_value = value;
    }
  }
  // A per-step scalar that the operator declares.
  template <class T>
  T& step(StepWord<T> word) const {
    return *reinterpret_cast<T*>(reinterpret_cast<std::byte*>(&head) + record.step[word.index]);
  }
};

struct Kernel {
  void (*run)(const Launch& launch) = nullptr;
  // (optional) Bytes of scratch memory. Default: 0.
  uint64_t (*workspace)(const device::NodeQuery& node, const Threads& threads) = nullptr;
  // (optional) Size of a table that depends only on the record and is made once, at recording.
  // Default: 0.
  uint64_t (*constant_bytes)(const device::Record& record) = nullptr;
  void (*make_constant)(const device::Record& record, Threads& threads,
                        std::byte* constant) = nullptr;
  uint32_t accumulates = 0;  // bit i: output i may be a gradient (device::Record::accumulate)
  uint32_t encoded = 0;      // bit i: input i may be quantized (Encoding::layout)
};

extern const device::KernelTable<Kernel> kKernels;

// BOWLINE_KERNELS_OF_FLOATS
using KernelF16 = f16;
using KernelBf16 = bf16;

// Splits [0, n) into blocks of `grain` elements, one task per block.
template <class F>
void parallel_blocks(Threads& threads, int64_t n, int64_t grain, F&& f) {
  const int64_t blocks = (n + grain - 1) / grain;
  threads.parallel_for(static_cast<size_t>(blocks), [&](size_t task, size_t) {
    const int64_t begin = static_cast<int64_t>(task) * grain;
    f(begin, begin + grain < n ? begin + grain : n);
  });
}

// The elements of a task: enough to be worth a task.
constexpr int64_t kGrain = 16384;

// Calls f(row) for rows of `elements` elements, with about kGrain elements per task.
template <class F>
void parallel_rows(Threads& threads, int64_t rows, int64_t elements, F&& f) {
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, elements));
  parallel_blocks(threads, rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      f(row);
    }
  });
}

}  // namespace bowline::detail::cpu
