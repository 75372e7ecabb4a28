// The verbs of the table. Each verb is all-or-nothing: if it fails, values, versions and listings
// do not change.
//
// `busy` is the number of runs that read the storages now. A verb that would change what they read
// returns bad_argument.
#pragma once

#include <map>

#include "params/mixture.h"
#include "params/table.h"

namespace bowline::detail::params {

// Declares a storage and its first parameter. The storage has no values yet.
Result<uint32_t> add_parameter(Table& table, std::string_view name, DType dtype,
                               std::span<const int64_t> shape, Init init, int busy,
                               Role role = Role::weight);
// Declares another parameter of the storage of `other`. `view` selects a part of the storage; the
// default is the view of `other`.
Result<uint32_t> add_tied_parameter(Table& table, std::string_view name, uint32_t other,
                                    const std::optional<View>& view, int busy);

// Gives each storage without values its initial values; see initial_bytes().
Status materialize(Table& table, uint64_t seed, int busy);

// A request to make `second` share the storage of `first`. `view`: as in add_tied_parameter().
struct Pair {
  uint32_t first = 0;
  uint32_t second = 0;
  std::optional<View> view;
};
// Returns pairs of parameters whose names differ only in the number at "{}" of the pattern. The
// first of each pair is the one with the smallest number.
// Errors  bad_argument: there are no pairs, or the pattern does not have exactly one "{}".
Result<std::vector<Pair>> numbered_pairs(const Table& table, std::string_view pattern);

// Ties the pairs in their order. The shape of a parameter does not change. The storage of the
// second parameter becomes empty if no parameter uses it any more.
Result<TieReport> tie(Table& table, std::span<const Pair> pairs, int busy);
Result<TieReport> tie(Table& table, std::string_view a, std::string_view b,
                      const std::optional<View>& view, int busy);
// Gives `name` its own storage: a copy of its values and of the rows that its storage owns. Returns
// the bytes of the new rows; 0 if no other parameter shares the storage.
Result<uint64_t> untie(Table& table, std::string_view name, int busy);
// Returns the bytes that untie() would add.
Result<uint64_t> untie_cost(const Table& table, std::string_view name);

// Writes or reads values through the view of the parameter. On a device, a write keeps the address
// of the storage.
Status set_value(Table& table, std::string_view name, const Tensor& value, int busy);
Status get_value(const Table& table, std::string_view name, const Tensor& out);
// Makes `source` supply the bytes of a storage. `name` must view the whole storage. A storage that
// becomes quantized is frozen.
Status set_source(Table& table, std::string_view name, ValueSource source, const Encoding& encoding,
                  int busy);
// Reads the values of `parameter` from `storage`.
Status read_values(const ParameterRow& parameter, const Storage& storage, const Tensor& out);

// Exchanges the contents of two storages: dtype, shape, encoding, values, flags, and the rows that
// they own. Tie indices, names and views stay.
Status swap(Table& table, std::string_view a, std::string_view b, int busy);

// Sets the number of rows of the storages whose parameters match `pattern`. Further rows are cut.
// New rows have the values that materialize() would give them with `init` and `seed`. New rows of
// moments are zeros, and new rows of masters have the new values.
Result<ResizeReport> resize(Table& table, std::string_view pattern, int64_t rows, const Init& init,
                            uint64_t seed, int busy);

// Sets or clears the trainable flag of a storage. `all`: the caller knows that this affects all its
// parameters. Without it, a storage with several parameters cannot be made trainable.
Status freeze(Table& table, std::string_view name, bool frozen, bool all, int busy);

// Moves all storages to a device, or to host memory if it is null, with one transfer each. Rows of
// training in a file stay there until a Trainer needs them. Returns true if anything changed.
Result<bool> move(Table& table, const std::shared_ptr<device::OpenDevice>& device, int busy);
// The same for the storages whose parameters match `pattern`, and the rows that they own.
Result<bool> move(Table& table, const std::shared_ptr<device::OpenDevice>& device,
                  std::string_view pattern, int busy);

// Converts the storages whose parameters match `pattern` to another float dtype, once per storage,
// rounding to nearest even. Removes their masters.
Result<CastReport> cast(Table& table, DType to, std::string_view pattern, int busy);

// Quantize or dequantize the storages whose parameters match `pattern`; see bowline/quantize.h.
// `plain`: storages that cannot be quantized because of a reader, with the reason ("is read by
// ..."). `alike`: groups of storages that change together or not at all. A storage whose values the
// encoding cannot represent (check_encoded()) is kept and reported.
Result<QuantizeReport> quantize(Table& table, const EncodingChoice& choice,
                                std::string_view pattern,
                                const std::map<uint32_t, std::string>& plain,
                                const std::vector<std::vector<uint32_t>>& alike, int busy);
Result<QuantizeReport> dequantize(Table& table, DType to, std::string_view pattern,
                                  const std::vector<std::vector<uint32_t>>& alike, int busy);

// Removes the rows of training: they become empty, or are cut at the end of the table.
void drop_training(Table& table);

// The table without empty rows, and the new tie indices. It shares the bytes.
struct Compacted {
  Table table;
  CompactReport report;
};
Compacted compacted(const Table& table);

// Returns a copy of the table on the same devices, without rows of training.
Result<Table> clone(const Table& table);
// Returns the rows and parameters without values.
Table skeleton(const Table& table);
// Copies the storages whose parameters match `pattern` to another device.
Result<PlacementReport> replicate(Table& table, const std::shared_ptr<device::OpenDevice>& device,
                                  std::string_view pattern, int busy);
// Splits the storages whose parameters match `pattern` by rows over devices.
Result<PlacementReport> shard(Table& table,
                              std::span<const std::shared_ptr<device::OpenDevice>> devices,
                              std::string_view pattern, int busy);

// Returns `source` as load() reads it: with the alias names and the values of the load hook.
Result<Table> substituted(const Table& table, const Table& source, const LoadOptions& options);

// Copies the values of `source` to the parameters of `table`, by name. Unless `partial`, every
// element of every parameter must be supplied, and every name must be known. Optimizer rows are not
// loaded.
// Errors  bad_argument: a dtype or shape differs, two values for one storage differ, or names are
//         missing or unexpected.
Result<LoadReport> load(Table& table, const Table& source, LoadMode mode, bool partial, int busy);

// Copies the values of `source`, which has the same parameters with the same dtypes, shapes,
// encodings and views, without those of KV caches. Blocks keep their addresses. If it fails because
// of a device, values may be copied in part; otherwise nothing changes.
Status copy_values(Table& table, const Table& source, int busy);

}  // namespace bowline::detail::params
