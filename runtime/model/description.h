// What a model file says, as plain structs. model/ takes and returns these; no other layer sees the
// tables of the file.
//
// Entries are views: of a verified file, or of the model that is written. They are valid as long as
// that is. The others own what they hold.
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

struct StorageEntry {
  DType dtype = DType::f32;
  std::span<const int64_t> shape;
  Encoding encoding;
  StorageRole role = StorageRole::weight;
  int32_t owner = kNoOwner;
  uint32_t slot = 0;
  bool trainable = true;
  bool empty = false;
  Init init;
  std::shared_ptr<const FileRange> range;  // of a file: null where it has no bytes
};

struct ParameterEntry {
  std::string_view name;
  uint32_t tie = 0;
  View view;
  std::string_view target;
};

struct InputEntry {
  std::string_view name;
  DType dtype = DType::f32;    // of the input of a body: nothing
  std::vector<GraphDim> dims;  // the same
};

// The body is a graph by its number; its parameters are one list per value, with an item per
// iteration.
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
  Attributes attributes;              // unless it is a Repeat
  std::optional<RepeatEntry> repeat;  // then this
};

// The name is empty in a body.
struct OutputEntry {
  std::string_view name;
  uint32_t value = 0;
};

// Values are numbered: inputs first, then the uses of parameters, then the outputs of the nodes in
// order.
struct GraphEntry {
  std::string_view name;
  bool body = false;
  std::vector<InputEntry> inputs;
  std::vector<uint32_t> parameters;  // of an entry point: one parameter per use
  uint32_t body_parameters = 0;      // of a body: how many lists
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

// What a checkpoint says of its run; schemas/model.fbs has the meaning of each.
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
  std::vector<double> loss_weights;  // empty: all alike
  uint64_t applied_steps = 0;
  Settings run;
  std::optional<float> learning_rate;
};

// A model as it is written.
struct Description {
  std::vector<DimInfo> dims;
  std::vector<StorageEntry> storages;
  std::vector<bool> has_bytes;  // by tie index
  std::vector<ParameterEntry> parameters;
  std::vector<GraphEntry> graphs;  // a body stands behind the graph of its Repeat
  std::span<const Asset> assets;
  const BaseInfo* base = nullptr;
  Settings metadata;
  std::span<const SelfTest> self_tests;
  const TrainingState* training = nullptr;
  // A run of the bytes of a storage, in memory of the model or in `scratch`. All are asked for
  // twice, with equal answers.
  std::function<Result<std::span<const std::byte>>(uint32_t tie, uint64_t first, uint64_t count,
                                                   std::vector<std::byte>& scratch)>
      bytes;
};

}  // namespace bowline::detail::model
