// Bowline: an embedded runtime that runs and fine-tunes neural networks on the CPU and on any GPU.
//
// This header is the public interface and its manual. It includes only the standard library. The
// operators and their attributes are listed in operators.md, installed in share/doc/bowline.
//
// The idea. A model keeps its weights in a table of *storages*. A *parameter* is a named slot that
// holds the number of a storage row, its *tie index*, and perhaps a view of it. Two parameters with
// the same tie index are *tied*: they are one weight, and stay one weight through every verb below,
// because sharing is stored in the model file and never guessed from pointers, names or values.
//
// Errors.   No exceptions leave the library. A function that can fail returns Status or Result<T>;
//           both are [[nodiscard]]. The code says what the caller should do next. A verb that fails
//           changes nothing. If an allocation of host memory fails, the function returns
//           out_of_memory, or an empty string if it returns plain text. A Model, Session or Trainer
//           that was moved from returns bad_argument, or nothing.
// Threads.  One thread at a time may use a Model and all Sessions and Trainers made from it, unless
//           a function says otherwise. Different models are independent, also on one Device. There
//           they take turns, in the order in which they ask: each waits for at most one submission
//           of every other. On the CPU a submission that others wait for pauses after a
//           millisecond, at the end of the operator that runs.
// fork().   A Device belongs to the process that opened it. In the child of a fork(), calls that
//           use the Device return device_lost, and destroying it is safe. The child opens a device
//           of its own and loads its models again.
// Lifetime. A Device outlives what is placed on it; a Model outlives its Sessions and Trainers.
// Data.     describe() returns the contents of an object as plain structs: all parts of a Model
//           (parameters, storages, ties, entry points, ...), the plans of a Session or Trainer. The
//           listings show the same data as text.
// Globals.  The library never aborts, exits, prints or installs signal handlers. It does not touch
//           locale, working directory, environment or floating-point mode. One exception:
//           Result::value() of a failure prints the message and aborts.
#pragma once

#if defined(__cplusplus) && __cplusplus < 202002L
#error "bowline.h needs C++20: compile with -std=c++20 (GCC 12, Clang 14 or newer)."
#endif

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

// Internal types. Programs do not use them.
namespace bowline::detail {
namespace device {
class OpenDevice;
}
namespace exec {
class SessionState;
}
namespace graph {
struct ModelState;
}
namespace train {
class TrainerState;
}
}  // namespace bowline::detail

// A shared library exports what this header declares, and nothing else.
#pragma GCC visibility push(default)

namespace bowline {

// ------------------------------------------------------------------------------------------ errors

// What the caller should do next.
enum class Code : uint8_t {
  ok,
  bad_argument,        // fix the call
  bad_file,            // do not use this file; the place is in the message
  index_out_of_range,  // fix the data row; the node is named
  unsupported,         // choose another device, model or precision
  non_finite,          // look at the named node
  out_of_memory,       // free memory
  over_budget,         // raise the Budget, if the file is trusted, or DeviceOptions::memory_budget
  io_error,            // retry, or choose another path
  device_lost,         // make a new device, resume from the last checkpoint
  device_poisoned,     // end this process and start again
  cancelled,           // nothing; the state is as before
  internal,            // report a bug
};

// "bad_file" for Code::bad_file.
std::string_view name_of(Code code);

// Success, or a code with a sentence that states what failed. Lines added by callers follow it.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::ok; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

  // Adds a line of context ("- While loading ...") to a failure.
  Status at(std::string_view context) && {
    if (!ok()) {
      message_ += "\n- ";
      message_ += context;
    }
    return std::move(*this);
  }
  // The same failure under another code.
  Status as(Code code) && {
    if (!ok()) {
      code_ = code;
    }
    return std::move(*this);
  }

 private:
  Code code_ = Code::ok;
  std::string message_;
};

// Prints the message of a failure and aborts: the one place where the library does either.
[[noreturn]] inline void end_with(const Status& status) {
  const std::string_view code = name_of(status.code());
  std::fprintf(stderr, "bowline: the value of a failed Result is asked for: %.*s: %s\n",
               static_cast<int>(code.size()), code.data(), status.message().c_str());
  std::abort();
}

// A value, or the Status that says why there is none. value() of a failure ends the program.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) {}

  bool ok() const { return value_.has_value(); }
  const Status& status() const& { return status_; }
  Status status() && { return std::move(status_); }
  T& value() & {
    require_value();
    return *value_;
  }
  const T& value() const& {
    require_value();
    return *value_;
  }
  T&& value() && {
    require_value();
    return *std::move(value_);
  }

 private:
  void require_value() const {
    if (!value_.has_value()) {
      end_with(status_);
    }
  }
  std::optional<T> value_;
  Status status_;
};

// In a function that returns Status or Result: passes a failed Status up.
#define BOWLINE_TRY(call)                                                  \
  do {                                                                     \
    if (::bowline::Status bowline_status = (call); !bowline_status.ok()) { \
      return bowline_status;                                               \
    }                                                                      \
  } while (false)

// BOWLINE_ASSIGN(auto x, call): x is the value of a Result, or its Status is passed up.
#define BOWLINE_ASSIGN(target, call) \
  BOWLINE_ASSIGN_AS(BOWLINE_CONCAT(bowline_result_, __LINE__), target, call)
#define BOWLINE_ASSIGN_AS(result, target, call) \
  auto result = (call);                         \
  if (!result.ok()) {                           \
    return std::move(result).status();          \
  }                                             \
  target = std::move(result).value()
#define BOWLINE_CONCAT_INNER(a, b) a##b
#define BOWLINE_CONCAT(a, b) BOWLINE_CONCAT_INNER(a, b)

// ----------------------------------------------------------------------------------------- tensors

enum class DType : uint8_t { f32, f16, bf16, i8, u8, i32, i64, boolean };

constexpr int kDTypes = 8;

// Bytes per element.
constexpr size_t size_of(DType t) {
  constexpr size_t sizes[kDTypes] = {4, 2, 2, 1, 1, 4, 8, 1};
  return sizes[static_cast<size_t>(t)];
}

constexpr std::string_view name_of(DType t) {
  constexpr std::string_view names[kDTypes] = {"f32", "f16", "bf16", "i8",
                                               "u8",  "i32", "i64",  "bool"};
  return names[static_cast<size_t>(t)];
}

// The dims of a tensor, up to 8, held inline. Made from a list, an array, a vector or a span. What
// is made from more dims says so when it is used: bad_argument.
class TensorShape {
 public:
  TensorShape() = default;
  TensorShape(std::initializer_list<int64_t> dims)
      : TensorShape(std::span(dims.begin(), dims.size())) {}
  TensorShape(const int64_t* dims, size_t rank) : TensorShape(std::span(dims, rank)) {}
  template <size_t n>
  TensorShape(const int64_t (&dims)[n]) : TensorShape(std::span<const int64_t>(dims)) {}
  template <class Range>
    requires(!std::same_as<Range, TensorShape> &&
             std::convertible_to<const Range&, std::span<const int64_t>>)
  TensorShape(const Range& range) {
    const std::span<const int64_t> dims = range;
    rank_ = std::min(dims.size(), dims_.size());
    std::copy_n(dims.begin(), rank_, dims_.begin());
  }

  size_t size() const { return rank_; }
  int64_t operator[](size_t axis) const { return dims_[axis]; }
  const int64_t* begin() const { return dims_.data(); }
  const int64_t* end() const { return begin() + rank_; }
  bool operator==(const TensorShape& other) const {
    return std::equal(begin(), end(), other.begin(), other.end());
  }

 private:
  std::array<int64_t, 9> dims_{};  // one more than are allowed, so that too many are noticed
  size_t rank_ = 0;
};

// A view of host memory: contiguous, last dim fastest. The shape is its own, the name and the data
// are not.
struct Tensor {
  std::string_view name;
  DType dtype = DType::f32;
  TensorShape shape;
  void* data = nullptr;
};

// The value of a per-step scalar, which an operator reads anew in every run; the operator declares
// `name` (operators.md). Or the size of a dynamic dimension that no input has; `name` is then the
// name of the dimension.
struct StepValue {
  std::string_view name;
  std::variant<uint64_t, double> number;  // a double: fractions, and what is negative

  StepValue(std::string_view n, std::unsigned_integral auto v)
      : name(n), number(static_cast<uint64_t>(v)) {}
  StepValue(std::string_view n, std::signed_integral auto v) : name(n) {
    if (v < 0) {
      number = static_cast<double>(v);
    } else {
      number = static_cast<uint64_t>(v);
    }
  }
  StepValue(std::string_view n, std::floating_point auto v)
      : name(n), number(static_cast<double>(v)) {}
};

// The numbers that a named dim may have. One that is not counted is bound to a number when a plan
// is made. One that is counted is bound to a capacity, and every run has a number of its own, up to
// it: that of its inputs, or a StepValue of the dim's name.
struct DimLimits {
  int64_t min = 1;
  int64_t max = 2147483647;
  bool counted = false;
};

// A named dim bound to a number; a counted one to its capacity.
struct BoundDim {
  std::string name;
  int64_t value = 0;
};

// ----------------------------------------------------------------------------------------- devices

struct DeviceOptions {
  int threads = 0;           // CPU: worker threads, the caller's included; 0: one per usable core
  std::string cache_folder;  // Vulkan: where compiled pipelines are kept; empty: not kept
  // The most memory, bytes, that the opened device takes at a time: storages, arenas, inputs and
  // outputs, step words, and what recordings and staged copies hold. What exceeds it is refused
  // with over_budget. 0: not limited.
  uint64_t memory_budget = 0;
  // Vulkan: copies are staged even where the host sees the device's memory, as most GPUs of their
  // own need it. For tests.
  bool stage_copies = false;
};

struct DeviceInfo {
  std::string name;         // "cpu", "vulkan:0", "null"
  std::string description;  // "llvmpipe (LLVM 15.0.6, 256 bits), Mesa 22.3.6"
  std::string unusable;     // why it cannot be opened; empty if it can
  bool software = false;    // a software driver: `best` does not prefer it to the CPU
  bool for_tests = false;  // slow, or computes nothing, or breaks on purpose: `best` never takes it
  bool computes = true;    // false: it checks what it is given, and its numbers mean nothing
};

// Counted where memory is obtained and where work is handed over.
struct DeviceCounters {
  uint64_t allocations = 0;
  uint64_t live_bytes = 0;
  uint64_t peak_bytes = 0;
  uint64_t copies_in = 0;
  uint64_t copies_out = 0;
  uint64_t copies = 0;
  uint64_t fills = 0;
  uint64_t records = 0;
  uint64_t submits = 0;
};

// The library's own way to what the public objects hold; it is not installed.
struct Internals;

// An opened device. Copies share it; it closes with the last copy.
class Device {
 public:
  // All devices of all backends, the unusable ones with the reason.
  static std::vector<DeviceInfo> list();
  // `name` is a name of list(), "gpu" (the best GPU, no software driver) or "best" (the best GPU,
  // else the CPU). The prefix "planning:" opens a device without memory that runs nothing: plans on
  // it report the memory that they would need, also for storages without values.
  // Errors  bad_argument: no device has this name.
  //         unsupported: the device cannot be used; the message has the reason.
  //         over_budget: the memory that the device holds for copies exceeds the memory budget.
  static Result<Device> open(std::string_view name, const DeviceOptions& options = {});
  ~Device();
  Device(const Device&);
  Device& operator=(const Device&);
  Device(Device&&) noexcept;
  Device& operator=(Device&&) noexcept;

  const DeviceInfo& info() const;
  DeviceCounters counters() const;
  // Sets the counters to zero, but for the live bytes; the peak starts from them.
  void reset_counters();

 private:
  friend struct Internals;
  explicit Device(std::shared_ptr<detail::device::OpenDevice> open);
  std::shared_ptr<detail::device::OpenDevice> open_;
};

// ------------------------------------------------------------------------------------------ models

// How materialize() fills a storage. The values depend on the seed and the tie index alone.
struct Init {
  enum class Kind : uint8_t { zeros, ones, normal, uniform };
  Kind kind = Kind::zeros;
  float scale = 0;
  static Init zeros() { return {}; }
  static Init ones() { return {Kind::ones, 0}; }
  static Init normal(float deviation) { return {Kind::normal, deviation}; }
  static Init uniform(float bound) { return {Kind::uniform, bound}; }
};

// A declared view of a storage: rows [row_start, row_start + rows) of the first axis, then a
// reshape, then a transpose of the last two axes. The default is the whole storage. A view is
// always relative to the storage, never to what another parameter shows of it.
struct View {
  int64_t row_start = 0;
  int64_t rows = -1;           // -1: up to the last row
  std::vector<int64_t> shape;  // empty: no reshape
  bool transpose = false;
  bool operator==(const View&) const = default;
};

// ------------------------------------------------------------------------------------ descriptions
//
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

// A named dim. A counted one is bound to a capacity.
struct DimInfo {
  std::string name;
  int64_t min = DimLimits{}.min;
  int64_t max = DimLimits{}.max;
  bool counted = false;
  bool operator==(const DimInfo&) const = default;
};

// A dim of an input, or a size among attributes: a number, or the name of a dim that is bound when
// a plan is made.
struct GraphDim {
  int64_t value = 0;
  std::string name;
  GraphDim(int v) : value(v) {}
  GraphDim(int64_t v) : value(v) {}
  GraphDim(const char* n) : name(n) {}
  GraphDim(std::string n) : name(std::move(n)) {}
  bool operator==(const GraphDim&) const = default;
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

// -------------------------------------------------------------------------------------- the model

// A parameter of one Model; another Model refuses it.
struct Parameter {
  uint32_t index = UINT32_MAX;
  uint64_t model = 0;
};

// For each iteration of a Repeat one parameter.
struct ParameterList {
  std::vector<Parameter> items;
};

enum class LoadMode : uint8_t {
  copy,    // values go into the storages of the model; dtype and shape must agree
  assign,  // the storages take over dtype and shape too
};

// A parameter that a file supplies, beside the one of the model that it is for.
struct LoadedParameter {
  ParameterInfo here;
  StorageInfo storage_here;  // what it shows
  ParameterInfo file;
  StorageInfo storage_file;
};
// Values in the order of the elements.
struct LoadedValue {
  DType dtype = DType::f32;
  TensorShape shape;
  std::vector<std::byte> bytes;
  // (optional) What the numbers are stored as, as quantize() has it; of a frozen storage, with
  // LoadMode::assign.
  std::string encoding = {};
};
// Gets the values that the file has for a parameter, and returns what is loaded instead, or none:
// these. Called once for all names that show the same of one storage of the file and are for one
// storage of the model.
using LoadHook = std::function<Result<std::optional<LoadedValue>>(const LoadedParameter& of,
                                                                  const Tensor& value)>;

// Gives bytes [first, first + out.size()) of a value, as often as it is asked and the same ones
// each time, from any thread. What it returns of a failure is passed on.
using ValueSource = std::function<Status(uint64_t first, std::span<std::byte> out)>;

struct LoadOptions {
  LoadMode mode = LoadMode::copy;
  bool partial =
      false;  // what the file does not supply stays, and what the model does not have is left out
  // Parameters of the file, and what they are called in the model.
  std::vector<std::pair<std::string, std::string>> aliases = {};
  LoadHook hook = {};
};

// What tie() did.
struct TieReport {
  struct Tie {
    std::string to;
    std::string parameter;
  };
  // Nobody uses it any more: its bytes are gone.
  struct Dropped {
    uint32_t storage = 0;
    StorageRole role = StorageRole::weight;
    uint64_t bytes = 0;
  };
  std::vector<Tie> ties;         // but for those that were so before
  std::vector<Dropped> dropped;  // storages that lost their last parameter, and the moments and
                                 // masters that they owned
  // "tied "b" to "a"\ndropped storage 1 (weight, 256 bytes)\n", a line each.
  std::string text() const;
};

// Low-rank changes B A of matrices, which are trained instead of them.
struct AdapterOptions {
  int64_t rank = 8;  // what "!head.*" in `target` matches has that of its values, biases too
  float alpha = 16;  // B A is multiplied by alpha / rank, and by the adapter's weight
  // Over parameters, as Model::resize(); matching ones that no Linear, Embedding or MatMul reads as
  // its matrix are left out.
  std::string target = "*";
  // false: each storage that a parameter of these shows gets one change, which all of its
  // parameters see; true: only these do.
  bool per_use = false;
  bool freeze_others = true;  // only adapters are trained from now on
  uint64_t seed = 0;          // of A; B begins as zeros
  // While training, elements of what the change B A is applied to are zero with this probability,
  // and the others scaled up; drawn anew per use and micro-batch from TrainOptions::seed. Of the
  // adapter: files and copies keep it. What has rows of a table (Embedding) has none.
  float dropout = 0;
};

struct AdapterReport {
  std::vector<std::string> targets;  // the parameters that see a change
  uint64_t bytes = 0;                // of the new storages
};

struct ResizeReport {
  uint32_t storages = 0;      // of another number of rows now
  uint64_t bytes_before = 0;  // of these
  uint64_t bytes_after = 0;
  std::vector<TieReport::Dropped> dropped;  // what they owned and had another shape
};

// Where each storage of a group begins in one allocation of so many bytes. What lies between them
// is zero.
struct FormatLayout {
  uint64_t bytes = 0;
  std::vector<uint64_t> offsets;  // multiples of the size of an element
};
// How the storages of a group lie in one allocation. Parameters, values, files and optimizers do
// not see it.
struct WeightFormat {
  std::string name;
  std::vector<std::string>
      ops;  // kinds of operators, one of which reads a parameter of the group; empty: any
  std::string device = "*";  // pattern of the names of devices that it is for
  std::string about;
  std::function<Result<FormatLayout>(std::span<const StorageInfo>)> layout;
};
struct FormatReport {
  std::string format;
  std::vector<uint32_t> ties;  // of the group, ascending
  uint64_t bytes = 0;          // of the allocation
};
struct FormatInfo {
  std::string name;
  std::vector<std::string> ops;
  std::string device;
  std::string about;
};

// Of what was made of storages since the model was made, or the counters were reset.
struct ModelCounters {
  uint64_t casts = 0;        // storages that cast() gave another dtype
  uint64_t quantized = 0;    // storages that quantize() encoded
  uint64_t dequantized = 0;  // and that dequantize() gave numbers
  uint64_t packs = 0;        // groups that set_format() laid out
  uint64_t repacks = 0;      // and that were laid out again after a verb that gave them other bytes
  uint64_t fallbacks = 0;    // groups that could not be, and lie apart again
};

struct CastReport {
  uint32_t storages = 0;      // of another dtype now
  uint64_t bytes_before = 0;  // of these
  uint64_t bytes_after = 0;
  std::vector<std::string> kept;  // parameters whose storage stays as it is, with the reason
};

// What replicate() or shard() did.
struct PlacementReport {
  uint32_t storages = 0;
  uint64_t bytes = 0;  // that were transferred
};

struct CompactReport {
  uint32_t dropped = 0;  // rows of the table that no parameter uses any more
  // Tie indices before, and in the file.
  std::vector<std::pair<uint32_t, uint32_t>> renumbered;
};

// What quantize() or dequantize() did.
struct QuantizeReport {
  uint32_t storages = 0;          // in another encoding now
  uint64_t bytes_before = 0;      // of these
  uint64_t bytes_after = 0;       // of their codes and scales, or of their numbers
  std::vector<std::string> kept;  // parameters whose storage stays as it is, with the reason
  std::vector<TieReport::Dropped> dropped;  // masters and moments of these
  // "1 storage: 131072 bytes before, 36864 after\nkept "b" ...\ndropped storage 3 (moment, 256
  // bytes)\n".
  std::string text() const;
};

struct LoadReport {
  uint32_t storages = 0;                // loaded
  std::vector<std::string> missing;     // parameters of the model that the file does not supply
  std::vector<std::string> unexpected;  // parameters of the file that the model does not have
};

// What may be spent on a file or a plan before it is refused with over_budget. 0: not limited.
struct Budget {
  uint64_t bytes = 0;  // of memory, without the values of the storages
  uint64_t nodes = 0;  // of graphs
  double seconds = 0;

  // The default budget of Model::open(). Memory: 96 MiB, plus 256 bytes per byte of the file's
  // tables. Nodes: as many as the tables can hold. Time: not limited. The tables are everything in
  // the file except the weights.
  static Budget of_file(uint64_t table_bytes);
  // What a plan gets unless told: 1,048,576 nodes that one run executes (a Repeat counts its body
  // once per iteration) and 60 seconds of planning. `bytes` are those of the arena with inputs and
  // outputs.
  static Budget of_plan();
};

struct OpenOptions {
  // false: the file is read into memory, not mapped. See Model::open().
  bool map = true;
  // If not set, Model::open() uses Budget::of_file() with the size of the file's tables.
  std::optional<Budget> budget;
  // Entries of the metadata that say what is tied ("tied_to.<parameter>" = "<parameter>",
  // "tie_word_embeddings" = "true" or "false") and contradict the table are an error unless this is
  // true. Ties are those of the table in any case; save() writes entries that agree.
  bool trust_table = false;
};

class GraphBuilder;

// The storage table, the parameters and the graphs; it owns the bytes. Move-only.
class Model {
 public:
  Model();
  ~Model();
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;

  // Verifies a .bowline file and maps it read-only. Weight bytes are compared with their checksum
  // when they are first read there, once as long as they stay in the file; after to(), load() or a
  // write they no longer do. A program that truncates the file meanwhile ends this one by SIGBUS,
  // one that edits it in place changes weights that were compared before: where others may do so,
  // set options.map to false. Then all is read at once, and what happens to the file later changes
  // nothing.
  // Errors  io_error: it cannot be read. bad_file: what and where. over_budget: it costs more than
  //         options.budget.
  static Result<Model> open(const std::string& path, const OpenOptions& options = {});
  // Verifies a file as open() does, then every checksum in it and that of the whole. Errors  as
  // open().
  static Status verify(const std::string& path, const OpenOptions& options = {});

  // Declaring. Shapes come first, bytes with materialize(), load() or set_value().
  // Errors  bad_argument: the name is taken or not valid UTF-8, the shape is not legal, the view
  //         does not fit, the role is not one
  // of weight, constant, kv_cache and running_statistic, or the role has a floor above the dtype
  // (running_statistic: f32).
  Result<Parameter> parameter(std::string_view name, const TensorShape& shape, Init init,
                              StorageRole role = StorageRole::weight, DType dtype = DType::f32);
  // A second parameter of the storage of `other`: a tie. Without a view it shows what `other`
  // shows.
  Result<Parameter> tied_parameter(std::string_view name, Parameter other,
                                   const std::optional<View>& view = {});
  // `count` parameters; "{}" in the name stands for the iteration.
  Result<ParameterList> parameters(std::string_view name, int count, const TensorShape& shape,
                                   Init init, StorageRole role = StorageRole::weight,
                                   DType dtype = DType::f32);
  Result<Parameter> find(std::string_view name) const;
  // Declares a dim before the first graph that names it; one that is not declared has the default
  // limits. Errors  bad_argument:
  // the model has the dim with other limits, or the limits are none.
  Status dim(std::string_view name, const DimLimits& limits);

  // Verbs. All or nothing: a failure leaves values, versions and listings as they were.
  // Each refuses with bad_argument ("busy") what would move storages that a Session or Trainer
  // reads now.

  // Gives every storage without bytes its initial values, drawn once per storage from `seed`.
  Status materialize(uint64_t seed);
  // Inside an accumulation of a Trainer tie, untie, freeze and load(assign) are refused: the
  // gradients that it has belong to the table as it is.

  // Makes `b` share the storage of `a` through `view`, or show what `a` shows without one; the
  // storage of `b`
  // becomes empty when `b` was its last parameter. Tying tied parameters again changes nothing.
  // Errors  bad_argument: `b`
  // would change its shape, or be the only one of a list of a Repeat that is transposed, or that is
  // not.
  Result<TieReport> tie(std::string_view a, std::string_view b,
                        const std::optional<View>& view = {});
  // Ties parameters that differ in one number alone to the one of the least number, in one call:
  // "blocks.{}.mlp.{up,down}.*" ties "blocks.1.mlp.up.weight" to "blocks.0.mlp.up.weight". "{}"
  // stands for the number, "{a,b}" for one of these, "*" for any
  // characters, "?" for one. Errors  bad_argument: no two parameters match; as tie().
  Result<TieReport> tie_numbered(std::string_view pattern);
  // Gives `name` an own storage, a copy; a transpose stays one, and codes stay codes with their
  // scales. Returns the bytes that this costs, owned rows included.
  Result<uint64_t> untie(std::string_view name);
  // What untie() would return.
  Result<uint64_t> untie_cost(std::string_view name) const;
  // Writes the values of one parameter (through its view); every parameter of the tie sees them.
  Status set_value(std::string_view name, const Tensor& value);
  // The storage that all of `name` shows gets its values from `source`, which is asked for them
  // whenever they are needed, run by run: save() holds at most 8 MiB of them at a time. What writes
  // or moves the storage takes them into memory. `encoding`, as quantize() has it: the source gives
  // such codes with their scales, and the storage is frozen. What lay there goes, with masters and
  // moments of numbers that become codes.
  // Errors  bad_argument: the parameter shows a part of its storage; quantize() would refuse the
  //         encoding for what it is, or for what reads
  // it; the model is busy.
  Status set_source(std::string_view name, ValueSource source, std::string_view encoding = "plain");
  // Gives the storage of a parameter dtype, shape and values of the tensor, and codes become
  // numbers; its tie index, and so every
  // other parameter and every optimizer that knows it, stays. Moments and masters of another shape
  // go. Errors  bad_argument: the
  // parameter shows a part of its storage, or another one would; an operator of an entry point
  // would get operands that it does not take.
  Status assign(std::string_view name, const Tensor& value);
  // Exchanges what the storages of two parameters hold: dtype, shape, encoding, values, whether
  // they are trained, and the moments and
  // masters that they own. Names, ties and views stay: every holder of `a` sees the former `b`.
  // Errors  bad_argument: a view, or an
  // operator of an entry point, does not take the other shape or dtype.
  Status swap(std::string_view a, std::string_view b);
  // Gives the storages of the parameters that match `pattern` (as tie_numbered(), without "{}") so
  // many rows along their first axis, once each: rows behind them are cut, new ones begin as
  // materialize(seed) draws `init`. Moments get zeros there, masters the new
  // values. Errors  bad_argument: nothing matches; a view, or an operator of an entry point, does
  // not take the new shape; the storage
  // has no rows, or is codes: but those of an int8 cache, whose new rows are zeros.
  Result<ResizeReport> resize(std::string_view pattern, int64_t rows, Init init = Init::zeros(),
                              uint64_t seed = 0);
  // Adapters. Linear, Embedding and MatMul add weight * alpha / rank * B A to the matrices that an
  // adapter changes, without making them; the graphs and what they hold stay. A is [rank, in],
  // drawn uniformly within 1 / sqrt(in), B [out, rank]; the parameters "<target>.<adapter>.lora_a"
  // and ".lora_b" show them as the target shows its storage, and name it (ParameterInfo::target).
  // "<adapter>.lora_scale" is weight * alpha / rank, "<adapter>.lora_alpha" alpha. They are
  // parameters like others to every verb. A parameter that is tied later to a changed storage does
  // not see the change. What an adapter changes lies on one device.
  // Several adapters add up. Source  Hu et al., "LoRA: Low-Rank Adaptation of Large Language
  // Models", 2021.
  // Errors  bad_argument: the name is taken, the rank is below 1, no parameter matches, none of
  //         them is a matrix that an adapter
  // changes, or one behind "!" is neither that nor a bias; a parameter of a storage is read in
  // another way; the model is busy.
  Result<AdapterReport> add_adapter(std::string_view name, const AdapterOptions& options = {});
  // In order of their declaration.
  std::vector<std::string> adapters() const;
  // What the adapter is multiplied by, besides alpha / rank: 1 unless set, 0 turns it off. No plan
  // is made again.
  Status set_adapter_weight(std::string_view name, float weight);
  Result<float> adapter_weight(std::string_view name) const;
  // Handles of parameters are not valid afterwards. What add_adapter() froze stays so.
  Status remove_adapter(std::string_view name);
  // Adds the adapter to the storages that it changes, in f32 and rounded once, and removes it.
  // Errors  bad_argument: a parameter of
  // such a storage does not see the change, and would; the storage is encoded.
  Status merge_adapter(std::string_view name);
  // The storages and parameters of the adapter alone, with the digest of the values that all other
  // parameters show.
  Status save_adapter(std::string_view name, const std::string& path) const;
  // Adds the adapter of a file, and returns its name: `name`, or the one that it was saved under if
  // `name` is empty. Errors bad_argument: it is of a model of other values, or the name is taken.
  Result<std::string> load_adapter(const std::string& path, std::string_view name = {});
  // The values of one parameter (through its view), into `out` of the right dtype and size.
  Status get_value(std::string_view name, const Tensor& out) const;
  // The storage of a frozen parameter is not trained, nor is any parameter that is tied to it: the
  // flag is the
  // storage's. Errors  bad_argument: thawing one parameter of several of a storage, for another may
  // be frozen on
  // purpose; they are named. So is one that is no weight.
  Status freeze(std::string_view name, bool frozen = true);
  // As freeze(), meaning every parameter of the storage of `name`.
  Status freeze_storage(std::string_view name, bool frozen = true);
  // Moves every storage: one transfer each. Moving to where the model is does nothing. Errors
  // over_budget, out_of_memory: all
  // storages together, moments and gradients too, do not fit; known before the first is moved.
  Status to(const Device& device);
  // Moves the storages of the parameters that match `pattern` ("*": any characters, "?": one),
  // whole ties with what they own, so that a model may lie on several devices. A session or trainer
  // finds what it needs on one device, or names what lies elsewhere;
  // new bytes, of materialize() or untie(), go where the last move of all storages went. Errors  as
  // above; bad_argument: nothing
  // matches.
  Status to(const Device& device, std::string_view pattern);
  // Takes these storages from their devices into host memory, one transfer each; to() brings them
  // back. Sessions that read them wait
  // for that. Errors  as to().
  Status offload(std::string_view pattern = "*");
  // Gives the storages of the parameters that match `pattern` a second place, one transfer each:
  // sessions on `device` read them there. The model lies where it did, and is written there: before
  // a run that reads a replica which is behind, it is transferred again
  // (Counters::transfers), to the same address. Files, clones and trainers do not see replicas;
  // to() and offload() end them. Errors  as to();
  // bad_argument: nothing matches, or a storage has no bytes.
  Result<PlacementReport> replicate(const Device& device, std::string_view pattern = "*");
  // Splits these storages by rows over devices, which then hold a part each; the first ones get a
  // row more where the rows do not divide. One with fewer rows than devices lies on as many as it
  // has, an encoded one or a number whole on the first. Every verb works as before, and to() or
  // offload() gathers them. A session on any of the devices reads a copy that is gathered there, by
  // a transfer after each
  // write; what a Trainer reads must be gathered first. Errors  as replicate(); bad_argument: no
  // device, or one twice.
  Result<PlacementReport> shard(std::span<const Device> devices, std::string_view pattern = "*");
  // Gives the storages of the parameters that match `pattern` the dtype `to` (f32, f16, bf16), once
  // per storage and so for every parameter of a tie, to nearest even. Integers and running
  // statistics (floor f32) stay and are reported; so do moments. Codes and their scales stay as
  // they are, and stand for numbers of the new dtype. With the pattern "*" float inputs of the
  // entry
  // points become of that dtype too, and a plan made afterwards is the plan of a model that was
  // built in it. Errors  bad_argument: nothing matches, the dtype is no float; an operator of an
  // entry point
  // would get operands of two dtypes: the node is named. over_budget, out_of_memory: old and new
  // storages do not fit.
  Result<CastReport> cast(DType to, std::string_view pattern = "*");
  // Lays the storages of the parameters that match `pattern` into one allocation of their device,
  // as the weight format says. Writes and updates go there, files are in the standard layout, and
  // verbs keep it: what gets other bytes is laid out again, on the device
  // that it moves to. That it is so already changes nothing. Errors  bad_argument: the format is
  // not known (those that are are
  // named), or for other devices or operators; nothing matches; a storage lies on no device.
  Result<FormatReport> set_format(std::string_view format, std::string_view pattern = "*");
  // Gives these storages allocations of their own again. Returns the groups.
  Result<uint32_t> restore_format(std::string_view pattern = "*");
  // Adds a format to those that the library has. Errors  bad_argument: the name is taken, or there
  // is no layout.
  Status register_format(WeightFormat format);
  std::vector<FormatInfo> formats() const;
  ModelCounters counters() const;
  void reset_counters();
  // Quantizes the storages of all parameters that match `pattern`, a tied storage once. Quantized
  // values have no gradient: the storages are frozen, their moments and masters dropped.
  // `encoding` is
  //   "int8"                     one scale
  //   "int8 block row"           a scale per row; "int8 block 32": of the last axis
  //   "int4", "int4 with zero points"   blocks of 32 along the last axis, scales f16
  //   "q8_0", "q4_0"             the bytes of GGUF
  // int8 and int4 also take "scale f16" (f32, bf16) and "with zero points" behind the name.
  // A storage is quantized if all operators that read it can read quantized values: Linear its
  // weight, Embedding its table, MatMul its matrices, through views that keep blocks whole.
  // A storage stays plain, and the report gives the reason, if
  //   another operator reads it
  //   it is neither weight nor constant, or has rank below 2
  //   the encoding does not fit its dtype, its shape or a view of it
  //   it would not shrink
  //   it has values that the encoding cannot hold: they would become infinite, or move by more than
  //     half a quantization step (q4_0: one step), plus a small margin for a scale of 16 bits
  //   it is in one list of a Repeat with a storage that stays plain
  // A storage without values gets the encoding alone. It then takes only values that are quantized
  // already, from load() or set_source(). A storage that has the encoding already is left alone.
  // Errors  bad_argument: a Trainer lives; nothing matches; the encoding is unknown; a storage has
  //         another encoding: call dequantize() first; the storages of one list of a Repeat would
  //         get different encodings.
  Result<QuantizeReport> quantize(std::string_view encoding, std::string_view pattern = "*");
  // Gives encoded storages of parameters that match `pattern` the numbers that they stand for, in
  // f32, f16 or bf16, to nearest even.
  // They stay frozen; freeze(name, false) trains them. Errors  bad_argument: a Trainer lives,
  // nothing matches, the dtype is no float; as cast().
  Result<QuantizeReport> dequantize(std::string_view pattern = "*", DType to = DType::f32);
  // Without training state.
  Result<Model> clone() const;
  // The same without bytes: parameters, ties, flags and entry points, which can be listed before
  // any bytes exist. materialize() or load() gives it some, one allocation per storage, on the
  // device where those of this model lie.
  Result<Model> skeleton() const;
  // A second handle of this model, for another part of a program: one table, one set of bytes and
  // entry points. What is done through one is seen through the other, and by the sessions of both;
  // the model goes with the last of them. Threads: they count as one Model.
  Result<Model> share();
  // Atomic: a temporary file in the same folder, fsync, rename. One payload per storage. Never with
  // training state, also if the model was opened from a checkpoint: that is Trainer::save.
  Status save(const std::string& path) const;
  // The same without the rows of the table that are empty, so that storages behind them get other
  // tie indices in the file. The model keeps its own.
  Result<CompactReport> save_compacted(const std::string& path) const;
  // Values of another file, by parameter name; one supplied name of a tie satisfies all of them.
  // Errors  bad_argument: dtypes or
  // shapes differ, a tie gets two different payloads, names are missing or unexpected, an alias is
  // of no parameter of the file.
  Result<LoadReport> load(const std::string& path, const LoadOptions& options = {});

  // Drops moments, gradients and the position that a checkpoint file brought. Those of a live
  // Trainer go with it; while it lives this is refused.
  Status drop_training_state();

  // Free text that travels with the model, such as tokenizer = bytes. An empty value removes the
  // entry.
  Status set_metadata(std::string_view key, std::string_view value);
  // Empty if there is none.
  std::string metadata(std::string_view key) const;

  // Bytes that travel with the model, such as a tokenizer, under a name with a media type
  // ("application/json"). They take the place of
  // those of this name; none remove it. Errors  bad_argument: a name or media type is empty or not
  // valid UTF-8.
  Status set_asset(std::string_view name, std::string_view media_type,
                   std::span<const std::byte> bytes);

  // What the model holds, as data. The cost is that of its size.
  Result<ModelInfo> describe() const;
  // The bytes of a storage as it is encoded, wherever they lie. Errors  bad_argument: there is no
  // such storage, or it has none.
  Result<std::vector<std::byte>> storage_bytes(uint32_t tie) const;
  // Errors  bad_argument: there is none. bad_file: the bytes do not match their checksum.
  Result<std::vector<std::byte>> asset(std::string_view name) const;
  Result<SelfTestValues> self_test(size_t number) const;

  // Listings: the same as stable text, one line per item.
  std::string parameters() const;  // logical: name, tie index, shape, dtype, view
  std::string storages()
      const;                 // physical: tie index, dtype, shape, bytes, version, generation, where
  std::string ties() const;  // the partition: for each shared storage its parameters
  // Errors  bad_argument: there is no such parameter.
  Result<bool> same_storage(std::string_view a, std::string_view b) const;

 private:
  friend struct Internals;
  explicit Model(std::shared_ptr<detail::graph::ModelState> state);
  std::shared_ptr<detail::graph::ModelState> state_;
};

// ------------------------------------------------------------------------------------------ graphs

// A value of one GraphBuilder.
struct Value {
  uint32_t index = UINT32_MAX;
  uint32_t graph = 0;
};

// An attribute of an operator, by its name in the operator reference (operators.md).
struct Attribute {
  // A text is that, or the name of an enum value, or, where a size stands, of a dim.
  using Value = std::variant<int64_t, double, std::string, std::vector<GraphDim>,
                             std::vector<double>, std::vector<std::string>>;
  std::string_view name;
  Value value;

  Attribute(std::string_view n, std::integral auto v) : name(n), value(static_cast<int64_t>(v)) {}
  Attribute(std::string_view n, std::floating_point auto v)
      : name(n), value(static_cast<double>(v)) {}
  template <std::convertible_to<std::string_view> Text>
  Attribute(std::string_view n, const Text& text)
      : name(n), value(std::string(std::string_view(text))) {}
  // What stands in braces is a list of these: {"dims", {"batch", 4}}.
  Attribute(std::string_view n, std::vector<GraphDim> list) : name(n), value(std::move(list)) {}
  template <class List>
    requires(std::same_as<List, std::vector<double>> ||
             std::same_as<List, std::vector<std::string>>)
  Attribute(std::string_view n, List list) : name(n), value(std::move(list)) {}
};

// State. A node of WriteRows writes the storage of its first input, one of BatchNorm, while
// training, those of its last two: parameters that are not trained. Who reads such a parameter
// stands in front of that node and sees the state before; who reads the node's output sees it
// after. An entry point has at most one writer per storage, whatever the ties; in the body of a
// Repeat iteration i writes entry i of a list. What breaks this is refused by finish(), by
// Model::open() and, as ties may change, when a plan is made. A run that writes bumps the versions
// of the storages; get_value(), save() and clone() see what it wrote.
//
// Adds one graph (an entry point) to a Model. The first error sticks and finish() returns it, so a
// model reads like its formulas: after an error every call returns as many values as without it,
// and none is used.
class GraphBuilder {
 public:
  GraphBuilder(Model& model, std::string_view name);
  ~GraphBuilder();
  GraphBuilder(const GraphBuilder&) = delete;
  GraphBuilder& operator=(const GraphBuilder&) = delete;

  Value input(std::string_view name, DType dtype, const std::vector<GraphDim>& shape);
  Value parameter(Parameter parameter);
  // In the body of a Repeat: the parameter of the iteration.
  Value parameter(const ParameterList& list);

  // Adds an operator by its name in the operator reference and returns its first output.
  Value op(std::string_view name, const std::vector<Value>& inputs,
           const std::vector<Attribute>& attributes = {});
  // All outputs of the last op().
  std::vector<Value> last_outputs() const;

  // Runs `body` `count` times. It maps the carried values of an iteration to those of the next;
  // values of this graph are brought in by body.capture(). Returns the carried values after the
  // last iteration.
  using Body =
      std::function<std::vector<Value>(GraphBuilder& body, const std::vector<Value>& carried)>;
  std::vector<Value> repeat(int count, const std::vector<Value>& carried, const Body& body);
  Value capture(Value outer);
  // The name of the node that the next op() adds, for messages and listings.
  GraphBuilder& named(std::string_view name);

  void output(std::string_view name, Value value);
  // Errors  bad_argument: the first thing that was wrong, with the node.
  Status finish();

 private:
  struct [[gnu::visibility("hidden")]] State;
  explicit GraphBuilder(std::unique_ptr<State> body_state);
  template <class Count>
  Value keep_last(Result<std::vector<Value>> outputs, const Count& count);
  std::unique_ptr<State> state_;
};

// ---------------------------------------------------------------------------------------- sessions

struct MemoryReport {
  uint64_t storage_bytes = 0;      // weights, moments, gradients
  uint64_t copy_bytes = 0;         // copies of storages in other dtypes
  uint64_t arena_bytes = 0;        // activations, temporaries, hoisted values (SegmentInfo::name)
  uint64_t io_bytes = 0;           // inputs, outputs, step words
  uint64_t backend_bytes = 0;      // tables of the backend
  uint64_t staging_bytes = 0;      // of the device, for copies to memory that the host does not see
  uint64_t predicted_bytes = 0;    // the sum: the peak on the device, known before the first launch
  uint64_t lower_bound_bytes = 0;  // of the arena: the largest sum of live values
};

struct Counters {
  uint64_t plan_builds = 0;
  uint64_t recordings = 0;
  uint64_t submits = 0;
  // Copies of storages in other dtypes that were made again, since the storage was written: once
  // per version, in front of the submission that reads the copy. In a Session, each time the
  // hoisted values of an entry point are computed adds 1.
  uint64_t refreshes = 0;
  uint64_t transfers =
      0;  // of replicas and shards, made in the same way before a run that reads them
  uint64_t hook_fires = 0;  // calls of a GradientHook
  // What the device is given to run for one training step (accumulation counted), or for one run:
  // kernels, library calls, copies and fills on the device. 0: it is given nothing one by one.
  uint64_t launches = 0;
};

// The time that one node of a plan took on the device.
struct NodeTime {
  // "forward"; of a training step "accumulate" (forward and backward) or "update"; "refresh": a
  // copy of a storage is made again; "hoisted": values that depend only on parameters are computed
  // again
  std::string part;
  std::string name;    // as messages have it: node 17 "ln_f" (LayerNorm)
  std::string op;      // "LayerNorm"
  uint64_t count = 0;  // executions: the iterations of its Repeat
  double ns = 0;       // of all of them, nanoseconds
};

// An entry point with its dims: what one plan is made of.
struct BoundEntryPoint {
  std::string name;
  std::vector<BoundDim> dims;
  // (optional) f16 or bf16: operators on f32 numbers read 16-bit copies of them and give such; sums
  // over many elements, exponentials and losses stay f32 (OpDef::stays_f32), as do the outputs.
  // Copies of storages are made once per version.
  std::optional<DType> compute = {};
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
  TensorShape shape;                 // with the capacities of counted dims
  std::vector<std::string> counted;  // for each axis its counted dim, or ""; empty: it has none
  uint64_t offset = 0;               // bytes
  uint64_t bytes = 0;
};

// A step word that the segment reads or writes; StepValue gives one.
struct StepInfo {
  std::string name;
  std::string type;     // "f32", "u32", "u64"
  uint32_t offset = 0;  // of the step buffer, bytes
  std::optional<std::variant<uint64_t, double>> default_value;
  bool read = false;
  bool written = false;
};

// A counted dim of a segment, whose number is a u32 of the step buffer.
struct CountedInfo {
  std::string name;
  int64_t min = 1;
  int64_t capacity = 0;
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
  std::vector<StepInfo> steps;
  std::vector<CountedInfo> counted;
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
  uint64_t computed_again = 0;
  std::vector<SegmentInfo> segments;
  std::vector<RepeatListInfo> repeat_lists;
};

// Runs entry points of a Model on one Device, each with fixed dims. Its plans share one arena, as
// one of them runs at a time. Move-only.
class Session {
 public:
  // What an entry point reads must lie on `device` (Model::to). Errors  bad_argument: an unknown
  // entry point, a dim that is
  // not bound; storages that lie elsewhere, named with the places. unsupported: a node that the
  // device cannot run, or that cannot take a counted dim. out_of_memory: with the bytes.
  // over_budget: a plan costs more than `budget`, or all of them more memory than the device's
  // budget has left.
  static Result<Session> create(const Model& model, const Device& device,
                                std::string_view entry_point, std::span<const BoundDim> dims,
                                const Budget& budget = Budget::of_plan());
  // Several entry points, each with one or several sets of dims. Errors  as above; bad_argument:
  // two plans of one entry point
  // take inputs of the same shapes.
  static Result<Session> create(const Model& model, const Device& device,
                                std::span<const BoundEntryPoint> entry_points,
                                const Budget& budget = Budget::of_plan());
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  // `inputs` by name, in any order; `outputs` are written. On an axis with a counted dim tensors
  // have as many elements as the dim has in this run: a number from its minimum to the capacity
  // that create() got, the same one in all inputs; their elements lie together, whatever the
  // capacity. Of several plans of the entry point that one runs whose inputs have the given shapes,
  // with counted dims the smallest that holds them. A changed model (generation) is planned again:
  // the old plans go first, and where the new ones do not fit there are none until a run() that
  // they fit in.
  //
  // Steps    numbers for step words of this one run. Those that are not given have their defaults:
  //          Dropout is the identity, as its `training` is 0; with `training` 1 the elements follow
  //          from `seed` and `counter`. WriteRows needs a `position`. A counted dim that no input
  //          has is given by its name; its default is the capacity.
  // Overrides  values that parameters have in this one run, by name, of their dtype and shape:
  //            every use of the tie sees them, and the
  //          model is left as it is. Their storages are copied and the plan is recorded anew, so
  //              this is for the odd run.
  // Errors   index_out_of_range: an id or label is outside its range, rows end behind a state; the
  //          node is named. bad_argument: an input or a step word is unknown, missing or of another
  //          kind, a counted dim lies outside its limits, no plan takes inputs of these shapes, the
  //          session has several entry points and none is named; an override is of an unknown
  //          parameter, of values that another one has too, or of a storage that the entry point
  //          writes; nothing ran. As create() where it plans.
  Status run(std::span<const Tensor> inputs, std::span<const Tensor> outputs,
             std::span<const StepValue> steps = {}, std::span<const Tensor> overrides = {});
  Status run(std::string_view entry_point, std::span<const Tensor> inputs,
             std::span<const Tensor> outputs, std::span<const StepValue> steps = {},
             std::span<const Tensor> overrides = {});

  // A run with the device's clock around every node, in the order of execution. Nodes do not
  // overlap then, so it takes
  // longer than run(). Errors  unsupported: the device has no clock. bad_argument: another profile
  // runs on it.
  Result<std::vector<NodeTime>> profile(std::span<const Tensor> inputs,
                                        std::span<const StepValue> steps = {});
  Result<std::vector<NodeTime>> profile(std::string_view entry_point,
                                        std::span<const Tensor> inputs,
                                        std::span<const StepValue> steps = {});

  // Arena, io and backend are 0 while there is no plan: after planning failed, until run() plans
  // again.
  MemoryReport memory() const;
  Counters counters() const;
  // The plan as data. Errors  bad_argument: there is none.
  Result<PlanInfo> describe() const;
  // Numbered lines of "build", "forward"; with `columns` names of nodes too, and in "build"
  // launches and every record with its level and the offsets of its operands.
  Result<std::string> listing(std::string_view part, bool columns = false) const;

 private:
  explicit Session(std::unique_ptr<detail::exec::SessionState> state);
  std::unique_ptr<detail::exec::SessionState> state_;
};

// ---------------------------------------------------------------------------------------- training

// The comment of an option names the optimizers that read it; the others ignore it. operators.md
// says what each optimizer computes. Checkpoints hold the moments in the order of the operator's
// inputs.
struct Optimizer {
  enum class Kind : uint8_t { adamw, sgd, adagrad, rmsprop, lion, adafactor };
  // With the defaults of PyTorch; of Lion with those of its authors.
  static Optimizer of(Kind kind);

  Kind kind = Kind::adamw;
  // Of storages with rank >= 2. Decoupled for AdamW, Lion and Adafactor, L2 for SGD, Adagrad and
  // RMSprop.
  float weight_decay = 0.01f;
  float beta1 = 0.9f;      // AdamW, Lion
  float beta2 = 0.999f;    // AdamW, Lion
  float eps = 1e-8f;       // AdamW, Adagrad, RMSprop; Adafactor: of the second moments, 0: 2^-23
  float momentum = 0;      // SGD, RMSprop
  bool nesterov = false;   // SGD
  bool decay_all = false;  // decay vectors and scalars too
  float learning_rate_decay = 0;  // Adagrad
  float alpha = 0.99f;            // RMSprop: what stays of the mean of squares
  bool centered = false;          // RMSprop
  float beta2_decay = -0.8f;      // Adafactor: the power of the step that the new squares weigh
  float eps2 = 1e-3f;             // Adafactor: least scale of a weight
  float update_clip = 1;          // Adafactor: largest root mean square of an update
};
// "adamw", "sgd", ...
std::string_view name_of(Optimizer::Kind kind);
// Of all kinds, in their order.
std::span<const std::string_view> optimizer_names();

struct Schedule {
  enum class Kind : uint8_t { constant, linear, cosine };
  Kind kind = Kind::constant;
  float learning_rate = 1e-3f;
  float final_fraction = 0.1f;  // of the learning rate, at the last step
  uint64_t warmup_steps = 0;
  uint64_t total_steps = 0;  // 0: not known, allowed for constant only
};

// The rate of 1-based step `step`.
float learning_rate_at(const Schedule& schedule, uint64_t step);

// What a step does whose loss or gradient norm is not finite. Its update is never applied.
enum class OnNonFinite : uint8_t {
  skip,  // goes on with the next one
  stop,  // micro_step() fails with non_finite; the step begins anew. The message names the first
         // bad node or parameter.
  rollback,  // goes back to the last snapshot, and on from there; a row goes on until a step after
             // the bad one is finite
};

// Where a Trainer begins.
enum class TrainStart : uint8_t {
  fresh,      // at step 0 with new moments; what a checkpoint file brought is dropped
  continue_,  // with the moments, the step and the counters that the model holds, which was opened
              // from a checkpoint; an unfinished accumulation begins anew
};

// Options of the storages whose parameters match a pattern ("*": any characters, "?": one).
struct ParameterGroup {
  std::string pattern;
  float learning_rate_factor = 1;          // of the schedule
  std::optional<float> weight_decay = {};  // instead of the optimizer's, whatever the rank
};

// In which dtypes a training computes. A storage in 16 bits is trained in f32: the Trainer keeps a
// master of it (role master), which the optimizer updates, and the storage is the master rounded.
// Gradients of storages are f32 always.
struct TrainPrecision {
  std::optional<DType> compute = {};  // as BoundEntryPoint::compute
  // What the loss is multiplied with while gradients are computed, and the update divides by. 0: 1,
  // unless some gradient is f16: then dynamic, from first_scale on: halved by a step whose
  // gradients are not finite, which is skipped, and doubled after `growth_steps` steps in a row
  // that were.
  float loss_scale = 0;
  float first_scale = 32768;
  uint32_t growth_steps = 2000;
};

struct TrainOptions {
  std::string entry_point = "loss";
  std::string loss = "loss";  // the scalar output that is minimised
  std::vector<BoundDim> dims;
  // (optional) Other sets of dims, such as of shorter rows: a micro-batch runs in the plan that
  // takes its shapes. The plans have one set of gradients and moments, and one arena.
  std::vector<std::vector<BoundDim>> more_dims;
  Optimizer optimizer;
  Schedule schedule;
  float clip_norm = 0;  // 0: not clipped
  // Micro-batches per optimizer step (gradient accumulation). The loss and the gradient of a step
  // are the sum of all terms of its micro-batches, divided by the sum of all their weights: labels
  // that count, class weights, masks, elements. So the split changes only the rounding, and a
  // micro-batch without labels adds nothing. A weight is the divisor that an operator uses: of a
  // mean loss, of ReduceMean, of a Div by a value that depends on the inputs. A loss may add
  // several means with different weights, such as masked words and next sentences. Each mean then
  // has its own sum over the step. The sums must be known before the first micro-batch runs, so
  // call step(), or call weigh() first. If a loss has no mean (for example a sum), every
  // micro-batch has the same weight. Some terms depend on all rows of a batch: BatchNorm
  // statistics, in-batch negatives, expert load balancing, products of means. These terms are
  // computed separately in each micro-batch.
  uint32_t accumulation = 1;
  uint64_t seed = 0;                  // of dropout
  Budget budget = Budget::of_plan();  // of each of the plans
  // The first group with a match counts. Two parameters of one storage in two groups are an error
  // that names both, and so is a pattern without a match among the trainable ones.
  std::vector<ParameterGroup> groups;
  TrainStart start = TrainStart::fresh;
  OnNonFinite on_nonfinite = OnNonFinite::skip;
  uint32_t max_nonfinite_in_row = 5;  // then micro_step() fails with non_finite; 0: never
  TrainPrecision precision;
};

struct StepReport {
  uint64_t step = 0;    // 1-based number of the step that was run
  float loss = 0;       // mean over the micro-batches
  float grad_norm = 0;  // global L2 norm before clipping
  float learning_rate = 0;
  float loss_scale = 1;  // of this step
  // A loss or the norm was not finite: weights and running statistics are as before.
  bool skipped = false;
  bool rolled_back =
      false;  // and then as in the last snapshot (OnNonFinite::rollback); so is steps()
  // The update made a weight that is not finite: no later step can mend it.
  bool weights_non_finite = false;
  uint32_t nonfinite_in_row = 0;  // steps that were not finite, up to this one
  uint64_t nonfinite_steps = 0;   // of this Trainer
};

// What a failed call has left. Every other failure of a Trainer leaves all as before: the call can
// be made again.
enum class TrainState : uint8_t {
  ready,
  // The last micro-batch was submitted, and reading its result failed. micro_step() with the same
  // batch reads again and submits nothing; any other batch is refused. Until then nothing but
  // rollback() and resume() is allowed.
  unread,
  // The gradients of the unfinished step are lost, the weights are whole: restart_step() and the
  // batches of the step once more give the bits of a run without failure. So do rollback() and
  // resume().
  gradients_lost,
  // Weights or moments may be partly written: rollback() or resume(), again if it was one of these
  // that failed.
  damaged,
};

// What a checkpoint says about the run besides the weights; `data_*` and `config` are the caller's.
struct Progress {
  uint64_t step = 0;
  uint64_t micro_step = 0;  // position inside an accumulation
  uint64_t epoch = 0;
  uint64_t data_cursor = 0;
  uint64_t data_seed = 0;
  std::vector<std::pair<std::string, std::string>> config;
  // Of resume(): what differs and is no reason to refuse, such as another device. Sentences.
  std::vector<std::string> notes;
};

struct ResumeOptions {
  // Schedule::total_steps may differ from that of the checkpoint: a finished run goes on.
  bool extend = false;
};

// A trained storage whose gradient a hook sees.
struct GradientInfo {
  uint32_t tie = 0;
  std::vector<std::string> parameters;  // all names of the storage
  TensorShape shape;                    // of the storage
  uint64_t step = 0;                    // 1-based, of the update that takes it
};
// Is called once per step for each trained storage, however many names and uses it has, between the
// last micro-batch and the update. `gradient` is the mean over the micro-batches, before the clip;
// what the hook writes there the update takes. A failure ends the step, and state() says how to go
// on.
using GradientHook = std::function<Status(const GradientInfo& of, std::span<float> gradient)>;

// Fine-tunes the trainable storages of a Model on one Device. Move-only. Batches have the size that
// TrainOptions::dims say, or one of more_dims, of counted dims too. Of states the entry point may
// write running statistics (BatchNorm), once per micro-batch; a step that fails, is skipped or
// begins anew puts back those of its begin, or of where a rollback() or resume() within it went on.
// Others are refused (unsupported).
//
// The training state has one owner: gradients, moments and the position live and go with the
// Trainer, of which a Model has at most one at a time. What lasts is written by save() and read by
// resume() or TrainStart::continue_.
class Trainer {
 public:
  // Adds gradients and moments to the table. Errors  bad_argument: another Trainer of the model
  // lives (busy), an option is out
  // of its range, a trainable storage gets no gradient, an operator on a path to one has no
  // gradient (both named), the loss is not a scalar, there is nothing to continue, two sets of dims
  // take inputs of the same shapes. out_of_memory, over_budget: rows and plans do not fit, also if
  // what can be computed again is not kept (PlanInfo::computed_again); with the bytes.
  static Result<Trainer> create(Model& model, const Device& device, const TrainOptions& options);
  ~Trainer();
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;

  // Adds the gradient of one micro-batch; the accumulation-th one clips and updates. Returns the
  // report of the finished step, or none. Errors  bad_argument: weighs_first() is true, and weigh()
  // did not get every micro-batch of the step, or got another batch at this position, or
  // `overrides` are given. index_out_of_range: the weights are as before the step, which begins
  // anew with the next micro-batch. cancelled. device_lost. After any failure state() says how to
  // go on; a call that is made again then gives the bits of a run without failure. `overrides`: as
  // in Session::run(); the gradient is taken where they are, and the update is that of the weights
  // as they stand.
  Result<std::optional<StepReport>> micro_step(std::span<const Tensor> batch,
                                               std::span<const Tensor> overrides = {});
  // A whole step: `batches` holds one batch per micro-batch. It goes on after those that the
  // unfinished step has, so a call that failed can be made again. It calls weigh() where that is
  // needed.
  Result<StepReport> step(std::span<const std::span<const Tensor>> batches);
  // True if a step has several micro-batches and the loss adds means that are divided by different
  // sums. Then micro_step() needs the sums of the whole step.
  bool weighs_first() const;
  // Adds the weights of one micro-batch to the sums of the next step. If weighs_first() is true,
  // call weigh() with each micro-batch of a step, in order, before the first micro_step(). After
  // resume() in the middle of a step, call weigh() again with every micro-batch of that step, also
  // the finished ones. weigh() runs only what the sums need,
  // such as counting labels. If weighs_first() is false, it does nothing.
  // Errors  bad_argument: the batch fits no set of dims.
  Status weigh(std::span<const Tensor> batch);
  // A micro_step() with the device's clock around every node: a real one, after which the weights
  // are those of micro_step().
  // Errors  as Session::profile().
  Result<std::vector<NodeTime>> profile(std::span<const Tensor> batch);
  // The loss of a batch; nothing changes, dropout is off.
  Result<float> evaluate(std::span<const Tensor> batch);
  // The same, and writes outputs of the entry point by name.
  Result<float> evaluate(std::span<const Tensor> batch, std::span<const Tensor> outputs);

  // The gradient of a trainable parameter, through its view, into f32 of its shape: the sum over
  // the micro-batches of the unfinished step or, between two steps, of the last one; over all uses
  // of its storage, before the mean and the clip. With accumulation a micro-batch in which only a
  // part of the terms counts is weighted with that part.
  // Errors  bad_argument: the parameter is not trained, or no micro-batch was run since the start
  //         or the last restore.
  Status gradient(std::string_view name, const Tensor& out) const;
  // Null: none. Steps with a hook are submitted in two parts. One that is set while a hook runs
  // counts from the next step on; what else a hook calls of its Trainer, and verbs of the model,
  // are refused (busy).
  void set_gradient_hook(GradientHook hook);
  // The rate of the next steps instead of the schedule's; none: the schedule's again. A checkpoint
  // keeps it.
  Status set_learning_rate(std::optional<float> rate);

  // Keeps in host memory, or restores, the weights, the training state and the partition: what tie,
  // untie, freeze, load and set_value did since is undone. Rows that were added since stay as empty
  // ones. Storages of the same size are written in
  // place. Errors of rollback  bad_argument: there is no snapshot; parameters were declared since.
  Status snapshot();
  Status rollback();
  // Asks the running step to stop. The step returns `cancelled` before its next submission, and the
  // weights stay as they were. While no step runs, the request is kept: the next step returns
  // `cancelled` at once, and the step after it runs.
  // Threads  any thread.
  void cancel();

  // A checkpoint: the model with moments, pending gradients and the training state. Atomic.
  Status save(const std::string& path, const Progress& data) const;
  // Continues from a checkpoint bit for bit. Everything is verified first; then storages are
  // written in place. Errors bad_file: it belongs to another model, partition, graph or run, or its
  // training state is not legal; what differs is named.
  Result<Progress> resume(const std::string& path, const ResumeOptions& options = {});

  // How to go on after a failure.
  TrainState state() const;
  // Forgets the micro-batches of the unfinished step; the next one begins the step anew.
  Status restart_step();
  uint64_t steps() const;
  // Micro-batches of the unfinished step.
  uint32_t accumulated() const;
  // Arena, io and backend are 0 while there is no plan: after planning failed, until a call plans
  // again.
  MemoryReport memory() const;
  Counters counters() const;
  // As Session::describe().
  Result<PlanInfo> describe() const;
  // As Session::listing(), of "build", "forward", "backward", "update".
  Result<std::string> listing(std::string_view part, bool columns = false) const;

 private:
  explicit Trainer(std::unique_ptr<detail::train::TrainerState> state);
  std::unique_ptr<detail::train::TrainerState> state_;
};

// --------------------------------------------------------------------------------- files and texts

// Writes a file as Model::save() does: it appears whole or not at all (a temporary file in the same
// folder, fsync, rename), with
// the bytes of `pieces` one after the other. Errors  io_error: it cannot be written; what was there
// before is untouched.
Status write_file(const std::string& path, std::span<const std::span<const std::byte>> pieces);
// Whether write_file() could write so many bytes there now. Nothing is left behind. Errors  as
// write_file().
Status probe_file(const std::string& path, uint64_t bytes);
// The path that a temporary file of save() or write_file() was to become, which a killed process
// left; empty: `path` is none.
std::string target_of_temporary(const std::string& path);

// Text from outside with what cannot be seen made visible, so that nothing in it acts on a terminal
// or passes for something else: control characters (C0, DEL, C1) and bytes that are not UTF-8 as
// \n, \t, \r or \x1b; bidirectional controls, separators of lines and paragraphs, characters
// without width and without a picture as \u{202e}. All else stays as it is.
std::string escaped(std::string_view text);
// As escaped(), but newlines stay: text of several lines.
std::string escaped_lines(std::string_view text);
// A name in a listing: itself, or in double quotes and escaped where it is empty or has a space, a
// comma, a colon, a quote, a backslash or something that escaped() changes. Two names are never
// shown alike.
std::string listed_name(std::string_view name);
// Bytes of the well-formed UTF-8 sequence at the begin of a text that is not empty; 0 if there is
// none.
size_t utf8_length(std::string_view text);

// Counter-based random numbers: the bits depend on (key, counter) alone, on every device alike.
//
// Source  Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", 2011:
//         Philox4x32-10.
using RandomBlock = std::array<uint32_t, 4>;

// Ten rounds over the 128-bit counter.
constexpr RandomBlock philox(RandomBlock counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// "MAJOR.MINOR.PATCH (format N)": of this library, as CMake and its package have it, and of the
// files that it writes.
std::string_view version();

}  // namespace bowline

#pragma GCC visibility pop
