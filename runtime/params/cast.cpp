#include <cmath>
#include <cstring>

#include "core/element_types.h"
#include "params/chosen.h"
#include "params/home.h"
#include "params/stage.h"
#include "params/verbs.h"

namespace bowline::detail::params {
namespace {

// The reason why cast() does not change a storage, or "".
std::string why_it_stays(const Storage& s, DType to) {
  if (!is_float(s.dtype)) {
    return format("is {}", s.dtype);
  }
  if (const auto floor = floor_dtype(s.role); floor && size_of(to) < size_of(*floor)) {
    return format("is a {}, which must stay {}", name_of(s.role), *floor);
  }
  return {};
}

template <class From, class To>
void convert(Bytes from, std::span<std::byte> to) {
  const size_t n = to.size() / sizeof(To);
  for (size_t i = 0; i < n; ++i) {
    From x;
    std::memcpy(&x, from.data() + i * sizeof(From), sizeof(From));
    const To y = from_f32<To>(to_f32(x));
    std::memcpy(to.data() + i * sizeof(To), &y, sizeof(To));
  }
}

// Errors  bad_argument: a finite value would become infinite.
Status check_finite(Bytes from, DType from_type, Bytes to, DType to_type) {
  const auto as_f32 = [](Bytes bytes, DType dtype, size_t i) {
    float out = 0;
    std::byte* const at = reinterpret_cast<std::byte*>(&out);
    convert_floats(bytes.subspan(i * size_of(dtype), size_of(dtype)), dtype, {at, sizeof(out)},
                   DType::f32);
    return out;
  };
  const size_t elements = all_finite(to, to_type) ? 0 : to.size() / size_of(to_type);
  for (size_t i = 0; i < elements; ++i) {
    const float made = as_f32(to, to_type, i);
    const float was = as_f32(from, from_type, i);
    BOWLINE_REQUIRE(std::isfinite(made) || !std::isfinite(was),
                    "Element {} ({}) would be infinite in {}. Cast it to {}.", i, was, to_type,
                    to_type == DType::f16 ? "bf16" : "f32");
  }
  return {};
}

// The same check for quantized values.
Status check_codes(const Storage& row, DType to) {
  if (!row.home.valid() || to == DType::f32) {
    return {};
  }
  BOWLINE_TRY_ASSIGN(const std::vector<float> numbers, decoded(row));
  BOWLINE_TRY(require_host_memory(numbers.size() * (sizeof(float) + size_of(to))));
  std::vector<std::byte> bytes(numbers.size() * size_of(to));
  const auto wide = std::as_bytes(std::span<const float>(numbers));
  convert_floats(wide, DType::f32, bytes, to);
  return check_finite(wide, DType::f32, bytes, to);
}

// Quantized values do not change: they can be read as any float dtype.
Status cast_row(Storage& row, DType to) {
  if (row.home.valid() && row.encoding.is_plain()) {
    std::vector<std::byte> scratch;
    BOWLINE_TRY_ASSIGN(const Bytes old, read_all(row, scratch));
    const auto elements = static_cast<uint64_t>(row.shape.elements());
    BOWLINE_TRY(require_host_memory(elements * size_of(to)));
    std::vector<std::byte> bytes(elements * size_of(to));
    convert_floats(old, row.dtype, bytes, to);
    BOWLINE_TRY(check_finite(old, row.dtype, bytes, to));
    row.dtype = to;
    BOWLINE_TRY_ASSIGN(Home home, make_home_like(row, bytes));
    install(row, std::move(home));
  } else {
    BOWLINE_TRY(check_codes(row, to));
    row.dtype = to;
    ++row.generation;
  }
  return {};
}

}  // namespace

void convert_floats(Bytes from, DType from_type, std::span<std::byte> to, DType to_type) {
  with_type(from_type, [&]<class From>() {
    with_type(to_type, [&]<class To>() {
      if constexpr (Float<From> && Float<To>) {
        convert<From, To>(from, to);
      }
    });
  });
}

Result<CastReport> cast(Table& table, DType to, std::string_view pattern, int busy) {
  BOWLINE_REQUIRE(is_float(to), "cast() converts to f32, f16 or bf16, not to {}.", to);
  BOWLINE_TRY_ASSIGN(Stage stage, Stage::begin(table, busy, "cast()"));
  CastReport report;
  BOWLINE_TRY_ASSIGN(std::vector<Chosen> storages, chosen(table, pattern));
  device::Demand demand;
  const std::shared_ptr<device::OpenDevice>& device = table.device();
  std::erase_if(storages, [&](const Chosen& entry) {
    const Storage& row = table.storages[entry.tie];
    const std::string why = why_it_stays(row, to);
    if (!why.empty()) {
      report.kept.push_back(format("\"{}\" {}", entry.name, why));
    } else if (row.dtype != to && row.encoding.is_plain() && row.home.block &&
               row.home.block->device_handle() == device) {
      demand.add(static_cast<uint64_t>(row.shape.elements()) * size_of(to),
                 device::MemoryKind::device);
    }
    return !why.empty() || row.dtype == to;
  });
  if (device) {
    BOWLINE_TRY(device->require_room(demand).at("While reserving memory for the cast storages."));
  }
  for (const auto& [tie, name] : storages) {
    Storage& row = stage.storage(tie);
    report.bytes_before += row.bytes();
    BOWLINE_TRY(
        cast_row(row, to).at(format("While casting storage {} (\"{}\") to {}.", tie, name, to)));
    report.bytes_after += row.bytes();
    ++report.storages;
    // The f32 masters belong to the old values.
    for (const uint32_t owned : stage.owned_by(tie)) {
      if (stage.current(owned).role == Role::master) {
        stage.make_empty(owned);
      }
    }
  }
  if (report.storages > 0) {
    stage.counters().casts += report.storages;
    stage.commit();
  }
  return report;
}

}  // namespace bowline::detail::params
