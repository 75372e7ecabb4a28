#include "source/finite.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <mutex>

#include "base/escape.h"
#include "base/formats.h"

namespace bowline::import {
namespace {

constexpr size_t kMostUnit = 512;  // bytes of a block

// NaN and infinity have all exponent bits set.
template <class Bits>
bool is_full(const std::byte* from, Bits exponent) {
  Bits bits = 0;
  std::memcpy(&bits, from, sizeof bits);
  return (bits & exponent) == exponent;
}

bool is_not_finite(const std::byte* from, DType dtype) {
  return dtype == DType::f32 ? is_full<uint32_t>(from, 0x7F800000)
                             : is_full<uint16_t>(from, dtype == DType::f16 ? 0x7C00 : 0x7F80);
}

// Counts the non-finite values of a block. A scale that is not finite counts as all its values.
uint64_t count_not_finite(const BlockFormat& format, const std::byte* block) {
  for (size_t i = 0; i < format.half_count; ++i) {
    if (is_not_finite(block + format.halves[i], DType::f16)) {
      return format.block;
    }
  }
  if (format.half_count > 0) {
    return 0;
  }
  float values[kMostFormatBlock];
  format.decode(block, values);
  return static_cast<uint64_t>(
      std::count_if(values, values + format.block, [](float x) { return !std::isfinite(x); }));
}

}  // namespace

struct FiniteCheck::Count {
  Count(std::string tensor, uint64_t elements, DType of, std::string_view encoding)
      : found{std::move(tensor), 0, elements},
        dtype(of),
        format(find_block_format(encoding)),
        unit_bytes(format == nullptr ? size_of(of) : format->bytes) {}

  NotFiniteTensor found;
  const DType dtype;                // of plain values
  const BlockFormat* const format;  // null: plain values
  const uint64_t unit_bytes;        // of a value or a block
  std::mutex mutex;
  uint64_t next = 0;                         // bytes before this offset are counted
  std::array<std::byte, kMostUnit> begun{};  // the bytes of the unit that contains `next`

  void add(uint64_t first, std::span<const std::byte> run) {
    const std::lock_guard lock(mutex);
    if (first > next || next - first >= run.size()) {
      return;
    }
    run = run.subspan(next - first);
    while (!run.empty()) {
      const uint64_t inside = next % unit_bytes;
      const uint64_t whole = inside == 0 ? run.size() / unit_bytes * unit_bytes : 0;
      const uint64_t n = whole > 0 ? whole : std::min<uint64_t>(unit_bytes - inside, run.size());
      std::span<const std::byte> units = run.first(whole);
      if (whole == 0) {
        std::ranges::copy(run.first(n), begun.begin() + static_cast<ptrdiff_t>(inside));
        units = std::span(begun).first(inside + n == unit_bytes ? unit_bytes : 0);
      }
      for (uint64_t at = 0; at < units.size(); at += unit_bytes) {
        const std::byte* const unit = units.data() + at;
        found.values +=
            format == nullptr ? is_not_finite(unit, dtype) : count_not_finite(*format, unit);
      }
      next += n;
      run = run.subspan(n);
    }
  }
};

ValueSource FiniteCheck::counted(std::string tensor, ValueSource source, uint64_t elements,
                                 DType dtype, std::string_view encoding) {
  auto count = std::make_shared<Count>(std::move(tensor), elements, dtype, encoding);
  counts_.push_back(count);
  return [count = std::move(count), source = std::move(source)](
             uint64_t first, std::span<std::byte> out) -> Status {
    BOWLINE_TRY(source(first, out));
    count->add(first, out);
    return {};
  };
}

std::vector<NotFiniteTensor> FiniteCheck::found() const {
  std::vector<NotFiniteTensor> out;
  for (const std::shared_ptr<Count>& count : counts_) {
    const std::lock_guard lock(count->mutex);
    if (count->found.values > 0) {
      out.push_back(count->found);
    }
  }
  return out;
}

std::string list_of(std::span<const NotFiniteTensor> tensors) {
  constexpr size_t kMost = 8;
  std::vector<std::string> parts;
  for (const NotFiniteTensor& t : tensors.first(std::min(tensors.size(), kMost))) {
    parts.push_back(
        fmt::format("{} of the {} values of {}", t.values, t.elements, listed_name(t.tensor)));
  }
  uint64_t rest = 0;
  for (const NotFiniteTensor& t : tensors.subspan(parts.size())) {
    rest += t.values;
  }
  if (rest > 0) {
    parts.push_back(fmt::format("{} values of {} more tensors", rest, tensors.size() - kMost));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string note_of(std::span<const NotFiniteTensor> tensors) {
  return fmt::format(
      "Non-finite weights (NaN or infinity): {}. They make the results of the model non-finite. If "
      "its "
      "training diverged, import an earlier checkpoint.",
      list_of(tensors));
}

}  // namespace bowline::import
