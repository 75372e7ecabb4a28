// Vulkan kernels: they turn an operator into dispatches. A kernel is a function in a table that the
// build generates from the files of kernels/. It appends commands to a list; stream.cpp turns the
// list into command buffers.
#pragma once

#include <concepts>
#include <cstring>
#include <initializer_list>
#include <map>
#include <vector>

#include "device/backend.h"
#include "device/kernel_table.h"
#include "device/program.h"
#include "memory.h"
#include "pipeline.h"
#include "vulkan_shaders.h"

namespace bowline::detail::vulkan {

// The address of an operand at one iteration of a Repeat.
struct Place {
  VkBuffer buffer = VK_NULL_HANDLE;
  uint64_t offset = 0;
  VkDeviceAddress address = 0;
};

// An entry of a list operand.
struct ListEntry {
  VkDeviceAddress address = 0;
  uint64_t elements = 0;
  bool first = false;
};

// Push constants, with the layout of the shader's scalar block.
class Push {
 public:
  template <class... T>
  Push& add(T... values) {
    (append(values), ...);
    return *this;
  }
  template <class... T>
  Push& u32(T... values) {
    return add(static_cast<uint32_t>(values)...);
  }
  Push& f32(double value) { return add(static_cast<float>(value)); }
  // The address of a table returned by Launch::table(). It is completed when the tables get an
  // address.
  Push& table(uint32_t offset) {
    tables_[table_count_++] = bytes_;
    return add(uint64_t{offset});
  }
  // True if the data does not fit. Launch::dispatch then fails.
  bool overflows() const { return bytes_ > kPushBytes; }
  const char* data() const { return data_; }
  uint32_t bytes() const { return bytes_; }
  bool has_tables() const { return table_count_ != 0; }
  void place_tables(VkDeviceAddress base) {
    for (uint32_t i = 0; i < table_count_; ++i) {
      uint64_t value = 0;
      std::memcpy(&value, data_ + tables_[i], sizeof(value));
      value += base;
      std::memcpy(data_ + tables_[i], &value, sizeof(value));
    }
  }

 private:
  template <class T>
  void append(T value) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8);
    // A block that starts with its addresses has no padding.
    bytes_ = (bytes_ + sizeof(T) - 1) / sizeof(T) * sizeof(T);
    if (bytes_ + sizeof(T) <= kPushBytes) {
      std::memcpy(data_ + bytes_, &value, sizeof(T));
    }
    bytes_ += static_cast<uint32_t>(sizeof(T));
  }

  alignas(8) char data_[kPushBytes] = {};
  uint32_t bytes_ = 0;
  uint32_t tables_[4] = {};
  uint32_t table_count_ = 0;
};

// Number and size of workgroups.
struct Grid {
  uint32_t local = 0;   // invocations per workgroup
  uint64_t groups = 0;  // zero: nothing to do
  uint32_t per_group = 0;
  uint64_t elements = 0;  // or rows
  uint32_t subgroup = 0;  // PhysicalDevice::nearest_subgroup(); 0: the size of the device
};

// Estimates the time of a dispatch.
struct Work {
  double flops = 0;
  double bytes = 0;
};

// An entry of the command list of a Program.
struct Command {
  enum class Kind : uint8_t { dispatch, barrier, copy, fill };
  Kind kind = Kind::dispatch;
  uint32_t record = 0;
  PipelineKey key;
  Push push;
  uint32_t set = 0;  // CommandList::sets
  uint64_t groups = 0;
  double ns = 0;            // estimated
  bool is_of_twin = false;  // no part of the time of its record (twin.h)
  bool runs_alone = false;  // copy
  Place from;               // copy
  Place to;                 // copy, fill
  uint64_t bytes = 0;
  uint32_t word = 0;  // fill
};

// VkBuffers in the order of a descriptor set.
using BoundBuffers = std::vector<VkBuffer>;
// Adds the buffer if it is not there. Returns its number.
uint32_t bind(VkBuffer buffer, BoundBuffers* bound);

// The commands of a Program, and the tables that its kernels read.
struct CommandList {
  std::vector<Command> commands;
  std::vector<uint32_t> words;
  std::map<std::vector<uint32_t>, uint32_t> known;  // existing tables, by content
  Status status;                                    // the first failure of a kernel
  // Without device addresses: the buffers of the current launch, and the different lists of all
  // launches.
  BoundBuffers bound;
  std::vector<BoundBuffers> sets;
};

// The variant of a shader for a dtype.
constexpr uint32_t variant(const shader::ByType& of, DType type) {
  switch (type) {
    case DType::f16:
      return of.f16;
    case DType::bf16:
      return of.bf16;
    case DType::i8:
      return of.i8;
    case DType::u8:
      return of.u8;
    case DType::i32:
      return of.i32;
    case DType::i64:
      return of.i64;
    default:
      return of.f32;
  }
}
constexpr uint32_t variant(const shader::ByBytes& of, DType type) {
  switch (size_of(type)) {
    case 1:
      return of.one;
    case 2:
      return of.two;
    case 4:
      return of.four;
    default:
      return of.eight;
  }
}

// The view of a kernel on the record that it launches.
class Launch {
 public:
  Launch(const PhysicalDevice& physical, const device::Program& program,
         std::span<const Buffer* const> slots, uint32_t record, bool in_repeat, uint32_t iteration,
         CommandList* list)
      : physical_(physical),
        program_(program),
        slots_(slots),
        record_(record),
        in_repeat_(in_repeat),
        iteration_(iteration),
        list_(list) {}

  const PhysicalDevice& physical() const { return physical_; }
  uint32_t lanes() const { return physical_.subgroup_size; }
  const device::Record& record() const { return program_.records[record_]; }
  Op op() const { return record().op; }
  DType type() const { return record().type; }
  uint32_t candidate() const { return record().candidate; }
  double element_bytes() const { return static_cast<double>(size_of(type())); }
  const Attributes& attributes() const { return record().attributes; }
  template <class Table>
  const Table& attributes() const {
    return record().attributes.as<Table>();
  }
  size_t inputs() const { return record().inputs.size(); }
  size_t outputs() const { return record().outputs.size(); }
  const Shape& in_shape(size_t i) const { return record().inputs[i].shape; }
  const Shape& out_shape(size_t i) const { return record().outputs[i].shape; }
  DType in_type(size_t i) const { return record().inputs[i].dtype; }
  DType out_type(size_t i) const { return record().outputs[i].dtype; }
  uint64_t out_bytes(size_t i) const { return record().outputs[i].bytes(); }
  // True if output i is a gradient in f32 (device::Record::accumulate).
  bool is_gradient(size_t i) const { return (record().accumulate >> i & 1) != 0; }
  VkDeviceAddress in(size_t i) const { return place(record().inputs[i]).address; }
  VkDeviceAddress out(size_t i) const { return place(record().outputs[i]).address; }
  Place in_place(size_t i) const { return place(record().inputs[i]); }
  Place out_place(size_t i) const { return place(record().outputs[i]); }
  // Tells whether input i is quantized. code_words() describes its layout to shaders, for table()
  // (lib/codes.glsl).
  bool is_encoded(size_t i) const { return !record().inputs[i].encoding.is_plain(); }
  CodeLayout code_layout(size_t i) const {
    const device::Operand& o = record().inputs[i];
    return *device::encoding_of(program_, o, iteration_).layout(o.shape);
  }
  // BlockFormat::number of input i, or 0. The inputs i and j of one shader may differ: then
  // kFormatOfTable of codes.glsl, which reads it from the table.
  uint32_t code_format(size_t i) const {
    const BlockFormat* const format = code_layout(i).format;
    return format == nullptr ? 0 : format->number;
  }
  uint32_t code_format(size_t i, size_t j) const {
    constexpr uint32_t kFormatOfTable = 255;
    return code_format(i) == code_format(j) ? code_format(i) : kFormatOfTable;
  }
  std::vector<uint32_t> code_words(size_t i) const;
  VkDeviceAddress workspace() const { return place(record().workspace).address; }
  Place workspace_place() const { return place(record().workspace); }
  // The step buffer, for kernels that read only its head.
  VkDeviceAddress step() const { return place(device::kStepSlot, 0).address; }
  // The members STEP_WORDS of the push block (generated/step_<stem>.glsl): the address of the step
  // buffer, and the indices of the operator's scalars in Step::words. They follow all other
  // addresses.
  void push_step_words(Push& push) const;
  // The word of the step buffer with the number of valid elements along an axis of input i; 0: all
  // elements are valid (lib/count.glsl).
  uint32_t count_word(size_t i, int axis) const {
    const device::Operand& o = record().inputs[i];
    return o.counted_axis == axis ? o.count_at / 4 : 0;
  }
  uint32_t node() const { return record().node; }
  uint32_t iteration() const { return iteration_; }
  // The entries of a list operand. Inside a Repeat, the entry of this iteration; without a table,
  // the single tensor.
  std::vector<ListEntry> list(const device::Operand& operand) const;
  std::vector<ListEntry> in_list(size_t i) const { return list(record().inputs[i]); }
  std::vector<ListEntry> out_list(size_t i) const { return list(record().outputs[i]); }
  // The gradient that output i is. The kernel does not write one with 0 elements.
  ListEntry gradient(size_t i) const { return out_list(i)[0]; }

  // Stores words that the kernel reads from memory. Equal tables are stored once.
  uint32_t table(const std::vector<uint32_t>& words);

  // Returns the place of `count` words for table() that only this launch uses. They are 0 before
  // its first run; each run must leave them 0.
  uint32_t counters(uint32_t count);

  // Each invocation processes elements first, first + local, ... of the per_group elements of its
  // workgroup.
  Grid over_elements(std::integral auto elements) const {
    return over_elements(static_cast<uint64_t>(elements));
  }
  Grid over_elements(uint64_t elements) const;
  // One element per invocation, for shaders with a loop inside.
  Grid over_single_elements(std::integral auto elements) const {
    return over_single_elements(static_cast<uint64_t>(elements));
  }
  Grid over_single_elements(uint64_t elements) const;
  // One subgroup per row.
  Grid over_rows(std::integral auto rows) const { return over_rows(static_cast<uint64_t>(rows)); }
  Grid over_rows(uint64_t rows) const;
  Grid one_subgroup() const { return {lanes(), 1, 1, 1}; }

  // `flops` operations and `moved` accesses of the storage dtype for each of n elements.
  Work each(std::integral auto n, double flops, double moved) const {
    const auto elements = static_cast<double>(n);
    return {elements * flops, elements * moved * static_cast<double>(size_of(type()))};
  }
  // `constants` follow constant 0, the size of the workgroup. The shader is a variant, or the table
  // of its variants by the dtype of the node.
  void dispatch(uint32_t shader, std::initializer_list<uint32_t> constants, const Push& push,
                const Grid& grid, Work work);
  template <class Variants>
    requires std::is_class_v<Variants>
  void dispatch(const Variants& shader, std::initializer_list<uint32_t> constants, const Push& push,
                const Grid& grid, Work work) {
    dispatch(variant(shader, type()), constants, push, grid, work);
  }
  // Separates dependent dispatches of a kernel.
  void barrier();
  void copy(const Place& to, const Place& from, uint64_t bytes);
  void fill(const Place& to, uint64_t bytes, uint32_t word);

 private:
  Place place(const device::Operand& operand) const;
  Place place(uint32_t slot, uint64_t offset) const;
  VkDeviceAddress address_of(const Buffer& buffer) const;

  const PhysicalDevice& physical_;
  const device::Program& program_;
  std::span<const Buffer* const> slots_;
  uint32_t record_;
  bool in_repeat_;
  uint32_t iteration_;
  CommandList* list_;
};

// Description of a node for queries.
struct NodeView {
  const device::NodeQuery& query;
  const PhysicalDevice& physical;
  const Shape& in(size_t i) const { return query.inputs[i].shape; }
  const Shape& out(size_t i) const { return query.outputs[i].shape; }
  template <class Table>
  const Table& attributes() const {
    return query.attributes.as<Table>();
  }
};

// llvmpipe silently ends an invocation after 65,535 iterations of all its loops together.
constexpr int64_t kMaxIterations = 60000;
// A refusal: `reason` if a software device would end the loops of an invocation, else null.
inline const char* refuse_loops(const NodeView& node, std::integral auto iterations,
                                const char* reason) {
  return node.physical.is_software() && static_cast<int64_t>(iterations) > kMaxIterations ? reason
                                                                                          : nullptr;
}

struct Kernel {
  void (*launch)(Launch& launch) = nullptr;
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

// Elements of f16 and bf16 as the host sees them (BOWLINE_KERNELS_OF_FLOATS).
using KernelF16 = uint16_t;
using KernelBf16 = uint16_t;

// One row per operator; null if no file of kernels/ implements it. Generated.
constexpr std::string_view kBackendName = "The Vulkan backend";
extern const device::KernelTable<Kernel> kKernels;

}  // namespace bowline::detail::vulkan
