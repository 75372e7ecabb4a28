// Adapters: low-rank changes B A of parameters, stored as rows of the table.
//
// Adapter `name` changes the parameter `target` if there are parameters "<target>.<name>.lora_a"
// and ".lora_b". They view their storages as the target views its own. The change of the target is
// u v with u = b and v = a, or for a transposed target, u = a and v = b. The parameters of one
// storage share the two storages of its change, or only some of them have a change. All parameters
// of an adapter have a target. A vector counts as a matrix with one row.
#pragma once

#include "params/table.h"

namespace bowline::detail::params {

// How graphs read a parameter: not at all, only as a matrix, only as a bias, or in another way.
enum class Reading : uint8_t { none, matrix, bias, other };

// Returns the names of the adapters in the order of their declaration.
std::vector<std::string> adapter_names(const Table& table);

// The parameters u and v that change one target; see above.
struct LowRank {
  uint32_t u = 0;
  uint32_t v = 0;
};
// Returns nothing if the adapter does not change the target.
std::optional<LowRank> low_rank(const Table& table, uint32_t target, std::string_view adapter);

// The parameters with the scale s, and with 0 for iterations of a Repeat without a change.
// Errors  bad_argument: there is no such parameter.
Result<uint32_t> scale_of(const Table& table, std::string_view adapter);
Result<uint32_t> zero_of(const Table& table, std::string_view adapter);
// Returns the dropout probability of an adapter; 0 if it has none.
Result<float> dropout_of(const Table& table, std::string_view adapter);

// `readings`: one per parameter. A failure may leave some new rows: pass a copy of the table.
Result<AdapterReport> add_adapter(Table& table, std::string_view name,
                                  const AdapterOptions& options, std::span<const Reading> readings,
                                  int busy);
Status set_adapter_weight(Table& table, std::string_view name, float weight, int busy);
Result<float> adapter_weight(const Table& table, std::string_view name);

// Returns the table without the parameters of an adapter. Storages without parameters become empty.
// `numbers`: for each old parameter, its new number, or UINT32_MAX if it was removed.
Result<Table> without_adapter(const Table& table, std::string_view name, int busy,
                              std::vector<uint32_t>& numbers);
// Adds the changes to the storages of their targets. Pass a copy of the table.
Status merge_adapter(Table& table, std::string_view name, int busy);

// Returns a table that contains only the adapter.
Result<Table> adapter_alone(const Table& table, std::string_view name);
// Adds the adapter of such a table as `name`, or under its own name if `name` is empty. Returns the
// name. Pass a copy of the table.
Result<std::string> install_adapter(Table& table, const Table& adapter, std::string_view name,
                                    int busy);
// Returns a hash of the values of all weights and constants by parameter name, without adapters.
// Ties do not change it.
Result<std::vector<uint8_t>> digest(const Table& table);

}  // namespace bowline::detail::params
