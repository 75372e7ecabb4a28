// Storages and parameters: rows of the table.
#include <cmath>
#include <set>
#include <tuple>

#include "model/encoding.h"
#include "model/layout.h"
#include "model/verify_parts.h"

namespace bowline::detail::model {
namespace {

bool is_owned(file::Role role) {
  return role == file::Role::moment || role == file::Role::master || role == file::Role::gradient;
}

// Statistics and optimizer state are always f32.
bool has_floor(file::Role role) {
  return role == file::Role::moment || role == file::Role::master ||
         role == file::Role::running_statistic;
}

Result<Encoding> check_encoding(Check& check, const file::Encoding* from, DType dtype,
                                const Shape& shape) {
  if (from == nullptr) {
    return Encoding();
  }
  BOWLINE_TRY(check_name(check, from->name(), "The encoding"));
  BOWLINE_REQUIRE(from->scale_dtype() <= file::DType::MAX,
                  "The encoding has the unknown scale dtype {}.",
                  static_cast<int>(from->scale_dtype()));
  const std::optional<Encoding> encoding = encoding_of(from);
  BOWLINE_REQUIRE(encoding.has_value(),
                  "The encoding \"{}\" is not known, or this build leaves it out (BOWLINE_OPS).",
                  text_of(from->name()));
  BOWLINE_TRY(encoding->check(dtype, shape));
  return *encoding;
}

Status check_range(Check& check, const file::Range& range, uint64_t bytes, std::string name) {
  BOWLINE_REQUIRE(range.file() <= count_of(check.model.siblings()),
                  "The range lies in sibling {} of {}.", uint64_t{range.file()} - 1,
                  count_of(check.model.siblings()));
  BOWLINE_REQUIRE(range.length() == bytes, "The range has {} bytes, the values take {}.",
                  range.length(), bytes);
  check.ranges.push_back(
      {range.file(), range.offset(), range.length(), range.xxh3(), std::move(name)});
  return {};
}

Status check_storage(Check& check, uint32_t row, const file::Storage& storage) {
  BOWLINE_REQUIRE(storage.dtype() <= file::DType::MAX, "The dtype {} is unknown.",
                  static_cast<int>(storage.dtype()));
  BOWLINE_REQUIRE(storage.role() <= file::Role::MAX, "The role {} is unknown.",
                  static_cast<int>(storage.role()));
  BOWLINE_TRY_ASSIGN(const Shape shape, check_shape(check, storage.shape()));
  const auto dtype = static_cast<DType>(storage.dtype());
  BOWLINE_TRY_ASSIGN(const Encoding encoding,
                     check_encoding(check, storage.encoding(), dtype, shape));
  check.shapes.push_back(shape);
  check.encodings.push_back(encoding);
  if (const file::Init* init = storage.init()) {
    BOWLINE_REQUIRE(init->kind() <= file::InitKind::MAX, "The initialiser {} is unknown.",
                    static_cast<int>(init->kind()));
    BOWLINE_REQUIRE(std::isfinite(init->scale()), "The initialiser has a scale of {}.",
                    init->scale());
  }
  BOWLINE_REQUIRE(!has_floor(storage.role()) || dtype == DType::f32, "A {} is {}, not f32.",
                  file::EnumNameRole(storage.role()), dtype);
  BOWLINE_REQUIRE(encoding.is_plain() || (!has_floor(storage.role()) && !storage.trainable()),
                  "A {} is stored as {}, but {}.", file::EnumNameRole(storage.role()), encoding,
                  storage.trainable() ? "it is trainable, and quantized values have no gradient"
                                      : "it cannot be quantized");
  BOWLINE_REQUIRE(storage.slot() < kMaxSlots, "The slot {} is not below {}.", storage.slot(),
                  kMaxSlots);
  if (storage.empty()) {
    BOWLINE_REQUIRE(storage.range() == nullptr, "The row is empty, but has bytes.");
    return {};
  }
  if (storage.range() == nullptr) {
    return {};  // a shape without values
  }
  return check_range(check, *storage.range(), encoding.bytes(dtype, shape),
                     format("storage {}", row));
}

// The moment of a matrix may have one value per row or per column.
bool is_of_rows_or_columns(const Shape& moment, const Shape& weight) {
  const int rows = weight.rank() - 2;
  if (rows < 0 || moment.rank() != rows + 1) {
    return false;
  }
  for (int a = 0; a < rows; ++a) {
    if (moment[a] != weight[a]) {
      return false;
    }
  }
  return moment.back() == weight[rows] || moment.back() == weight.back();
}

Status check_owner(const Check& check, uint32_t row, const file::Storage& storage) {
  const int32_t owner = storage.owner();
  if (owner == -1) {
    BOWLINE_REQUIRE(storage.empty() || !is_owned(storage.role()), "A {} has no owner.",
                    file::EnumNameRole(storage.role()));
    return {};
  }
  BOWLINE_REQUIRE(is_owned(storage.role()), "A {} has an owner ({}).",
                  file::EnumNameRole(storage.role()), owner);
  BOWLINE_REQUIRE(owner >= 0 && static_cast<uint32_t>(owner) < check.model.storages()->size(),
                  "The owner {} is not one of the {} storages.", owner,
                  check.model.storages()->size());
  const auto of = static_cast<uint32_t>(owner);
  const file::Storage& owning = *check.model.storages()->Get(of);
  BOWLINE_REQUIRE(owning.owner() == -1 && !is_owned(owning.role()) && of != row,
                  "The owner {} is itself a {}.", owner, file::EnumNameRole(owning.role()));
  BOWLINE_REQUIRE(storage.empty() || !owning.empty(), "The owner {} is an empty row.", owner);
  const bool factored = storage.role() == file::Role::moment &&
                        is_of_rows_or_columns(check.shapes[row], check.shapes[of]);
  BOWLINE_REQUIRE(storage.empty() || factored || check.shapes[row] == check.shapes[of],
                  "The shape {} is not that of the owner {} ({}).", check.shapes[row], owner,
                  check.shapes[of]);
  return {};
}

}  // namespace

Status check_storages(Check& check) {
  const auto* rows = check.model.storages();
  const auto place = [](uint32_t i) { return format("While checking storage {}.", i); };
  for (uint32_t i = 0; i < count_of(rows); ++i) {
    BOWLINE_TRY(check_storage(check, i, *rows->Get(i)).at(place(i)));
  }
  std::set<std::tuple<int32_t, file::Role, uint32_t>> slots;
  for (uint32_t i = 0; i < count_of(rows); ++i) {
    const file::Storage& row = *rows->Get(i);
    BOWLINE_TRY(check_owner(check, i, row).at(place(i)));
    BOWLINE_REQUIRE(row.empty() || row.owner() == -1 ||
                        slots.insert({row.owner(), row.role(), row.slot()}).second,
                    "Storage {} is a second {} {} of storage {}.", i,
                    file::EnumNameRole(row.role()), row.slot(), row.owner());
  }
  return {};
}

namespace {

Status check_parameter(Check& check, const file::Parameter& parameter) {
  const uint32_t tie = parameter.tie();
  BOWLINE_REQUIRE(tie < check.shapes.size(), "The tie index {} is not one of the {} storages.", tie,
                  check.shapes.size());
  const file::Storage& row = *check.model.storages()->Get(tie);
  BOWLINE_REQUIRE(!row.empty(), "The tie index {} is an empty row.", tie);
  BOWLINE_REQUIRE(!is_owned(row.role()), "The tie index {} is a {} of storage {}.", tie,
                  file::EnumNameRole(row.role()), row.owner());
  if (const file::View* v = parameter.view()) {
    BOWLINE_TRY_ASSIGN(const Shape reshaped, check_shape(check, v->shape()));
    const View view{v->row_start(), v->rows(),
                    std::vector<int64_t>(reshaped.dims().begin(), reshaped.dims().end()),
                    v->transpose()};
    BOWLINE_TRY(view_shape(view, check.shapes[tie]).status());
    BOWLINE_TRY(check.encodings[tie].check_view(view, check.shapes[tie]));
  }
  return {};
}

}  // namespace

Status check_parameters(Check& check) {
  const auto* rows = check.model.parameters();
  check.parameters.reserve(count_of(rows));
  for (uint32_t i = 0; i < count_of(rows); ++i) {
    const file::Parameter& parameter = *rows->Get(i);
    const std::string what = format("Parameter {}", i);
    BOWLINE_TRY(check_new_name(check, check.parameters, parameter.name(), what));
    BOWLINE_TRY(
        check_parameter(check, parameter)
            .at(format("While checking parameter {} \"{}\".", i, text_of(parameter.name()))));
  }
  for (uint32_t i = 0; i < count_of(rows); ++i) {
    const file::Parameter& parameter = *rows->Get(i);
    BOWLINE_TRY(
        check_optional_name(check, parameter.target(), format("The target of parameter {}", i)));
    BOWLINE_REQUIRE(count_of(parameter.target()) == 0 || check.model.base() != nullptr ||
                        check.parameters.contains(text_of(parameter.target())),
                    "Parameter \"{}\" changes \"{}\", which does not exist.",
                    text_of(parameter.name()), text_of(parameter.target()));
  }
  return {};
}

}  // namespace bowline::detail::model
