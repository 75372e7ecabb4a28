#include <algorithm>
#include <cstring>

#include "params/home.h"
#include "params/stage.h"
#include "params/verbs.h"
#include "params/view.h"

namespace bowline::detail::params {
namespace {

// Copies part of quantized values, which is not one run of bytes.
Result<Home> copy_of_codes(const Storage& storage, uint64_t first, const Shape& shown,
                           const std::shared_ptr<device::OpenDevice>& for_new) {
  BOWLINE_TRY(storage.encoding.check(storage.dtype, shown));
  std::vector<std::byte> scratch;
  BOWLINE_TRY_ASSIGN(const Bytes codes, read_all(storage, scratch));
  const uint64_t bytes = storage.encoding.bytes(storage.dtype, shown);
  BOWLINE_TRY(require_host_memory(bytes));
  std::vector<std::byte> part(bytes);
  copy_codes(storage, codes, first, static_cast<uint64_t>(shown.elements()), part, shown);
  const std::shared_ptr<device::Block>& block = storage.home.block;
  return make_home(block == nullptr ? for_new : block->device_handle(), part);
}

// Copies the part of `storage` that `parameter` views, in storage order. On the same device the
// copy does not pass through the host.
Result<Home> copy_of(const ParameterRow& parameter, const Storage& storage, const Shape& shown,
                     const std::shared_ptr<device::OpenDevice>& for_new) {
  const ElementRun part = view_run(parameter.view, storage.shape);
  if (!storage.encoding.is_plain() && part.count != storage.shape.elements()) {
    return copy_of_codes(storage, static_cast<uint64_t>(part.first), shown, for_new);
  }
  BOWLINE_TRY_ASSIGN(const Window window, payload_of(parameter, storage));
  if (storage.home.block) {
    Home home;
    BOWLINE_TRY_ASSIGN(home.block, storage.home.block->copied(window.first, window.count));
    return home;
  }
  std::vector<std::byte> scratch;
  BOWLINE_TRY_ASSIGN(const Bytes run, read_run(storage, window.first, window.count, scratch));
  return make_home(for_new, run);
}

// The shape of a copy of the part that `parameter` views.
Result<Shape> shape_of_copy(const ParameterRow& parameter, const Storage& storage) {
  View flat = parameter.view;
  flat.transpose = false;
  return view_shape(flat, storage.shape);
}

// Adds a row with a copy of the part of row `tie` that `parameter` views. Returns its bytes.
Result<uint64_t> add_copy(Stage& stage, const ParameterRow& parameter, uint32_t tie,
                          int32_t owner) {
  const Table& table = stage.before();
  Storage row = table.storages[tie];
  BOWLINE_TRY_ASSIGN(row.shape, shape_of_copy(parameter, row));
  row.owner = owner;
  row.version = 0;
  row.generation = 0;
  row.home = {};
  row.copies.clear();  // copies of the other row, whose generation may be equal
  row.replicas.clear();
  if (table.storages[tie].home.valid()) {
    BOWLINE_TRY_ASSIGN(Home home,
                       copy_of(parameter, table.storages[tie], row.shape, table.device()));
    install(row, std::move(home));
  }
  const uint64_t bytes = row.bytes();
  stage.add(std::move(row));
  return bytes;
}

}  // namespace

Result<uint64_t> untie(Table& table, std::string_view name, int busy) {
  BOWLINE_TRY_ASSIGN(const uint32_t index, table.require(name));
  BOWLINE_TRY_ASSIGN(Stage stage, Stage::begin(table, busy, "untie()"));
  const ParameterRow& parameter = table.parameters[index];
  const uint32_t old = parameter.tie;
  if (!table.users(old).has_several()) {
    return uint64_t{0};
  }
  const auto fresh = static_cast<uint32_t>(table.storages.size());
  uint64_t cost = 0;
  std::vector<uint32_t> rows = stage.owned_by(old);
  rows.insert(rows.begin(), old);
  for (const uint32_t row : rows) {
    const int32_t owner = row == old ? kNoOwner : static_cast<int32_t>(fresh);
    BOWLINE_TRY_ASSIGN(const uint64_t bytes,
                       in_context(add_copy(stage, parameter, row, owner),
                                  format("While giving \"{}\" a copy of storage {}.", name, row)));
    cost += bytes;
  }
  // The view stays transposed, because all storages in a list of a Repeat have the same
  // orientation.
  View view;
  view.transpose = parameter.view.transpose;
  stage.show(index, fresh, std::move(view));
  ++stage.storage(old).generation;
  stage.commit();
  return cost;
}

Result<uint64_t> untie_cost(const Table& table, std::string_view name) {
  BOWLINE_TRY_ASSIGN(const uint32_t index, table.require(name));
  const ParameterRow& parameter = table.parameters[index];
  if (!table.users(parameter.tie).has_several()) {
    return uint64_t{0};
  }
  std::vector<uint32_t> rows = sorted(table.owned(parameter.tie));
  rows.push_back(parameter.tie);
  uint64_t cost = 0;
  for (const uint32_t row : rows) {
    Storage copy = table.storages[row];
    BOWLINE_TRY_ASSIGN(copy.shape, shape_of_copy(parameter, copy));
    cost += copy.bytes();
  }
  return cost;
}

}  // namespace bowline::detail::params
