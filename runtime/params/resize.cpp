#include <cstring>

#include "params/chosen.h"
#include "params/home.h"
#include "params/stage.h"
#include "params/verbs.h"

namespace bowline::detail::params {
namespace {

// True if quantized rows can be added and removed without changing other rows.
bool takes_rows(const Storage& row) {
  return row.shape.rank() >= 2 && row.encoding.takes_rows(row.shape);
}

// The initial bytes of a storage of new rows. Quantized zeros are zero bytes.
Result<std::vector<std::byte>> new_rows(const Storage& drawn, uint64_t seed, uint32_t tie) {
  if (drawn.encoding.is_plain()) {
    return initial_bytes(drawn, seed, tie);
  }
  BOWLINE_REQUIRE(drawn.init.kind == Init::Kind::zeros,
                  "It is stored as {}, so its new rows can only be zeros.", drawn.encoding);
  BOWLINE_TRY(require_host_memory(drawn.bytes()));
  return std::vector<std::byte>(drawn.bytes());
}

// Copies the old rows into `fill`, which holds all rows of the new shape.
Status give_rows(Storage& row, const Shape& shape, std::vector<std::byte> fill) {
  std::vector<std::byte> scratch;
  BOWLINE_TRY_ASSIGN(const Bytes old, read_all(row, scratch));
  const int64_t kept = std::min(row.shape.elements(), shape.elements());
  if (row.encoding.is_plain() && kept > 0) {
    std::memcpy(fill.data(), old.data(), std::min(old.size(), fill.size()));
  } else if (!row.encoding.is_plain()) {
    copy_codes(row, old, 0, static_cast<uint64_t>(kept), fill, shape);
  }
  row.shape = shape;
  BOWLINE_TRY_ASSIGN(Home home, make_home_like(row, fill));
  install(row, std::move(home));
  return {};
}

class Resizing {
 public:
  Resizing(Stage& stage, int64_t rows, const Init& init, uint64_t seed, ResizeReport& report)
      : stage_(stage), rows_(rows), init_(init), seed_(seed), report_(report) {}

  Status resize(uint32_t tie) {
    Storage& row = stage_.storage(tie);
    const Shape before = row.shape;
    BOWLINE_REQUIRE(row.encoding.is_plain() || takes_rows(row),
                    "It is stored as {}, which cannot be resized.", row.encoding);
    BOWLINE_REQUIRE(before.rank() >= 1, "It is a scalar and has no rows.");
    if (before[0] == rows_) {
      return {};
    }
    BOWLINE_TRY(check_adapters(tie));
    std::vector<int64_t> dims(before.dims().begin(), before.dims().end());
    dims[0] = rows_;
    BOWLINE_TRY_ASSIGN(const Shape after, Shape::checked(dims));
    for (const uint32_t user : sorted(stage_.before().users(tie))) {
      const ParameterRow& p = stage_.before().parameters[user];
      BOWLINE_TRY(view_shape(p.view, after)
                      .status()
                      .at(format("The view of \"{}\" does not fit {}.", p.name, after)));
    }
    ++report_.storages;
    report_.bytes_before += row.bytes();
    if (!row.home.valid()) {
      row.shape = after;
      ++row.generation;
    } else {
      Storage drawn = row;
      drawn.shape = after;
      drawn.init = init_;
      BOWLINE_TRY_ASSIGN(std::vector<std::byte> fill, new_rows(drawn, seed_, tie));
      BOWLINE_TRY(give_rows(row, after, std::move(fill)));
    }
    report_.bytes_after += row.bytes();
    for (const uint32_t owned : stage_.owned_by(tie)) {
      BOWLINE_TRY(follow(owned, row, before));
    }
    return {};
  }

 private:
  // Adapter factors have the shape of their target, so the target cannot change its rows alone.
  Status check_adapters(uint32_t tie) const {
    const Table& table = stage_.before();
    for (const ParameterRow& factor : table.parameters) {
      const std::optional<uint32_t> target = table.find(factor.target);
      BOWLINE_REQUIRE(!target || table.parameters[*target].tie != tie ||
                          !is_factor(table.storages[factor.tie].role),
                      "The adapter parameter \"{}\" changes \"{}\", which has {} rows. Call "
                      "merge_adapter() or remove_adapter() before resize() to {} rows.",
                      factor.name, factor.target, table.storages[tie].shape[0], rows_);
    }
    return {};
  }
  static bool is_factor(Role role) { return role == Role::adapter_a || role == Role::adapter_b; }

  // In the new rows, moments are zeros and masters are the new values. A row of the optimizer whose
  // shape differs from that of its owner is dropped.
  Status follow(uint32_t tie, const Storage& owner, const Shape& before) {
    Storage& row = stage_.storage(tie);
    if (row.shape != before || !row.home.valid()) {
      report_.dropped.push_back({tie, row.role, row.bytes()});
      stage_.make_empty(tie);
      return {};
    }
    Storage longer = row;
    longer.shape = owner.shape;
    BOWLINE_TRY(require_host_memory(longer.bytes()));
    std::vector<std::byte> fill(longer.bytes());
    if (row.role == Role::master) {
      std::vector<std::byte> scratch;
      BOWLINE_TRY_ASSIGN(const Bytes values, read_all(owner, scratch));
      convert_floats(values, owner.dtype, fill, row.dtype);
    }
    return give_rows(row, owner.shape, std::move(fill));
  }

  Stage& stage_;
  int64_t rows_;
  Init init_;
  uint64_t seed_;
  ResizeReport& report_;
};

}  // namespace

Result<ResizeReport> resize(Table& table, std::string_view pattern, int64_t rows, const Init& init,
                            uint64_t seed, int busy) {
  BOWLINE_TRY_ASSIGN(const std::vector<Chosen> storages, chosen(table, pattern));
  BOWLINE_TRY_ASSIGN(Stage stage, Stage::begin(table, busy, "resize()"));
  ResizeReport report;
  Resizing resizing(stage, rows, init, seed, report);
  for (const auto& [tie, name] : storages) {
    BOWLINE_TRY(resizing.resize(tie).at(format("While giving \"{}\" {} rows.", name, rows)));
  }
  if (report.storages > 0) {
    stage.commit();
  }
  return report;
}

}  // namespace bowline::detail::params
