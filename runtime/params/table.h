// The storage table: storages, parameters, ties, versions and generations.
//
// A row number is the tie index. Rows are never removed or reused: a row whose last parameter
// leaves becomes empty; rows of a training at the end of the table go with it. Empty rows at the
// end are not listed, and neither saved nor cloned. A verb works on copies of the rows that it
// changes (they are small and share their bytes), does everything that can fail on the copies, and
// commits by moving them back: all or nothing. See params/stage.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/encoding.h"
#include "core/view.h"
#include "device/device.h"
#include "model/map.h"
#include "params/groups.h"
#include "params/names.h"
#include "params/residency.h"

namespace bowline::detail::params {

using Role = StorageRole;
using bowline::is_training;
// Rows that a training may change.
constexpr bool is_trained(Role role) {
  return role == Role::weight || role == Role::adapter_a || role == Role::adapter_b;
}
// The dtype that a model cast does not go below; none for most roles.
std::optional<DType> floor_dtype(Role role);

constexpr int32_t kNoOwner = -1;

// Where the bytes of a storage are: nowhere yet, in a mapped file, with somebody who is asked for
// them, in host memory, on a device, or in parts on several, one after the other. Different
// storages may lie on different devices.
struct Home {
  std::shared_ptr<const model::FileRange> file;
  std::shared_ptr<const ValueSource> source;
  std::shared_ptr<const std::vector<std::byte>> host;
  std::shared_ptr<device::Block> block;
  std::vector<std::shared_ptr<device::Block>> shards;
  bool valid() const { return file || source || host || block || !shards.empty(); }
};

// A second place of a storage, which was asked for.
struct Replica {
  std::shared_ptr<device::OpenDevice> device;
  std::shared_ptr<Residency> copy;  // null: of an older generation, and to be made anew
};

struct Storage {
  DType dtype = DType::f32;
  Shape shape;
  Encoding encoding;
  Role role = Role::weight;
  int32_t owner = kNoOwner;  // tie index of the row that this one belongs to
  uint32_t slot = 0;         // which of the owner's rows of this role
  bool trainable = true;
  bool empty = false;
  uint64_t version = 0;  // grows with every write of values
  // Grows with every change of dtype, shape, encoding or home, of the trainable flag, and of the
  // parameters that use the row: whatever was derived from it is made again.
  uint64_t generation = 0;
  Init init;
  Home home;
  // Copies of this generation, on the device of `home` or another; who reads one keeps it alive.
  std::vector<std::weak_ptr<Residency>> copies;
  std::vector<Replica> replicas;

  uint64_t bytes() const { return empty ? 0 : encoding.bytes(dtype, shape); }
};

struct ParameterRow {
  std::string name;
  uint32_t tie = 0;
  View view;
  std::string target;  // of an adapter: the parameter that it changes
};

// Storages that lie in one allocation (params/weight_format.h).
struct FormatGroup {
  std::shared_ptr<const WeightFormat> format;
  std::vector<uint32_t> ties;
  std::shared_ptr<const device::Block>
      whole;  // null: they do not lie on one device that the format is for
};

// Rows that everybody reads and the table alone changes.
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

// What it is asked by name, by storage or by owner follows from indexes, which every change of a
// row keeps: none of these walks the table.
class Table {
 public:
  Table() = default;
  // The rows may stand in any order of owners.
  explicit Table(std::vector<Storage> rows);

  Rows<Storage> storages;
  Rows<ParameterRow> parameters;

  // Adds a storage, whose owner is there. Returns its tie index.
  uint32_t add(Storage storage);
  // Adds a parameter, whose name is not taken. Returns its number.
  uint32_t add(ParameterRow row);
  // As add(), with a storage of its own.
  uint32_t add(ParameterRow row, Storage storage);
  // So many more can be added without a failure.
  void reserve(size_t storage_count, size_t parameter_count);
  // Takes back what was added since the table had these numbers of rows.
  void shrink(size_t storage_count, size_t parameter_count);

  // Changes of one row: none of them fails.
  void put(uint32_t tie, Storage row);
  void set_home(uint32_t tie, Home home);
  void add_copy(uint32_t tie, const std::shared_ptr<Residency>& copy);
  // The copy of the row in this form on the device, or null.
  std::shared_ptr<Residency> copy_of(uint32_t tie, const Form& form,
                                     const device::OpenDevice& device) const;
  // Whether a session on the device may read the row: it lies there, is to be replicated there, or
  // lies there in part.
  bool is_readable_on(uint32_t tie, const device::OpenDevice& device) const;
  // Its values were written.
  void wrote(uint32_t tie);
  // What was derived from it is made again.
  void changed(uint32_t tie);
  // It is used no more; changed(), unless it is empty already.
  void make_empty(uint32_t tie);
  // The parameter shows this of the storage from now on.
  void show(uint32_t parameter, uint32_t tie, View view);

  // Rows up to the last one that is not empty.
  size_t used_rows() const;

  // Index of the parameter, or none.
  std::optional<uint32_t> find(std::string_view name) const;
  // As find(). Errors  bad_argument: there is no such parameter.
  Result<uint32_t> require(std::string_view name) const;
  // The parameters of a storage.
  Groups::Members users(uint32_t tie) const { return users_.of(tie); }
  // The rows that belong to `owner`, empty ones too.
  Groups::Members owned(uint32_t owner) const { return owned_.of(owner); }
  // Row of `role` and `slot` that belongs to `owner`, or none.
  std::optional<uint32_t> owned(uint32_t owner, Role role, uint32_t slot) const;
  // Where new bytes go: the device that all storages were moved to last. Null: host memory.
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

// Bytes of the values of one storage, wherever they lie; checks a file range against its checksum.
Result<std::vector<std::byte>> read_bytes(const Storage& storage);

}  // namespace bowline::detail::params
