/// \file
/// The contents of a model, and of the plans of a Session or Trainer, as plain structs.
///
/// Model::describe() returns a ModelInfo. Session::describe() and Trainer::describe() return a
/// PlanInfo. Both are copies: later changes of the model do not change them. The first half of this
/// header describes models, the second half describes plans.
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

/// Pairs of a name and a value.
using Settings = std::vector<std::pair<std::string, std::string>>;

/// What a storage is for.
enum class StorageRole : uint8_t {
  weight,             ///< A weight. It is trained unless it is frozen.
  constant,           ///< A constant. It is never trained.
  adapter_a,          ///< Matrix A of an adapter.
  adapter_b,          ///< Matrix B of an adapter.
  kv_cache,           ///< Keys and values of earlier tokens. Runs write to it.
  gradient,           ///< Gradient of a weight. Gradient, moment and master belong to a Trainer.
  running_statistic,  ///< Running mean or variance of BatchNorm. Training writes to it.
  moment,             ///< Optimizer state of a weight.
  master,             ///< The f32 value of a 16-bit weight during training.
};

/// Returns the name of a role, for example "running_statistic".
std::string_view name_of(StorageRole role);

/// Returns true if a Trainer owns storages of this role: gradient, moment or master.
constexpr bool is_training(StorageRole role) {
  return role == StorageRole::gradient || role == StorageRole::moment ||
         role == StorageRole::master;
}

/// A copy of a storage in another dtype or layout, or on another device. Plans read the copy.
///
/// If the storage was written since, the copy is renewed before the next run that reads it.
struct CopyInfo {
  uint32_t tie = 0;  ///< The tie index of the storage.
  DType dtype = DType::f32;
  std::string op;  ///< The operator that makes the copy, for example "Cast". Empty: a replica.
  std::optional<uint64_t> version = {};  ///< The copied StorageInfo::version. Not set: no copy yet.
  std::string device = {};
};

/// A row of the storage table.
struct StorageInfo {
  uint32_t tie = 0;    ///< The tie index: the number of the row.
  bool empty = false;  ///< true: there is no storage in this row. Ignore the other fields.
  DType dtype = DType::f32;
  TensorShape shape;
  uint64_t bytes = 0;
  std::string encoding;  ///< "plain", or for example "int8 block 32 axis -1 scale f16".
  StorageRole role = StorageRole::weight;
  /// The tie index of the weight to which a gradient, moment or master belongs.
  std::optional<uint32_t> owner;
  /// Number among the storages of this role and owner. For AdamW, moment 0 is the first moment and
  /// moment 1 the second.
  uint32_t slot = 0;
  bool trainable = true;
  uint64_t version = 0;     ///< Increases with every write of values.
  uint64_t generation = 0;  ///< Increases when plans that use the storage must be made again.
  /// Where the values are: "nowhere" (no values yet), "file", "source" (Model::set_source()),
  /// "host", or the name of a device. For a sharded storage: names with " + " between them. "file"
  /// is also what Model::open_memory() and Model::open_reader() opened.
  std::string where;
  /// XXH3 checksum (64 bits) in the file, while the values are in the file.
  std::optional<uint64_t> file_checksum;
  std::vector<CopyInfo> copies;
  uint32_t block = 0;  ///< Storages with the same number share one allocation.
  std::string format;  ///< The weight format of that allocation. Empty: none.
};

/// A parameter.
struct ParameterInfo {
  std::string name;
  uint32_t tie = 0;  ///< The tie index of its storage.
  DType dtype = DType::f32;
  TensorShape shape;  ///< The shape of its view.
  View view;
  bool trainable = true;  ///< As StorageInfo::trainable.
  std::string target;     ///< For a parameter of an adapter: the parameter that it changes.
};

/// A storage with several parameters.
struct TieInfo {
  uint32_t tie = 0;
  std::vector<uint32_t> parameters;  ///< Indices into ModelInfo::parameters, ascending.
  uint64_t bytes = 0;                ///< Size of the storage.
  uint64_t saved_bytes = 0;          ///< Additional bytes that untied parameters would need.
};

/// A named dimension and its limits; see DimLimits.
struct DimInfo {
  std::string name;
  int64_t min = DimLimits{}.min;
  int64_t max = DimLimits{}.max;
  bool dynamic = false;
  bool operator==(const DimInfo&) const = default;
};

/// An input of an entry point.
struct InputInfo {
  std::string name;
  DType dtype = DType::f32;
  std::vector<GraphDim> dims;
  uint32_t value = 0;  ///< As NodeValueInfo::value.
};

/// An output of an entry point.
struct OutputInfo {
  std::string name;
  DType dtype = DType::f32;
  uint32_t rank = 0;
  /// The shape, if the entry point has no named dimensions. The shapes in a plan are in
  /// SegmentInfo::outputs.
  std::optional<TensorShape> shape;
  uint32_t value = 0;  ///< As NodeValueInfo::value.
};

/// An input or output of a node.
struct NodeValueInfo {
  /// Where the value comes from.
  enum class Kind : uint8_t { input, parameter, result };
  Kind kind = Kind::result;
  /// Number of the value. In one graph or body, equal numbers mean the same value.
  uint32_t value = 0;
  DType dtype = DType::f32;
  /// For a parameter: its index in ModelInfo::parameters. In the body of a Repeat: one index per
  /// iteration.
  std::vector<uint32_t> parameters;
};

/// A node of a graph.
struct NodeInfo {
  std::string op;  ///< The operator, for example "LayerNorm".
  std::string name;
  Settings attributes;  ///< All attributes, also those with default values.
  std::vector<NodeValueInfo> inputs;
  std::vector<NodeValueInfo> outputs;
  uint32_t count = 1;          ///< For a Repeat: the number of iterations.
  std::vector<NodeInfo> body;  ///< For a Repeat: the nodes of one iteration.
  /// For a Repeat: for each input, the number of its value in the body.
  std::vector<uint32_t> body_inputs;
  /// For a Repeat: for each output, the number of its value in the body.
  std::vector<uint32_t> body_outputs;
};

/// An entry point.
struct EntryPointInfo {
  std::string name;
  std::vector<InputInfo> inputs;
  std::vector<OutputInfo> outputs;
  std::vector<uint32_t> updates;  ///< Tie indices of the storages that a run writes, ascending.
  std::vector<NodeInfo> nodes;    ///< In the order of execution.
};

/// An asset: bytes that are stored in the model.
struct AssetInfo {
  std::string name;
  std::string media_type;
  uint64_t bytes = 0;
};

/// A tensor of a self-test.
struct TensorInfo {
  std::string name;
  DType dtype = DType::f32;
  TensorShape shape;
};

/// Inputs of an entry point and the expected outputs. Model::self_test() returns the values.
struct SelfTestInfo {
  std::string entry_point;
  std::vector<TensorInfo> inputs;
  std::vector<TensorInfo> outputs;
  float relative_tolerance = 0;  ///< Relative to the largest magnitude in an output.
};

/// The values of a self-test, in the order of SelfTestInfo.
struct SelfTestValues {
  std::vector<std::vector<std::byte>> inputs;
  std::vector<std::vector<std::byte>> outputs;
};

/// For a file that contains only an adapter: the model that it belongs to.
struct BaseInfo {
  std::vector<uint8_t> digest;  ///< Digest of all values of that model.
  std::string name;
};

/// Training state that a checkpoint file contains. Creating a Trainer removes it from the model.
struct TrainingInfo {
  uint64_t step = 0;                   ///< Finished steps.
  uint64_t applied_steps = 0;          ///< Finished steps that were not skipped.
  uint64_t micro_step = 0;             ///< Micro-batches of the unfinished step.
  uint64_t epoch = 0;                  ///< As Progress::epoch.
  uint64_t data_cursor = 0;            ///< As Progress::data_cursor.
  uint64_t data_seed = 0;              ///< As Progress::data_seed.
  uint64_t seed = 0;                   ///< As TrainOptions::seed.
  uint64_t counter = 0;                ///< Micro-batches since the start of the run.
  std::optional<float> learning_rate;  ///< Set by Trainer::set_learning_rate().
  Settings run;                        ///< Options that must be the same when the run is resumed.
  Settings config;                     ///< As Progress::config.
  Settings versions;                   ///< Version of the library, and the device.
};

/// The contents of a model.
struct ModelInfo {
  std::vector<ParameterInfo> parameters;
  std::vector<StorageInfo> storages;  ///< By tie index, without empty rows at the end.
  std::vector<TieInfo> ties;          ///< Ascending by tie index.
  std::vector<DimInfo> dims;
  std::vector<EntryPointInfo> entry_points;
  Settings metadata;
  std::vector<AssetInfo> assets;
  std::vector<SelfTestInfo> self_tests;
  std::optional<BaseInfo> base;
  std::optional<TrainingInfo> training;
};

// ------------------------------------------------------------------------------------------ plans

/// A contiguous tensor that a record (RecordInfo) reads or writes.
struct OperandInfo {
  /// The memory that holds the tensor:
  /// - arena: activations and temporary values,
  /// - io: inputs and outputs,
  /// - step: per-step scalars,
  /// - storage: a storage of the model,
  /// - table: a different tensor in each iteration of a Repeat (SegmentInfo::tables).
  enum class Slot : uint8_t { arena, io, step, storage, table };
  Slot slot = Slot::arena;
  /// For a storage: its tie index. For a table: its index in SegmentInfo::tables.
  uint32_t number = 0;
  bool copy = false;  ///< For a storage: the record reads a copy of it (SegmentInfo::copies).
  /// Offset in bytes. In a quantized storage: offset of the quantized values. In a table: 0.
  uint64_t offset = 0;
  uint64_t bytes = 0;  ///< Size in bytes. In a table: 0.
  DType dtype = DType::f32;
  std::string encoding;  ///< As StorageInfo::encoding.
  TensorShape shape;
  /// In a Repeat, if `modulo` is not 0: iteration i uses the tensor at offset + ((i + shift) %
  /// modulo) * step_bytes.
  uint32_t modulo = 0;
  uint32_t shift = 0;
  uint64_t step_bytes = 0;
};

/// The tensor that a table holds for one iteration.
struct TableEntryInfo {
  OperandInfo::Slot slot = OperandInfo::Slot::storage;
  uint32_t number = 0;    ///< As OperandInfo::number.
  uint64_t offset = 0;    ///< Offset in bytes.
  uint64_t elements = 0;  ///< Size. 0: the storage is frozen, and its gradient is not stored.
  bool copy = false;      ///< As OperandInfo::copy.
};

/// A unit of work of a segment: a node, or the start or end of a Repeat.
struct RecordInfo {
  /// What the record does.
  enum class Kind : uint8_t { op, repeat_begin, repeat_end };
  Kind kind = Kind::op;
  std::string op;    ///< The operator, for example "LayerNorm".
  std::string node;  ///< The node as messages show it: node 17 "ln_f" (LayerNorm).
  Settings attributes;
  std::vector<OperandInfo> inputs;
  std::vector<OperandInfo> outputs;
  std::optional<OperandInfo> workspace;
  /// Bytes that one run of the record reads and writes, if each operand is read or written once.
  /// The workspace counts in both. Dynamic dimensions count with their maximum.
  uint64_t read_bytes = 0;
  uint64_t written_bytes = 0;  ///< See `read_bytes`.
  /// On a planning device for a GPU: the names of the kernels that one run launches, in order.
  std::vector<std::string> kernels;
  /// Records of the same level do not depend on each other. Levels in a Repeat start at 0.
  uint32_t level = 0;
  uint32_t count = 1;    ///< For repeat_begin: the number of iterations.
  bool reverse = false;  ///< For repeat_begin: the iterations run from last to first.
};

/// An input or output of a segment.
struct IoInfo {
  std::string name;
  DType dtype = DType::f32;
  TensorShape shape;  ///< With the maximum of each dynamic dimension.
  /// For each axis: the name of its dynamic dimension, or "". An empty vector: no axis is dynamic.
  std::vector<std::string> dynamic_dims;
  uint64_t offset = 0;  ///< Offset in bytes in the io buffer.
  uint64_t bytes = 0;
};

/// A per-step scalar of a segment. A StepScalar sets its value.
struct StepScalarInfo {
  std::string name;
  std::string type;     ///< "f32", "u32" or "u64".
  uint32_t offset = 0;  ///< Offset in bytes in the step buffer.
  std::optional<std::variant<uint64_t, double>> default_value;
  bool read = false;     ///< A record reads it.
  bool written = false;  ///< A record writes it.
};

/// A dynamic dimension of a segment. The step buffer holds its size in a run, as a u32.
struct DynamicDimInfo {
  std::string name;
  int64_t min = 1;
  int64_t max = 0;
  uint32_t offset = 0;  ///< Offset in bytes in the step buffer.
};

/// A part of a plan that is recorded once and submitted as a whole.
struct SegmentInfo {
  /// - Session: "forward", and "hoisted" for values that depend only on parameters. After such a
  ///   parameter was written, the next run starts with "hoisted".
  /// - Trainer: "accumulate" (forward and backward), "update", and "forward" for evaluate().
  std::string name;
  /// The entry point and its sizes. For a Trainer: empty unless TrainOptions::more_dims is used.
  BoundEntryPoint entry_point;
  uint64_t launches = 0;  ///< As Counters::launches.
  uint64_t arena_bytes = 0;
  uint64_t io_bytes = 0;
  std::vector<IoInfo> inputs;
  std::vector<IoInfo> outputs;
  std::vector<RecordInfo> records;                  ///< In the order of execution.
  std::vector<std::vector<TableEntryInfo>> tables;  ///< For each table: one entry per iteration.
  std::vector<StepScalarInfo> scalars;
  std::vector<DynamicDimInfo> dynamic_dims;
  std::vector<CopyInfo> copies;    ///< Copies of storages that it reads.
  std::vector<uint32_t> storages;  ///< Tie indices of the storages that it reads or writes.
  std::vector<uint32_t> writes;    ///< Tie indices of the storages that it writes.
};

/// A parameter list of a Repeat.
struct RepeatListInfo {
  std::string name;
  std::optional<DType> copy;   ///< The plan reads copies in this dtype.
  std::vector<uint32_t> ties;  ///< The tie index for each iteration.
};

/// The plans of a Session or Trainer.
struct PlanInfo {
  std::string device;
  uint32_t accumulation = 1;  ///< As TrainOptions::accumulation.
  /// Nodes whose results are recomputed in the backward pass to save memory.
  uint64_t recomputed_nodes = 0;
  std::vector<SegmentInfo> segments;
  std::vector<RepeatListInfo> repeat_lists;
};

}  // namespace bowline

#pragma GCC visibility pop
