#include "source/finite.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

#include "base/escape.h"

namespace bowline::import {
namespace {

constexpr size_t kMostUnit = 34;  // bytes of a block of q8_0

// NaN and infinity have all exponent bits set.
template <class Bits>
uint64_t count_full(std::span<const std::byte> bytes, uint64_t step, Bits exponent) {
  uint64_t count = 0;
  for (size_t at = 0; at < bytes.size(); at += step) {
    Bits bits = 0;
    std::memcpy(&bits, bytes.data() + at, sizeof bits);
    count += (bits & exponent) == exponent ? 1 : 0;
  }
  return count;
}

// Counts the non-finite floats at the start of every `step` bytes.
uint64_t count_not_finite(std::span<const std::byte> bytes, uint64_t step, DType dtype) {
  return dtype == DType::f32
             ? count_full<uint32_t>(bytes, step, 0x7F800000)
             : count_full<uint16_t>(bytes, step, dtype == DType::f16 ? 0x7C00 : 0x7F80);
}

}  // namespace

struct FiniteCheck::Count {
  Count(std::string tensor, uint64_t elements, DType of, std::string_view encoding)
      : found{std::move(tensor), 0, elements},
        unit_bytes(encoding == "q8_0"   ? 34
                   : encoding == "q4_0" ? 18
                                        : size_of(of)),
        unit_elements(encoding == "plain" ? 1 : 32),
        dtype(encoding == "plain" ? of : DType::f16) {}

  NotFinite found;
  // The float at the start of a unit decides whether its values are finite. A unit is a plain
  // value, or a block that starts with its scale.
  const uint64_t unit_bytes, unit_elements;
  const DType dtype;  // of that float
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
      found.values += count_not_finite(units, unit_bytes, dtype) * unit_elements;
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

std::vector<NotFinite> FiniteCheck::found() const {
  std::vector<NotFinite> out;
  for (const std::shared_ptr<Count>& count : counts_) {
    const std::lock_guard lock(count->mutex);
    if (count->found.values > 0) {
      out.push_back(count->found);
    }
  }
  return out;
}

std::string list_of(std::span<const NotFinite> tensors) {
  constexpr size_t kMost = 8;
  std::vector<std::string> parts;
  for (const NotFinite& t : tensors.first(std::min(tensors.size(), kMost))) {
    parts.push_back(
        fmt::format("{} of the {} values of {}", t.values, t.elements, listed_name(t.tensor)));
  }
  uint64_t rest = 0;
  for (const NotFinite& t : tensors.subspan(parts.size())) {
    rest += t.values;
  }
  if (rest > 0) {
    parts.push_back(fmt::format("{} values of {} more tensors", rest, tensors.size() - kMost));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string note_of(std::span<const NotFinite> tensors) {
  return fmt::format(
      "Non-finite weights (NaN or infinity): {}. They make the results of the model non-finite. If "
      "its "
      "training diverged, import an earlier checkpoint.",
      list_of(tensors));
}

}  // namespace bowline::import
