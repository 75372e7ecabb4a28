#include <algorithm>

#include "model/layout.h"
#include "model/verify_parts.h"

namespace bowline::detail::model {
namespace {

Status check_place(const NamedRange& r, const DataFile& file) {
  BOWLINE_REQUIRE(r.offset % kRangeAlignment == 0, "The range begins at {}, no multiple of {}.",
                  r.offset, kRangeAlignment);
  BOWLINE_REQUIRE(Untrusted<uint64_t>(r.length).fits_at(Untrusted<uint64_t>(r.offset), file.bytes),
                  "The range has {} bytes at {}, beyond the end of the data ({}).", r.length,
                  r.offset, file.bytes);
  return {};
}

Status add_gap(std::vector<Gap>& gaps, std::span<const DataFile> files, uint32_t number,
               uint64_t begin, uint64_t end, std::string_view before) {
  const DataFile& file = files[number];
  BOWLINE_REQUIRE(end - begin < kPageBytes,
                  "{} bytes before {} belong to no range (file offset {}).", end - begin, before,
                  file.data_start + begin);
  if (begin < end) {
    gaps.push_back({number, file.data_start + begin, end - begin});
  }
  return {};
}

}  // namespace

Status check_zeros(std::span<const std::byte> bytes, uint64_t file_offset) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    BOWLINE_REQUIRE(bytes[i] == std::byte{0}, "The padding at file offset {} is not zero.",
                    file_offset + i);
  }
  return {};
}

Result<std::vector<Gap>> check_ranges(std::vector<NamedRange> ranges,
                                      std::span<const DataFile> files) {
  for (const NamedRange& r : ranges) {
    BOWLINE_TRY(check_place(r, files[r.file]).at(format("While checking {}.", r.name)));
  }
  std::ranges::stable_sort(ranges, [](const NamedRange& a, const NamedRange& b) {
    return std::tie(a.file, a.offset, a.length) < std::tie(b.file, b.offset, b.length);
  });
  std::vector<Gap> gaps;
  auto next = ranges.begin();
  for (uint32_t f = 0; f < files.size(); ++f) {
    uint64_t end = 0;
    std::string_view last = "the start of the data";
    for (; next != ranges.end() && next->file == f; ++next) {
      BOWLINE_REQUIRE(next->offset >= end, "The bytes of {} and {} overlap at file offset {}.",
                      last, next->name, files[f].data_start + next->offset);
      BOWLINE_TRY(add_gap(gaps, files, f, end, next->offset, next->name));
      end = next->offset + next->length;
      last = next->name;
    }
    BOWLINE_TRY(add_gap(gaps, files, f, end, files[f].bytes, "the end of the data"));
  }
  return gaps;
}

}  // namespace bowline::detail::model
