// The contents of a model file as plain structs. Other layers use these structs; only model/ knows
// the FlatBuffers tables of the file.
//
// The structs named ...Entry refer to memory of a verified file or of the model that is written.
// They are valid as long as this file or model. The other structs own their contents.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/attributes.h"
#include "core/encoding.h"
#include "model/map.h"

namespace bowline::detail::model {

constexpr int32_t kNoOwner = -1;

// A storage without its values.
struct StorageEntry {
  DType dtype = DType::f32;
  Shape shape;
  Encoding encoding;
  StorageRole role = StorageRole::weight;
  int32_t owner = kNoOwner;  // tie index of the row that this one belongs to
  uint32_t slot = 0;         // number among the owner's rows of this role
  bool trainable = true;
  bool empty = false;
  Init init;
};

struct ParameterEntry {
  std::string_view name;
  uint32_t tie = 0;
  View view;
  std::string_view target;
};

struct InputEntry {
  std::string_view name;
  DType dtype = DType::f32;    // not used for the body of a Repeat
  std::vector<GraphDim> dims;  // not used for the body of a Repeat
};

// A Repeat. `body` is the number of a graph. `parameters` has one list per parameter value of the
// body, with one item per iteration.
struct RepeatEntry {
  uint32_t body = 0;
  uint32_t count = 1;
  uint32_t carried = 0;
  std::vector<std::span<const uint32_t>> parameters;
};

struct NodeEntry {
  Op op = Op::Invalid;
  std::string_view name;
  std::vector<uint32_t> inputs;
  uint32_t outputs = 0;
  Attributes attributes;              // if the node is not a Repeat
  std::optional<RepeatEntry> repeat;  // if the node is a Repeat
};

// An output. In the body of a Repeat, `name` is empty.
struct OutputEntry {
  std::string_view name;
  uint32_t value = 0;
};

// A graph. Its values are numbered in this order: inputs, uses of parameters, outputs of the nodes.
struct GraphEntry {
  std::string_view name;
  bool body = false;
  std::vector<InputEntry> inputs;
  std::vector<uint32_t> parameters;  // entry point: one parameter per use
  uint32_t body_parameters = 0;      // body of a Repeat: the number of parameter lists
  std::vector<NodeEntry> nodes;
  std::vector<OutputEntry> outputs;
  std::vector<uint32_t> updates;  // ascending tie indices of the states that the nodes write
};

struct Asset {
  std::string name;
  std::string media_type;
  std::shared_ptr<const FileRange> range;
};

struct SelfTestTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  std::shared_ptr<const FileRange> range;
};

struct SelfTest {
  std::string graph;
  std::vector<SelfTestTensor> inputs;
  std::vector<SelfTestTensor> outputs;
  float relative_tolerance = 0;
};

// The state of a training run in a checkpoint. schemas/model.fbs documents the fields.
struct TrainingState {
  uint64_t step = 0;
  uint64_t epoch = 0;
  uint64_t sample_cursor = 0;
  uint64_t micro_step = 0;
  uint64_t shuffle_seed = 0;
  uint64_t rng_seed = 0;
  uint64_t rng_counter = 0;
  float loss_scale = 1;
  uint64_t loss_scale_good_steps = 0;
  std::string optimizer;
  std::string schedule;
  Settings config;
  Settings versions;
  uint64_t plan_hash = 0;
  std::vector<float> loss_log;
  std::vector<double> loss_weights;  // empty: all equal
  uint64_t applied_steps = 0;
  Settings run;
  std::optional<float> learning_rate;
};

// A model to write.
struct Description {
  std::vector<DimInfo> dims;
  std::vector<StorageEntry> storages;
  std::vector<bool> has_bytes;  // by tie index
  std::vector<ParameterEntry> parameters;
  std::vector<GraphEntry> graphs;  // a body comes after the graph of its Repeat
  std::span<const Asset> assets;
  const BaseInfo* base = nullptr;
  Settings metadata;
  std::span<const SelfTest> self_tests;
  const TrainingState* training = nullptr;
  // Returns bytes [first, first + count) of a storage, in memory of the model or in `scratch`. The
  // writer reads all bytes twice; both times must return the same bytes.
  std::function<Result<std::span<const std::byte>>(uint32_t tie, uint64_t first, uint64_t count,
                                                   std::vector<std::byte>& scratch)>
      bytes;
};

}  // namespace bowline::detail::model
