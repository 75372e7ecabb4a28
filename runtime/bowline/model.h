/// \file
/// Models: parameters, ties, values and files.
///
/// A Model owns a table of storages, the parameters that use them, and its graphs. GraphBuilder
/// adds graphs, a Session runs them and a Trainer trains them. See bowline.h for the terms.
///
/// **Patterns.** Some functions take a pattern of parameter names. "*" matches any characters, "?"
/// matches one character, and "{a,b}" matches "a" or "b". If any parameter of a storage
/// matches, the storage changes, and all its parameters see the change.
///
/// **Errors.** While a hook, a run or a training step is in progress, functions that change
/// storages return bad_argument ("The model is busy"). Functions that change ties, dtypes, shapes
/// or frozen flags also return it between the micro-batches of a step.
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
#include "bowline/load.h"
#include "bowline/status.h"
#include "bowline/tensor.h"

namespace bowline::detail::graph {
struct ModelState;
}

#pragma GCC visibility push(default)

namespace bowline {

struct Internals;  // gives the library access to private members

/// Initial values of a storage.
struct Init {
  /// The distribution.
  enum class Kind : uint8_t { zeros, ones, normal, uniform };
  Kind kind = Kind::zeros;
  float scale = 0;  ///< The deviation of normal(), or the bound of uniform().
  static Init zeros() { return {}; }
  static Init ones() { return {Kind::ones, 0}; }
  /// Normal distribution with mean 0 and standard deviation `deviation`.
  static Init normal(float deviation) { return {Kind::normal, deviation}; }
  /// Uniform distribution between -bound and bound.
  static Init uniform(float bound) { return {Kind::uniform, bound}; }
};

/// A handle of a parameter. Merging or removing an adapter invalidates all handles of the Model.
struct Parameter {
  uint32_t index = UINT32_MAX;
  uint64_t model = 0;
};

/// One parameter for each iteration of a Repeat (GraphBuilder::repeat()).
struct ParameterList {
  std::vector<Parameter> items;
};

/// Reads bytes [first, first + out.size()) of a storage into `out`.
///
/// Several threads may call it at once, at any time, and more than once for the same bytes. It must
/// return the same bytes each time. If it fails, the function that needs the bytes fails.
using ValueSource = std::function<Status(uint64_t first, std::span<std::byte> out)>;

/// A model file that a callback of the program reads, for example from an encrypted container.
struct ModelReader {
  /// The size of the file.
  uint64_t bytes = 0;
  /// Reads bytes [first, first + out.size()) of the file into `out`.
  ///
  /// One call reads at most 16 MiB. Several threads may call it at once, at any time, and more than
  /// once for the same bytes. It must return the same bytes each time. It must not use the Model.
  /// If it fails, the function that needs the bytes fails with its Status. If it throws an
  /// exception, that function returns bad_argument, or out_of_memory for std::bad_alloc.
  std::function<Status(uint64_t first, std::span<std::byte> out)> read;
};

/// A removed storage.
struct DroppedStorage {
  uint32_t storage = 0;  ///< Its tie index.
  StorageRole role = StorageRole::weight;
  uint64_t bytes = 0;
};

/// The result of Model::tie() or Model::tie_layers().
struct TieReport {
  /// `parameter` uses the storage of `to` now.
  struct Tie {
    std::string to;
    std::string parameter;
  };
  std::vector<Tie> ties;                ///< New ties.
  std::vector<DroppedStorage> dropped;  ///< Storages that became unused, and their moments.

  /// Returns the report as text, one line per item, such as: tied "b" to "a"
  std::string text() const;
};

/// The result of Model::resize().
struct ResizeReport {
  uint32_t storages = 0;                ///< Storages whose number of rows changed.
  uint64_t bytes_before = 0;            ///< Bytes of these storages before the call.
  uint64_t bytes_after = 0;             ///< Bytes of these storages now.
  std::vector<DroppedStorage> dropped;  ///< Moments that could not be resized.
};

/// The result of Model::cast().
struct CastReport {
  uint32_t storages = 0;          ///< Storages whose dtype changed.
  uint64_t bytes_before = 0;      ///< Bytes of these storages before the call.
  uint64_t bytes_after = 0;       ///< Bytes of these storages now.
  std::vector<std::string> kept;  ///< Parameters whose storage did not change, with the reason.
};

/// The result of Model::save_compacted().
struct CompactReport {
  uint32_t dropped = 0;  ///< Empty table rows that were left out.
  /// Storages with a new tie index: the index in the model, the index in the file.
  std::vector<std::pair<uint32_t, uint32_t>> renumbered;
};

/// What was converted since the model was created or reset_counters() was called.
struct ModelCounters {
  uint64_t casts = 0;        ///< Storages that cast() changed.
  uint64_t quantized = 0;    ///< Storages that quantize() changed.
  uint64_t dequantized = 0;  ///< Storages that dequantize() changed.
  uint64_t packs = 0;        ///< Groups that set_weight_format() placed together.
  uint64_t repacks = 0;      ///< Groups that were placed again after a change.
  uint64_t fallbacks = 0;    ///< Groups that could not be placed again.
};

/// A neural network: storages, parameters and graphs. It owns all values.
///
/// A Model can be moved. To copy it, see clone() and share().
class Model {
 public:
  /// An empty model.
  Model();
  ~Model();
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;

  /// \name Files
  /// \{

  /// Opens a .bowline file.
  ///
  /// open() verifies the structure of the file. The checksum of a weight is verified at the first
  /// read of the weight.
  ///
  /// The file is memory-mapped, unless OpenOptions::memory_map is false. No other program may
  /// change a mapped file: weights could change unnoticed, and truncating the file ends this
  /// process with SIGBUS.
  ///
  /// Errors:
  /// - io_error: the file cannot be read.
  /// - bad_file: the file is damaged. The message says where.
  /// - over_budget: the file costs more than OpenOptions::budget.
  static Result<Model> open(const std::string& path, const OpenOptions& options = {});

  /// Opens a .bowline file that is in memory, for example a buffer that was downloaded.
  ///
  /// The bytes stay the caller's. They must stay unchanged until the Model and all its clones and
  /// shares are destroyed. If OpenOptions::memory_map is false, the Model has a copy, and the
  /// caller may free the bytes after the call.
  ///
  /// `bytes` may begin at any address. If the address is not aligned as memory from malloc() is,
  /// each read of a weight makes a temporary copy of the weight.
  ///
  /// Errors: as open(), but not io_error.
  /// - unsupported: the file has values in a second file beside it.
  static Result<Model> open_memory(std::span<const std::byte> bytes,
                                   const OpenOptions& options = {});

  /// Opens a .bowline file that is a part of an open file, for example an asset of an Android app.
  ///
  /// \param descriptor The descriptor of a regular file that may be read. It stays the caller's,
  ///   who may close it after the call. Its position is neither used nor changed.
  /// \param offset The first byte of the part. It need not be aligned.
  /// \param bytes The size of the part. 0: to the end of the file.
  ///
  /// The part is memory-mapped, and read later, as by open(). If `offset` is not a multiple of 16,
  /// each read of a weight makes a temporary copy of the weight.
  ///
  /// Errors: as open().
  /// - bad_argument: the descriptor is not open, or it is a directory, a pipe or a device.
  /// - bad_file: the open file ends before the end of the part.
  /// - unsupported: the file has values in a second file beside it.
  static Result<Model> open_descriptor(int descriptor, uint64_t offset = 0, uint64_t bytes = 0,
                                       const OpenOptions& options = {});

  /// Opens a .bowline file that a callback reads.
  ///
  /// open_reader() reads the tables of the file. Weights and assets are read when they are needed.
  /// The Model, its clones and its shares keep the reader. The last of them destroys it. If
  /// OpenOptions::memory_map is false, open_reader() reads the whole file into memory and destroys
  /// the reader.
  ///
  /// Each use of a weight in host memory reads it again. To read it once, move the Model to a
  /// device with to(). A weight whose parts are read one by one, as by save(), is read once more
  /// for its checksum.
  ///
  /// Errors: as open(), but not io_error.
  /// - bad_argument: the reader has no function, or throws an exception.
  /// - unsupported: the file has values in a second file beside it.
  /// - Errors of the reader.
  static Result<Model> open_reader(ModelReader reader, const OpenOptions& options = {});

  /// Verifies a file completely, with all checksums. Errors: as open().
  static Status verify(const std::string& path, const OpenOptions& options = {});

  /// Saves the model without training state. To save training state, use Trainer::save().
  ///
  /// The file is written atomically, as by write_file(). Storages without values are allowed.
  /// Errors: as write_file().
  Status save(const std::string& path) const;

  /// Like save(), but leaves out the table rows of removed storages. This can change tie indices.
  Result<CompactReport> save_compacted(const std::string& path) const;

  /// Loads values from another file by parameter name.
  ///
  /// For tied parameters, one name in the file is enough.
  ///
  /// Errors: as open().
  /// - bad_argument: a dtype or shape differs.
  /// - bad_argument: a parameter is missing or unexpected; see LoadOptions::partial.
  /// - bad_argument: tied parameters have different values in the file.
  /// - bad_argument: an alias names no parameter of the file.
  Result<LoadReport> load(const std::string& path, const LoadOptions& options = {});

  /// \}
  /// \name Declaring parameters
  ///
  /// These functions declare storages without values. To give them values, call materialize(),
  /// load() or set_value().
  ///
  /// Errors:
  /// - bad_argument: the name is taken or is not valid UTF-8.
  /// - bad_argument: the shape is invalid, or the view does not fit.
  /// - bad_argument: the role is not weight, constant, kv_cache or running_statistic.
  /// - bad_argument: the role is running_statistic, and the dtype is not f32.
  /// \{

  /// Declares a parameter with its own storage.
  Result<Parameter> parameter(std::string_view name, const TensorShape& shape, Init init,
                              StorageRole role = StorageRole::weight, DType dtype = DType::f32);

  /// Declares a parameter that shares the storage of `other`. The two are tied.
  ///
  /// `view` selects a part of the storage. The default is the view of `other`.
  Result<Parameter> tied_parameter(std::string_view name, Parameter other,
                                   const std::optional<View>& view = {});

  /// Declares `count` parameters. "{}" in the name is replaced by the index, starting at 0.
  Result<ParameterList> parameters(std::string_view name, int count, const TensorShape& shape,
                                   Init init, StorageRole role = StorageRole::weight,
                                   DType dtype = DType::f32);

  /// Returns the handle of a parameter. Errors: bad_argument: there is no such parameter.
  Result<Parameter> find(std::string_view name) const;

  /// Sets the limits of a named dimension. Call it before you build a graph with this dimension.
  ///
  /// Without this call, a dimension has the default DimLimits.
  ///
  /// Errors:
  /// - bad_argument: the limits are invalid, or the dimension has other limits already.
  Status set_dim_limits(std::string_view name, const DimLimits& limits);

  /// \}
  /// \name Values
  /// \{

  /// Gives every storage without values its initial values.
  ///
  /// The values depend only on `seed`, the tie index and Init.
  ///
  /// Errors: unsupported: a storage to fill is quantized, or its Init does not fit its dtype.
  Status materialize(uint64_t seed);

  /// Writes the values of a parameter, through its view. All tied parameters see them.
  ///
  /// Errors:
  /// - bad_argument: the parameter has another dtype or shape than `value`.
  /// - unsupported: the parameter is quantized. Call dequantize() first.
  Status set_value(std::string_view name, const Tensor& value);

  /// Reads the values of a parameter, through its view, into `out.data`, dequantized.
  ///
  /// Errors: bad_argument: the parameter has no values, or another dtype or shape than `out`.
  Status get_value(std::string_view name, const Tensor& out) const;

  /// Reads the values of the storage of `name` from `source` whenever they are needed.
  ///
  /// They replace earlier values and need not fit into memory: save() holds at most 8 MiB of them
  /// at a time. Only functions that write or move the storage read all of them into memory. With an
  /// `encoding` (see quantize()), the source must supply quantized values and their scales; the
  /// storage becomes frozen and its moments are dropped.
  ///
  /// Errors:
  /// - bad_argument: `name` is a view of a part of its storage, or a transposed view.
  /// - bad_argument: the encoding does not fit the storage or the operators that read it.
  Status set_source(std::string_view name, ValueSource source, std::string_view encoding = "plain");

  /// Replaces dtype, shape and values of the storage of `name` by those of `value`.
  ///
  /// Ties do not change. The storage is not quantized afterwards. If its shape changes, its moments
  /// are dropped.
  ///
  /// Errors:
  /// - bad_argument: a parameter has a view of only a part of the storage.
  /// - bad_argument: an operator cannot read the new dtype or shape.
  Status assign(std::string_view name, const Tensor& value);

  /// Exchanges the contents of two storages: dtype, shape, encoding, values, frozen flag, moments.
  ///
  /// Names, ties and views do not change: every parameter of `a` sees the former values of `b`.
  ///
  /// Errors:
  /// - bad_argument: the roles differ.
  /// - bad_argument: a view does not fit, or an operator cannot read the new dtype or shape.
  Status swap(std::string_view a, std::string_view b);

  /// Changes the number of rows (the size of the first axis) of the matching storages.
  ///
  /// Rows at the end are cut or added. New rows are drawn from `init` and `seed`, as in
  /// materialize(). Moments of new rows are zero. Of quantized storages, only int8 with f32 scales
  /// per row or block can be resized. Their new rows are zero, so `init` must be Init::zeros().
  ///
  /// Errors:
  /// - bad_argument: no parameter matches.
  /// - bad_argument: a view does not fit, or an operator cannot read the new shape.
  /// - bad_argument: a storage is a scalar, has another encoding, or is the target of an adapter.
  Result<ResizeReport> resize(std::string_view pattern, int64_t rows, Init init = Init::zeros(),
                              uint64_t seed = 0);

  /// Converts the matching storages to f32, f16 or bf16. Values are rounded to nearest even.
  ///
  /// Integers, running statistics and moments do not change. Quantized values do not change either,
  /// only the dtype to which they are dequantized. With the pattern "*", float inputs of entry
  /// points get the new dtype, too.
  ///
  /// Errors:
  /// - bad_argument: no parameter matches, or `to` is not a float dtype.
  /// - bad_argument: a finite value would become infinite.
  /// - bad_argument: an operator would get inputs of two dtypes. The message names the node.
  /// - over_budget, out_of_memory: the old and new storages do not fit at the same time.
  Result<CastReport> cast(DType to, std::string_view pattern = "*");

  /// \}
  /// \name Ties
  /// \{

  /// Ties `b` to `a`: `b` uses the storage of `a` from now on.
  ///
  /// `view` selects a part of the storage. The default is the view of `a`. A storage that becomes
  /// unused is removed.
  ///
  /// Errors:
  /// - bad_argument: the shape, dtype or frozen flag of `b` would change.
  /// - bad_argument: a ParameterList would mix transposed and other parameters.
  Result<TieReport> tie(std::string_view a, std::string_view b,
                        const std::optional<View>& view = {});

  /// Ties parameters whose names differ only in one number, to the one with the lowest number.
  ///
  /// `pattern` contains "{}" for the number. For example, "blocks.{}.mlp.*" ties
  /// "blocks.1.mlp.up.weight" to "blocks.0.mlp.up.weight".
  ///
  /// Errors: as tie().
  /// - bad_argument: no two parameters match.
  Result<TieReport> tie_layers(std::string_view pattern);

  /// Gives a tied parameter its own storage, with a copy of its values and moments.
  ///
  /// Returns the bytes of the new storage and its moments. If the parameter is not tied, nothing
  /// changes and the result is 0.
  Result<uint64_t> untie(std::string_view name);

  /// Returns the number of bytes that untie() would need, without changing the model.
  Result<uint64_t> untie_cost(std::string_view name) const;

  /// Returns true if two parameters are tied. Errors: bad_argument: there is no such parameter.
  Result<bool> same_storage(std::string_view a, std::string_view b) const;

  /// \}
  /// \name Training
  /// \{

  /// Freezes the storage of a parameter, or makes it trainable again if `frozen` is false.
  ///
  /// All tied parameters are frozen with it.
  ///
  /// Errors:
  /// - bad_argument: `frozen` is false, and the parameter is quantized or is not a weight.
  /// - bad_argument: `frozen` is false, and the parameter is tied. Use freeze_storage().
  Status freeze(std::string_view name, bool frozen = true);

  /// As freeze(), but `frozen` = false is also allowed for a tied parameter.
  Status freeze_storage(std::string_view name, bool frozen = true);

  /// Removes the training state that was read from a checkpoint: moments, gradients and progress.
  ///
  /// Errors: bad_argument: a Trainer of the model exists.
  Status drop_training_state();

  /// \}
  /// \name Devices and copies
  /// \{

  /// Moves all storages to a device. Storages that are there already are not transferred.
  ///
  /// Errors:
  /// - over_budget, out_of_memory: all storages together do not fit. Nothing was moved.
  Status to(const Device& device);

  /// Moves the matching storages with their moments to a device.
  ///
  /// All storages that a Session or Trainer reads must be on one device. New storages are created
  /// on the device of the last call without a pattern.
  ///
  /// Errors: as to(const Device&).
  /// - bad_argument: no parameter matches.
  Status to(const Device& device, std::string_view pattern);

  /// Returns a copy of the model, on the same devices, without training state.
  Result<Model> clone() const;

  /// Copies all values of another model of this process, so that one model serves while the other
  /// trains.
  ///
  /// Parameters are found by name. Both models need the same parameters, with the same dtypes,
  /// shapes, encodings and views. They may be on different devices, and this model may be tied less
  /// than the other. Ties, devices and frozen flags do not change. A KV cache is not copied.
  ///
  /// The copy is consistent: it waits until no Session or Trainer of the two models runs. So it has
  /// the values between two runs or steps, and no run sees a part of them. Plans stay valid.
  ///
  /// Errors: nothing changes. Only if a device fails, values may be copied in part.
  /// - bad_argument: the parameters differ, or are tied here and not in `other`.
  /// - bad_argument: a parameter of `other` has no values, or a Trainer is `damaged`.
  /// - bad_argument: a callback of a run or a step calls it for the same model.
  ///
  /// Threads: any thread, while other threads run Sessions and Trainers of the two models. No
  /// thread may call other functions of the two models at the same time. A callback of a run or
  /// step of one model must not use the other model meanwhile: both threads could wait forever.
  Status copy_values_from(const Model& other);

  /// Returns a copy of the model without values.
  ///
  /// Use the copy to make plans on a "planning:" device, or give it values with materialize() or
  /// load(). They are placed on the device of the original's last to(device).
  Result<Model> skeleton() const;

  /// Returns a second Model object for the same storages and graphs.
  ///
  /// The last of these objects frees them. Threads: these objects count as one Model.
  Result<Model> share();

  /// \}
  /// \name Metadata and assets
  /// \{

  /// Sets a metadata entry, for example "name" = "tiny". An empty value removes the entry.
  Status set_metadata(std::string_view key, std::string_view value);
  /// Returns a metadata entry. It is empty if there is none.
  std::string metadata(std::string_view key) const;

  /// Stores bytes in the model, for example a tokenizer. Empty bytes remove the asset.
  ///
  /// `media_type` says what the bytes are, for example "application/json". An asset of the same
  /// name is replaced.
  ///
  /// Errors: bad_argument: the name or media type is empty or is not valid UTF-8.
  Status set_asset(std::string_view name, std::string_view media_type,
                   std::span<const std::byte> bytes);
  /// Returns the bytes of an asset.
  ///
  /// Errors:
  /// - bad_argument: there is no such asset.
  /// - bad_file: the bytes do not match their checksum.
  Result<std::vector<std::byte>> asset(std::string_view name) const;
  /// Returns the inputs and expected outputs of a self-test of the model file. `number` is an index
  /// into ModelInfo::self_tests. Errors: as asset().
  Result<SelfTestValues> self_test(size_t number) const;

  /// \}
  /// \name Describing
  /// \{

  /// Returns the contents of the model as plain structs (bowline/describe.h).
  Result<ModelInfo> describe() const;
  /// Returns the bytes of a storage in its encoding.
  ///
  /// Errors: bad_argument: there is no such storage, or it has no values.
  Result<std::vector<std::byte>> storage_bytes(uint32_t tie) const;

  /// Returns a list of the parameters, one line each: name, tie index, shape, dtype, view.
  std::string parameters() const;
  /// Returns a list of the storages, one line each: tie index, dtype, shape, bytes, version, place.
  std::string storages() const;
  /// Returns a list of the tied storages, one line each: tie index, parameters.
  std::string ties() const;

  ModelCounters counters() const;
  void reset_counters();

  /// \}

 private:
  friend struct Internals;
  explicit Model(std::shared_ptr<detail::graph::ModelState> state);
  std::shared_ptr<detail::graph::ModelState> state_;
};

}  // namespace bowline

#pragma GCC visibility pop
