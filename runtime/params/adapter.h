// Adapters: low-rank changes B A of what parameters show, as rows of the table.
//
// A parameter `target` sees the change of adapter `name` if there are "<target>.<name>.lora_a" and
// ".lora_b": they show their storages as the target shows its own, so that what it shows becomes u
// v with u = b and v = a, or, of a transpose, u = a and v = b. The parameters of one storage share
// the two storages of its change, or only some of them have one. All parameters of an adapter have
// a target. A vector is a matrix of one row to its change.
#pragma once

#include "params/table.h"

namespace bowline::detail::params {

// How the graphs read a parameter.
enum class Reading : uint8_t { none, matrix, bias, other };

// The names of the adapters, in order of their declaration.
std::vector<std::string> adapter_names(const Table& table);

// The parameters u and v of one adapter for one target.
struct LowRank {
  uint32_t u = 0;
  uint32_t v = 0;
};
std::optional<LowRank> low_rank(const Table& table, uint32_t target, std::string_view adapter);

// What the change is multiplied by, and 0, for an iteration of a Repeat that sees none.
// Errors  bad_argument: the table has no such parameter.
Result<uint32_t> scale_of(const Table& table, std::string_view adapter);
Result<uint32_t> zero_of(const Table& table, std::string_view adapter);
// The rate of its dropout: 0 unless it has one.
Result<float> dropout_of(const Table& table, std::string_view adapter);

// `readings`: by parameter. A failure may leave some of the rows: the table is a copy.
Result<AdapterReport> add_adapter(Table& table, std::string_view name,
                                  const AdapterOptions& options, std::span<const Reading> readings,
                                  int busy);
Status set_adapter_weight(Table& table, std::string_view name, float weight, int busy);
Result<float> adapter_weight(const Table& table, std::string_view name);

// The table without the parameters of an adapter; its storages become empty. `numbers` gets the new
// number of each parameter that stays.
Result<Table> without_adapter(const Table& table, std::string_view name, int busy,
                              std::vector<uint32_t>& numbers);
// Adds the changes to the storages of their targets. The table is a copy.
Status merge_adapter(Table& table, std::string_view name, int busy);

// The rows of an adapter alone.
Result<Table> adapter_alone(const Table& table, std::string_view name);
// Adds the rows of such a table as adapter `name`, or else under the name that it has there, and
// returns the name. The table is a copy.
Result<std::string> install_adapter(Table& table, const Table& adapter, std::string_view name,
                                    int busy);
// Of the values that the parameters of weights and constants show, by their names, but for
// adapters: whatever is tied to what.
Result<std::vector<uint8_t>> digest(const Table& table);

}  // namespace bowline::detail::params
