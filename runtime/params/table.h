// The storage table: storages, parameters, ties, versions and generations.
//
// The number of a row is its tie index. Rows are never removed or reused: a row that loses its last
// parameter becomes empty. Rows of training at the end of the table are the exception: they are
// removed with the training. Empty rows at the end are not listed, saved or cloned.
//
// A verb changes copies of rows, which are small and share their bytes, and commits them at the
// end. See params/stage.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/encoding.h"
#include "core/view.h"
#include "device/device.h"
#include "model/description.h"
#include "params/groups.h"
#include "params/names.h"
#include "params/residency.h"

namespace bowline::detail::params {

using Role = StorageRole;
using bowline::is_training;
// Returns true if training can change rows of this role.
constexpr bool is_trained(Role role) {
  return role == Role::weight || role == Role::adapter_a || role == Role::adapter_b;
}
// Returns the smallest dtype that cast() allows for a role; not set for most roles.
std::optional<DType> floor_dtype(Role role);

using model::kNoOwner;

// Where the bytes of a storage are: nowhere yet, in a model file, in a callback (the source), in
// host memory, on a device, or in shards on several devices, in order. Different storages can be on
// different devices.
struct Home {
  std::shared_ptr<const model::FileRange> file;
  std::shared_ptr<const ValueSource> source;
  std::shared_ptr<const std::vector<std::byte>> host;
  std::shared_ptr<device::Block> block;
  std::vector<std::shared_ptr<device::Block>> shards;
  bool valid() const { return file || source || host || block || !shards.empty(); }
};

// A requested copy of a storage on another device.
struct Replica {
  std::shared_ptr<device::OpenDevice> device;
  std::shared_ptr<Residency> copy;  // null: outdated generation, to be made again
};

struct Storage : model::StorageEntry {
  uint64_t version = 0;  // increases with each write of values
  // Increases with each change of dtype, shape, encoding, home, the trainable flag, or the
  // parameters that use the row. Copies and plans of an older generation are made again.
  uint64_t generation = 0;
  Home home;
  // Copies on any device. Plans keep the copies that they read alive.
  std::vector<std::weak_ptr<Residency>> copies;
  std::vector<Replica> replicas;

  uint64_t bytes() const { return empty ? 0 : encoding.bytes(dtype, shape); }
};

struct ParameterRow {
  std::string name;
  uint32_t tie = 0;
  View view;
  std::string target;  // for an adapter: the parameter that it changes
};

// Storages that share one allocation (params/weight_format.h).
struct FormatGroup {
  std::shared_ptr<const WeightFormat> format;
  std::vector<uint32_t> ties;
  // The allocation. Null: the storages are not on one device that the format is for.
  std::shared_ptr<const device::Block> whole;
};

// Rows that everybody can read and only the table can change.
template <class Row>
class Rows {
 public:
  size_t size() const { return rows_.size(); }
  bool empty() const { return rows_.empty(); }
  const Row& operator[](size_t number) const { return rows_[number]; }
  auto begin() const { return rows_.begin(); }
  auto end() const { return rows_.end(); }

 private:
  friend class Table;
  std::vector<Row> rows_;
};

// Look-ups by name, storage and owner use indexes. Every change of a row updates the indexes, so a
// look-up never scans the table.
class Table {
 public:
  Table() = default;
  // An owner may come before or after its rows.
  explicit Table(std::vector<Storage> rows);

  Rows<Storage> storages;
  Rows<ParameterRow> parameters;

  // Adds a storage whose owner exists. Returns its tie index.
  uint32_t add(Storage storage);
  // Adds a parameter with a new name. Returns its number.
  uint32_t add(ParameterRow row);
  // Adds a parameter with a storage of its own.
  uint32_t add(ParameterRow row, Storage storage);
  // Reserves room for more rows, so that adding them cannot fail.
  void reserve(size_t storage_count, size_t parameter_count);
  // Removes the last rows, so that these numbers of rows remain.
  void shrink(size_t storage_count, size_t parameter_count);

  // Changes of one row. They cannot fail.
  void put(uint32_t tie, Storage row);
  void set_home(uint32_t tie, Home home);
  void add_copy(uint32_t tie, const std::shared_ptr<Residency>& copy);
  // Returns the copy of the row in this form on the device, or null.
  std::shared_ptr<Residency> copy_of(uint32_t tie, const Form& form,
                                     const device::OpenDevice& device) const;
  // Returns true if a session on the device may read the row: the row, a shard of it, or a
  // requested replica is there.
  bool is_readable_on(uint32_t tie, const device::OpenDevice& device) const;
  // Increments the version, because values were written.
  void wrote(uint32_t tie);
  // Increments the generation: copies and plans of the row must be made again.
  void changed(uint32_t tie);
  // Makes the row empty. Increments the generation unless it is empty already.
  void make_empty(uint32_t tie);
  // Makes the parameter use storage `tie` through `view`.
  void show(uint32_t parameter, uint32_t tie, View view);

  // Returns the number of rows, not counting empty rows at the end.
  size_t used_rows() const;

  // Returns the number of the parameter, or nothing.
  std::optional<uint32_t> find(std::string_view name) const;
  // As find(). Errors  bad_argument: there is no such parameter.
  Result<uint32_t> require(std::string_view name) const;
  // Returns the parameters of a storage.
  Groups::Members users(uint32_t tie) const { return users_.of(tie); }
  // Returns the rows that belong to `owner`, including empty rows.
  Groups::Members owned(uint32_t owner) const { return owned_.of(owner); }
  // Returns the row of `role` and `slot` that belongs to `owner`, or nothing.
  std::optional<uint32_t> owned(uint32_t owner, Role role, uint32_t slot) const;
  // The device for new bytes: the one that all storages were moved to last. Null: host memory.
  const std::shared_ptr<device::OpenDevice>& device() const { return device_; }
  void set_device(std::shared_ptr<device::OpenDevice> device) { device_ = std::move(device); }

  const std::vector<FormatGroup>& formats() const { return formats_; }
  const ModelCounters& counters() const { return counters_; }
  void set_formats(std::vector<FormatGroup> formats) { formats_ = std::move(formats); }
  void set_counters(const ModelCounters& counters) { counters_ = counters; }

  std::string list_parameters() const;
  std::string list_storages() const;
  std::string list_ties() const;

 private:
  void append(Storage storage);
  void enter(uint32_t tie);

  std::shared_ptr<device::OpenDevice> device_;
  std::vector<FormatGroup> formats_;
  ModelCounters counters_;
  Names names_;   // of parameters
  Groups users_;  // parameters by their storage
  Groups owned_;  // storages by their owner
};

using bowline::view_shape;

// Returns the bytes of a storage, wherever they are. A file range is verified.
Result<std::vector<std::byte>> read_bytes(const Storage& storage);

}  // namespace bowline::detail::params
