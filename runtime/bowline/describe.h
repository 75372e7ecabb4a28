// What models and plans hold, as plain structs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "bowline/tensor.h"

#pragma GCC visibility push(default)

namespace bowline {

// What a model holds, as data: Model::describe(). A description is a copy, which nothing changes
// later. The listings are made of these.

// What a storage is for. Weights and adapters are trained; nodes of a graph may write what is not
// trained (WriteRows).
enum class StorageRole : uint8_t {
  weight,
  constant,
  adapter_a,
  adapter_b,
  kv_cache,
  gradient,
  running_statistic,
  moment,
  master,
};
// "running_statistic"
std::string_view name_of(StorageRole role);
// Storages of a training, which belong to that of a weight.
constexpr bool is_training(StorageRole role) {
  return role == StorageRole::gradient || role == StorageRole::moment ||
         role == StorageRole::master;
}

// A copy of a storage in another dtype. A submission that reads it makes it again first, if the
// storage was written since. A copy of a storage that plans read: in another dtype or format beside
// it, or as it is on another device (a replica).
struct CopyInfo {
  uint32_t tie = 0;
  DType dtype = DType::f32;
  std::string op;                        // that makes it: "Cast"; empty: a transfer, of a replica
  std::optional<uint64_t> version = {};  // of the storage, that it holds; none: it was not made yet
  std::string device = {};
};

struct StorageInfo {
  uint32_t tie = 0;    // its tie index
  bool empty = false;  // a row without a storage: the rest says nothing
  DType dtype = DType::f32;
  TensorShape shape;
  uint64_t bytes = 0;
  std::string encoding;  // "plain", "int8 block 32 axis -1 scale f16"
  StorageRole role = StorageRole::weight;
  // Of a gradient, moment or master: the tie index of the storage that it belongs to, and which of
  // the rows of its role it is there (AdamW's first moment 0, its second 1).
  std::optional<uint32_t> owner;
  uint32_t slot = 0;
  bool trainable = true;
  uint64_t version = 0;     // grows with every write of values
  uint64_t generation = 0;  // grows when what was derived from the storage must be made again
  std::string where;        // "nowhere", "file", "source", "host", or the name of its device
  // XXH3 (64 bits) of the bytes as the file states it, while they lie there.
  std::optional<uint64_t> file_checksum;
  std::vector<CopyInfo> copies;  // that plans read now
  uint32_t block = 0;            // storages with the same number lie in one allocation
  std::string format;            // the weight format by which they do; empty: none
};

struct ParameterInfo {
  std::string name;
  uint32_t tie = 0;  // the storage that it shows
  DType dtype = DType::f32;
  TensorShape shape;  // through its view
  View view;
  bool trainable = true;  // the flag of the storage
  std::string target;     // of an adapter: the parameter that it changes
};

// A storage with more than one parameter.
struct TieInfo {
  uint32_t tie = 0;
  std::vector<uint32_t> parameters;  // their numbers, ascending
  uint64_t bytes = 0;
  uint64_t saved_bytes = 0;  // beyond that, had each parameter a storage of its own
};

// A named dimension, with the fields of DimLimits.
struct DimInfo {
  std::string name;
  int64_t min = DimLimits{}.min;
  int64_t max = DimLimits{}.max;
  bool dynamic = false;
  bool operator==(const DimInfo&) const = default;
};

struct InputInfo {
  std::string name;
  DType dtype = DType::f32;
  std::vector<GraphDim> dims;
  uint32_t value = 0;  // as NodeValueInfo::value
};

struct OutputInfo {
  std::string name;
  DType dtype = DType::f32;
  uint32_t rank = 0;
  // Where no input of the entry point has a named dim; else Session::describe() has it for bound
  // ones.
  std::optional<TensorShape> shape;
  uint32_t value = 0;  // as NodeValueInfo::value
};

// Names and values as text: attributes of an operator, settings of a run.
using Settings = std::vector<std::pair<std::string, std::string>>;

// A value that a node reads or makes.
struct NodeValueInfo {
  enum class Kind : uint8_t { input, parameter, result };
  Kind kind = Kind::result;
  // Of the graph, or of the body: what one node makes and another one reads has one number there.
  uint32_t value = 0;
  DType dtype = DType::f32;
  // Of a parameter its number; in the body of a Repeat one per iteration.
  std::vector<uint32_t> parameters;
};

struct NodeInfo {
  std::string op;  // "LayerNorm"
  std::string name;
  Settings attributes;  // all of them, defaults too
  std::vector<NodeValueInfo> inputs;
  std::vector<NodeValueInfo> outputs;
  uint32_t count = 1;          // of a Repeat: its iterations ...
  std::vector<NodeInfo> body;  // ... and the nodes of one
  // Values of the body: for each input of the Repeat the one that an iteration sees, for each
  // output the one that it gives.
  std::vector<uint32_t> body_inputs;
  std::vector<uint32_t> body_outputs;
};

struct EntryPointInfo {
  std::string name;
  std::vector<InputInfo> inputs;
  std::vector<OutputInfo> outputs;
  std::vector<uint32_t> updates;  // tie indices of the storages that a run writes, ascending
  std::vector<NodeInfo> nodes;    // in the order in which they are computed
};

struct AssetInfo {
  std::string name;
  std::string media_type;
  uint64_t bytes = 0;
};

struct TensorInfo {
  std::string name;
  DType dtype = DType::f32;
  TensorShape shape;
};

// Inputs of an entry point with the outputs that are expected. Model::self_test() has the values.
struct SelfTestInfo {
  std::string entry_point;
  std::vector<TensorInfo> inputs;
  std::vector<TensorInfo> outputs;
  float relative_tolerance = 0;  // of an output's largest magnitude
};

// Of a model that holds adapters for another one.
struct BaseInfo {
  std::vector<uint8_t> digest;
  std::string name;
};

// What a checkpoint brought of its run. It goes when a Trainer begins.
struct TrainingInfo {
  uint64_t step = 0;
  uint64_t applied_steps = 0;  // that were not skipped
  uint64_t micro_step = 0;     // micro-batches of the unfinished step
  uint64_t epoch = 0;
  uint64_t data_cursor = 0;
  uint64_t data_seed = 0;
  uint64_t seed = 0;
  uint64_t counter = 0;                // micro-batches since the run began
  std::optional<float> learning_rate;  // instead of the schedule's
  Settings run;                        // what must be the same for the run to go on
  Settings config;                     // the caller's
  Settings versions;                   // of the library, and the device
};

struct ModelInfo {
  std::vector<ParameterInfo> parameters;
  std::vector<StorageInfo> storages;  // by tie index, up to the last one that is not empty
  std::vector<TieInfo> ties;          // ascending
  std::vector<DimInfo> dims;
  std::vector<EntryPointInfo> entry_points;
  Settings metadata;
  std::vector<AssetInfo> assets;
  std::vector<SelfTestInfo> self_tests;
  std::optional<BaseInfo> base;
  std::optional<TrainingInfo> training;
};

// The values of a self test, in the order of its SelfTestInfo.
struct SelfTestValues {
  std::vector<std::vector<std::byte>> inputs;
  std::vector<std::vector<std::byte>> outputs;
};

// What a Session or Trainer gives the device, as data.

// A contiguous tensor that a record reads or writes.
struct OperandInfo {
  enum class Slot : uint8_t { arena, io, step, storage, table };
  Slot slot = Slot::arena;
  uint32_t number = 0;  // of a storage its tie index; of a table which one of the segment's
  bool copy = false;    // of a storage: what is read is its copy in `dtype`
  // Bytes of the buffer or the storage, in the codes of an encoded one. Of a table (iteration i
  // takes its entry i) both are 0.
  uint64_t offset = 0;
  uint64_t bytes = 0;
  DType dtype = DType::f32;
  std::string encoding;  // as StorageInfo::encoding
  TensorShape shape;
  // In a Repeat, unless `modulo` is 0: iteration i takes what lies ((i + shift) % modulo) *
  // step_bytes behind the offset.
  uint32_t modulo = 0;
  uint32_t shift = 0;
  uint64_t step_bytes = 0;
};

struct TableEntryInfo {
  OperandInfo::Slot slot = OperandInfo::Slot::storage;
  uint32_t number = 0;
  uint64_t offset = 0;    // bytes
  uint64_t elements = 0;  // 0: a frozen storage, whose gradient is dropped
  bool copy = false;      // as OperandInfo::copy
};

// A node, or the begin or end of a Repeat, whose records stand between the two.
struct RecordInfo {
  enum class Kind : uint8_t { op, repeat_begin, repeat_end };
  Kind kind = Kind::op;
  std::string op;    // "LayerNorm"
  std::string node;  // as messages have it: node 17 "ln_f" (LayerNorm)
  Settings attributes;
  std::vector<OperandInfo> inputs;
  std::vector<OperandInfo> outputs;
  std::optional<OperandInfo> workspace;
  uint32_t level =
      0;  // none waits for another of its level; inside a Repeat it counts from the begin
  uint32_t count = 1;  // of repeat_begin: the iterations
  bool reverse = false;
};

// An input or output in the io buffer.
struct IoInfo {
  std::string name;
  DType dtype = DType::f32;
  TensorShape shape;  // with the maxima of dynamic dimensions
  // For each axis its dynamic dimension, or "". Empty: it has none.
  std::vector<std::string> dynamic_dims;
  uint64_t offset = 0;  // bytes
  uint64_t bytes = 0;
};

// A step word that the segment reads or writes; StepScalar gives one.
struct StepScalarInfo {
  std::string name;
  std::string type;     // "f32", "u32", "u64"
  uint32_t offset = 0;  // of the step buffer, bytes
  std::optional<std::variant<uint64_t, double>> default_value;
  bool read = false;
  bool written = false;
};

// A dynamic dimension of a segment. Its size in a run is a u32 of the step buffer.
struct DynamicDimInfo {
  std::string name;
  int64_t min = 1;
  int64_t max = 0;
  uint32_t offset = 0;  // of the step buffer, bytes
};

// What is recorded once and submitted as one.
struct SegmentInfo {
  // Session: "forward", and "hoisted" if some values depend only on parameters. "hoisted" runs
  // before the next run after one of these parameters is written. Trainer: "accumulate", "update",
  // and "forward" (of evaluate).
  std::string name;
  BoundEntryPoint entry_point;  // of a session: what it runs
  uint64_t launches = 0;
  uint64_t arena_bytes = 0;
  uint64_t io_bytes = 0;
  std::vector<IoInfo> inputs;
  std::vector<IoInfo> outputs;
  std::vector<RecordInfo> records;  // in the order of execution
  std::vector<std::vector<TableEntryInfo>> tables;
  std::vector<StepScalarInfo> scalars;
  std::vector<DynamicDimInfo> dynamic_dims;
  std::vector<CopyInfo> copies;    // that it reads
  std::vector<uint32_t> storages;  // tie indices of those that it reads, also by a copy, or writes
  std::vector<uint32_t> writes;    // of these, those that it writes
};

// The parameters of a Repeat: per iteration the tie index.
struct RepeatListInfo {
  std::string name;
  std::optional<DType> copy;  // what is read are copies of this dtype
  std::vector<uint32_t> ties;
};

struct PlanInfo {
  std::string device;
  uint32_t accumulation = 1;  // submissions of "accumulate" per step
  // Nodes whose results are not kept for the backward part but computed once more, as the memory is
  // too short for all of them.
  uint64_t recomputed_nodes = 0;
  std::vector<SegmentInfo> segments;
  std::vector<RepeatListInfo> repeat_lists;
};

}  // namespace bowline

#pragma GCC visibility pop
