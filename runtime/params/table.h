// The storage table: storages, parameters, ties, versions and generations.
//
// A row number is the tie index. Rows are never removed or reused: a row whose last parameter leaves becomes
// empty; rows of a training at the end of the table go with it. Empty rows at the end are not listed, and neither saved nor cloned. A verb works on copies of the rows that
// it changes (they are small and share their bytes), does everything that can fail on the copies, and commits by moving
// them back: all or nothing. See params/stage.h.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/encoding.h"
#include "core/view.h"
#include "device/device.h"
#include "model/map.h"

namespace bowline::params {

// The numbers equal those of schemas/model.fbs.
enum class Role : uint8_t {
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
std::string_view name_of(Role role);
// Rows of a training, which belong to the row of a weight: gradients, moments, masters.
constexpr bool is_training(Role role) {
  return role == Role::gradient || role == Role::moment || role == Role::master;
}
// The dtype that a model cast does not go below; none for most roles.
std::optional<DType> floor_dtype(Role role);

constexpr int32_t kNoOwner = -1;

// Where the bytes of a storage are: nowhere yet, in a mapped file, in host memory, or on a device.
struct Home {
  std::shared_ptr<const model::FileRange> file;
  std::shared_ptr<const std::vector<std::byte>> host;
  std::shared_ptr<device::Block> block;
  bool valid() const { return file || host || block; }
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

  uint64_t bytes() const { return empty ? 0 : encoding.bytes(dtype, shape); }
};

struct ParameterRow {
  std::string name;
  uint32_t tie = 0;
  View view;
  std::string target;  // of an adapter: the parameter that it changes
};

class Table {
 public:
  std::vector<Storage> storages;
  std::vector<ParameterRow> parameters;  // grows by add() alone

  // Adds a parameter, whose name is not taken. Returns its number.
  uint32_t add(ParameterRow row);
  // As add(), with a storage of its own.
  uint32_t add(ParameterRow row, Storage storage);
  // Takes back what was added since the table had these numbers of rows.
  void shrink(size_t storage_count, size_t parameter_count);
  // Rows up to the last one that is not empty.
  size_t used_rows() const;

  // Index of the parameter, or none.
  std::optional<uint32_t> find(std::string_view name) const;
  // As find(). Errors  bad_argument: there is no such parameter.
  Result<uint32_t> require(std::string_view name) const;
  // Row of `role` and `slot` that belongs to `owner`, or none.
  std::optional<uint32_t> owned(uint32_t owner, Role role, uint32_t slot) const;
  // The device that holds every storage with bytes; null when they lie in host memory or in a file.
  const std::shared_ptr<device::OpenDevice>& device() const { return device_; }
  void set_device(std::shared_ptr<device::OpenDevice> device) { device_ = std::move(device); }

  std::string list_parameters() const;
  std::string list_storages() const;
  std::string list_ties() const;

 private:
  std::shared_ptr<device::OpenDevice> device_;
  std::unordered_map<std::string, uint32_t> numbers_;  // of parameters, by name
};

// Room for more elements, so that adding them cannot fail; grows by doubling.
template <class T>
void reserve_more(std::vector<T>& rows, size_t more) {
  if (rows.capacity() - rows.size() < more) {
    rows.reserve(std::max(rows.size() + more, 2 * rows.capacity()));
  }
}

using bowline::view_shape;

// Bytes of the values of one storage, wherever they lie; checks a file range against its checksum.
Result<std::vector<std::byte>> read_bytes(const Storage& storage);

}  // namespace bowline::params
