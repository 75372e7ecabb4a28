// Models: the storage table, parameters, ties, and the verbs that change them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bowline/describe.h"
#include "bowline/device.h"
#include "bowline/status.h"
#include "bowline/tensor.h"

namespace bowline::detail::graph {
struct ModelState;
}

#pragma GCC visibility push(default)

namespace bowline {

// The library's own way to what the public objects hold; it is not installed.
struct Internals;

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

// A storage that was removed from the table, with its bytes.
struct DroppedStorage {
  uint32_t storage = 0;
  StorageRole role = StorageRole::weight;
  uint64_t bytes = 0;
};

// What tie() did.
struct TieReport {
  struct Tie {
    std::string to;
    std::string parameter;
  };
  std::vector<Tie> ties;                // but for those that were so before
  std::vector<DroppedStorage> dropped;  // storages that lost their last parameter, and the moments
                                        // and masters that they owned
  // "tied "b" to "a"\ndropped storage 1 (weight, 256 bytes)\n", a line each.
  std::string text() const;
};

struct ResizeReport {
  uint32_t storages = 0;      // of another number of rows now
  uint64_t bytes_before = 0;  // of these
  uint64_t bytes_after = 0;
  std::vector<DroppedStorage> dropped;  // what they owned and had another shape
};

// Of what was made of storages since the model was made, or the counters were reset.
struct ModelCounters {
  uint64_t casts = 0;        // storages that cast() gave another dtype
  uint64_t quantized = 0;    // storages that quantize() encoded
  uint64_t dequantized = 0;  // and that dequantize() gave numbers
  uint64_t packs = 0;        // groups that set_weight_format() laid out
  uint64_t repacks = 0;      // and that were laid out again after a verb that gave them other bytes
  uint64_t fallbacks = 0;    // groups that could not be, and lie apart again
};

struct CastReport {
  uint32_t storages = 0;      // of another dtype now
  uint64_t bytes_before = 0;  // of these
  uint64_t bytes_after = 0;
  std::vector<std::string> kept;  // parameters whose storage stays as it is, with the reason
};

struct CompactReport {
  uint32_t dropped = 0;  // rows of the table that no parameter uses any more
  // Tie indices before, and in the file.
  std::vector<std::pair<uint32_t, uint32_t>> renumbered;
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
  bool memory_map = true;
  // If not set, Model::open() uses Budget::of_file() with the size of the file's tables.
  std::optional<Budget> budget;
  // Entries of the metadata that say what is tied ("tied_to.<parameter>" = "<parameter>",
  // "tie_word_embeddings" = "true" or "false") and contradict the table are an error unless this is
  // true. Ties are those of the table in any case; save() writes entries that agree.
  bool ignore_tie_metadata = false;
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
  // set options.memory_map to false. Then all is read at once, and what happens to the file later
  // changes nothing. Errors  io_error: it cannot be read. bad_file: what and where. over_budget: it
  // costs more than
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
  ModelCounters counters() const;
  void reset_counters();
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

}  // namespace bowline

#pragma GCC visibility pop
