// The verbs of the table. Each is all or nothing: a failure leaves values, versions and listings as
// they were.
//
// `busy` counts those who read the storages now; a verb that would change what they read refuses
// with bad_argument.
#pragma once

#include <map>

#include "params/table.h"

namespace bowline::detail::params {

// Declares a storage and its first parameter; the bytes come later.
Result<uint32_t> add_parameter(Table& table, std::string_view name, DType dtype,
                               std::span<const int64_t> shape, Init init, int busy,
                               Role role = Role::weight);
// Declares a second parameter of the storage of `other`, through `view` (none: through the view of
// `other`).
Result<uint32_t> add_tied_parameter(Table& table, std::string_view name, uint32_t other,
                                    const std::optional<View>& view, int busy);

// Gives every row without bytes its initial values, a function of (seed, tie index, element) alone.
Status materialize(Table& table, uint64_t seed, int busy);

// `second` is to share the storage of `first` through `view` (none: through the view of `first`).
struct Pair {
  uint32_t first = 0;
  uint32_t second = 0;
  std::optional<View> view;
};
// Parameters that differ in the number alone that "{}" of the pattern stands for, each with the one
// of the least number.
// Errors  bad_argument: there are none, or the pattern has not one "{}".
Result<std::vector<Pair>> numbered_pairs(const Table& table, std::string_view pattern);

// One pair after the other. Both show the same shape before and after. The storage of the second
// becomes empty when that was its last parameter.
Result<TieReport> tie(Table& table, std::span<const Pair> pairs, int busy);
Result<TieReport> tie(Table& table, std::string_view a, std::string_view b,
                      const std::optional<View>& view, int busy);
// Gives `name` a storage of its own, a copy of what it shows, with the rows that the storage owns.
// Returns the bytes of the new rows; 0 if the parameter shares its storage with no other.
Result<uint64_t> untie(Table& table, std::string_view name, int busy);
// What untie() would return.
Result<uint64_t> untie_cost(const Table& table, std::string_view name);

// Through the view of the parameter. A write keeps the address of a storage on a device: one copy.
Status set_value(Table& table, std::string_view name, const Tensor& value, int busy);
Status get_value(const Table& table, std::string_view name, const Tensor& out);
// The bytes of the storage that `name` shows whole are those of the source; one that gets codes is
// frozen.
Status set_source(Table& table, std::string_view name, ValueSource source, const Encoding& encoding,
                  int busy);
// The values that `parameter` shows of `storage`.
Status read_values(const ParameterRow& parameter, const Storage& storage, const Tensor& out);

// Exchanges what two storages hold: dtype, shape, encoding, values, flags, and the rows that they
// own. Their tie indices, names and views stay.
Status swap(Table& table, std::string_view a, std::string_view b, int busy);

// Gives storages of parameters that match a pattern so many rows along their first axis: what is
// behind them is cut, new ones begin as materialize() with `init` and `seed` would draw them.
// Moments get zeros, masters the new values.
Result<ResizeReport> resize(Table& table, std::string_view pattern, int64_t rows, const Init& init,
                            uint64_t seed, int busy);

// Sets the flag of a storage. `all` says that every parameter of it is meant; without it thawing
// one of several is refused, for another may be frozen on purpose.
Status freeze(Table& table, std::string_view name, bool frozen, bool all, int busy);

// Moves every storage with one transfer each (null: back to host memory); one that is there stays
// as it is. Rows of a training that no Trainer has brought to a device stay in their file. Returns
// whether anything changed.
Result<bool> move(Table& table, const std::shared_ptr<device::OpenDevice>& device, int busy);
// The same of the storages of parameters that match a pattern, with the rows that they own.
Result<bool> move(Table& table, const std::shared_ptr<device::OpenDevice>& device,
                  std::string_view pattern, int busy);

// Gives the storages of parameters that match a pattern another float dtype, once per storage, to
// nearest even; their masters go.
Result<CastReport> cast(Table& table, DType to, std::string_view pattern, int busy);

// Quantize or decode the storages of all parameters that match `pattern`. See quantize().
// `plain`: storages that stay plain because of a reader, each with the reason ("is read by ...").
// `alike`: groups of storages that change together or not at all. A storage whose values the
// encoding cannot hold (check_encoded()) is kept and reported.
Result<QuantizeReport> quantize(Table& table, const Encoding& encoding, std::string_view pattern,
                                const std::map<uint32_t, std::string>& plain,
                                const std::vector<std::vector<uint32_t>>& alike, int busy);
Result<QuantizeReport> dequantize(Table& table, DType to, std::string_view pattern,
                                  const std::vector<std::vector<uint32_t>>& alike, int busy);

// Makes the rows of a training empty.
void drop_training(Table& table);

// The table without its empty rows, and the numbers that the others get. It shares the bytes.
struct Compacted {
  Table table;
  CompactReport report;
};
Compacted compacted(const Table& table);

// The same rows with bytes of their own, on the same device, without those of a training.
Result<Table> clone(const Table& table);
// The rows and parameters, without bytes.
Table skeleton(const Table& table);
// Gives the storages of the parameters that match `pattern` a second place.
Result<PlacementReport> replicate(Table& table, const std::shared_ptr<device::OpenDevice>& device,
                                  std::string_view pattern, int busy);
// Splits them by rows over devices.
Result<PlacementReport> shard(Table& table,
                              std::span<const std::shared_ptr<device::OpenDevice>> devices,
                              std::string_view pattern, int busy);

// `source` as a load of it into `table` sees it: under the names of the aliases, with the values
// that the hook gives.
Result<Table> substituted(const Table& table, const Table& source, const LoadOptions& options);

// Values of `source` by parameter name, per storage of `table`. Unless `partial`, every element of
// every parameter must be supplied and every name known. Optimizer rows are not loaded. Errors
// bad_argument: dtype or shape differ, two payloads for one storage differ, names are missing or
// unexpected.
Result<LoadReport> load(Table& table, const Table& source, LoadMode mode, bool partial, int busy);

}  // namespace bowline::detail::params
