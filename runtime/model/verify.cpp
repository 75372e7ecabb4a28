#include "model/verify.h"

#include <bit>
#include <cstring>

#include "core/budget.h"
#include "core/dtype.h"
#include "model/checksum.h"
#include "model/foreign.h"
#include "model/layout.h"
#include "model/verify_parts.h"

namespace bowline::detail::model {
namespace {

static_assert(std::endian::native == std::endian::little);
static_assert(static_cast<int>(file::DType::MAX) + 1 == kDTypes);
static_assert(static_cast<int>(file::DType::bf16) == static_cast<int>(DType::bf16));
static_assert(static_cast<int>(file::DType::i32) == static_cast<int>(DType::i32));
static_assert(static_cast<int>(file::DType::boolean) == static_cast<int>(DType::boolean));

// True if the file begins with the magic number, or with its first bytes if the file is shorter.
bool has_magic(std::span<const std::byte> bytes) {
  const size_t n = std::min(bytes.size(), kMagic.size());
  return n > 0 && std::memcmp(bytes.data(), kMagic.data(), n) == 0;
}

Status check_header(std::span<const std::byte> bytes) {
  if (!has_magic(bytes)) {
    const std::string_view other = foreign_format(bytes);
    return Status(Code::bad_file, other.empty()
                                      ? "The file does not begin with \"BOWLINE1\"."
                                      : format("The file is {}, not a Bowline model.", other));
  }
  BOWLINE_REQUIRE(bytes.size() >= kHeaderBytes + kTrailerBytes,
                  "The file has {} bytes, fewer than a header and a trailer.", bytes.size());
  const auto header = read_as<Header>(bytes, 0);
  BOWLINE_REQUIRE(header.format_major == kFormatMajor,
                  "The file has format {}; this library reads format {} (file offset 8).",
                  header.format_major, kFormatMajor);
  BOWLINE_REQUIRE(header.file_length == bytes.size(),
                  "The header states {} bytes (file offset 40), but the file has {}.",
                  header.file_length, bytes.size());
  BOWLINE_TRY(check_zeros(bytes, 12, 16, 0));
  BOWLINE_TRY(check_zeros(bytes, 48, kHeaderBytes, 0));
  BOWLINE_REQUIRE(header.flatbuffer_offset == kHeaderBytes,
                  "The tables begin at offset {}, not {} (file offset 16).",
                  header.flatbuffer_offset, kHeaderBytes);
  const Untrusted<uint64_t> length(header.flatbuffer_length);
  const uint64_t limit = std::min(kMaxFlatBuffer, bytes.size() - kHeaderBytes - kTrailerBytes);
  BOWLINE_REQUIRE(
      length.at_most(limit),
      "The tables take {} bytes (file offset 24), more than the file has room for ({}).",
      header.flatbuffer_length, limit);
  const uint64_t end = kHeaderBytes + length.checked();
  BOWLINE_REQUIRE(header.data_start == round_up(end, kPageBytes),
                  "The data start at offset {} (file offset 32), not {}.", header.data_start,
                  round_up(end, kPageBytes));
  BOWLINE_REQUIRE(header.data_start <= bytes.size() - kTrailerBytes,
                  "The data start at offset {}, beyond the end of the file ({}).",
                  header.data_start, bytes.size());
  return check_zeros(bytes, end, header.data_start, 0);
}

Status check_trailer(std::span<const std::byte> bytes) {
  const uint64_t at = bytes.size() - kTrailerBytes;
  const auto trailer = read_as<Trailer>(bytes, at);
  BOWLINE_REQUIRE(trailer.magic == kTrailerMagic && trailer.zero == 0,
                  "The trailer at file offset {} is damaged.", at);
  return {};
}

Status check_flatbuffer(const std::vector<uint8_t>& bytes) {
  BOWLINE_REQUIRE(bytes.size() >= 16, "The tables have {} bytes, fewer than 16.", bytes.size());
  BOWLINE_REQUIRE(file::ModelBufferHasIdentifier(bytes.data()),
                  "The tables do not carry the identifier \"BWLN\" (file offset {}).",
                  kHeaderBytes + 4);
  // Shared tables could make the unpacked model much larger than the file.
  const uint64_t most = bytes.size() / kMinTableBytes;
  flatbuffers::Verifier verifier(bytes.data(), bytes.size(), kMaxDepth,
                                 static_cast<flatbuffers::uoffset_t>(most));
  BOWLINE_REQUIRE(file::VerifyModelBuffer(verifier),
                  "The tables at file offsets {} to {} are malformed, or there are more than {}, "
                  "the most that fit into these bytes.",
                  kHeaderBytes, kHeaderBytes + bytes.size(), most);
  return {};
}

Status check_tables(Check& check) {
  BOWLINE_REQUIRE(check.model.format_major() == kFormatMajor,
                  "The tables have format {}; this library reads format {}.",
                  check.model.format_major(), kFormatMajor);
  BOWLINE_TRY(check_features(check));
  BOWLINE_TRY(check_dims(check));
  BOWLINE_TRY(check_storages(check));
  BOWLINE_TRY(check_parameters(check));
  BOWLINE_TRY(check_graphs(check));
  return check_extras(check);
}

}  // namespace

Result<std::shared_ptr<const VerifiedFile>> VerifiedFile::open(const std::string& path,
                                                               FileSystem& files,
                                                               const OpenOptions& options) {
  BOWLINE_TRY_ASSIGN(auto file, MappedFile::open(path, files,
                                                 options.memory_map ? MappedFile::Access::map
                                                                    : MappedFile::Access::read));
  return verify(std::move(file), files, options);
}

Result<std::shared_ptr<const VerifiedFile>> VerifiedFile::verify(std::shared_ptr<MappedFile> file,
                                                                 FileSystem& files,
                                                                 const OpenOptions& options) {
  std::shared_ptr<VerifiedFile> out(new VerifiedFile);
  const auto bytes = file->bytes();
  const auto bad = [&](Status status) {
    return std::move(status).as(Code::bad_file).at(format("While loading \"{}\".", file->path()));
  };
  BOWLINE_TRY(bad(check_header(bytes)));
  BOWLINE_TRY(bad(check_trailer(bytes)));

  const auto header = read_as<Header>(bytes, 0);
  out->budget_ = options.budget.value_or(Budget::of_file(header.flatbuffer_length));
  BOWLINE_TRY(Meter(out->budget_)
                  .spend(header.flatbuffer_length)
                  .at(format("While loading \"{}\".", file->path())));
  const auto* begin = reinterpret_cast<const uint8_t*>(bytes.data()) + kHeaderBytes;
  out->flatbuffer_.assign(begin, begin + header.flatbuffer_length);
  out->data_start_ = header.data_start;
  BOWLINE_TRY(bad(check_flatbuffer(out->flatbuffer_)));

  Check check(out->tables(), out->flatbuffer_.size());
  BOWLINE_TRY(bad(check_tables(check)));

  const uint64_t data_bytes = bytes.size() - kTrailerBytes - header.data_start;
  std::vector<DataFile> data = {{bytes.subspan(header.data_start, data_bytes), header.data_start}};
  for (uint32_t i = 0; i < count_of(check.model.siblings()); ++i) {
    const file::Sibling& sibling = *check.model.siblings()->Get(i);
    BOWLINE_TRY_ASSIGN(auto opened, file->open_sibling(sibling.path()->str(), files));
    data.push_back({opened->bytes(), 0});
    out->siblings_.push_back(std::move(opened));
  }
  for (size_t i = 1; i < data.size(); ++i) {
    const file::Sibling& sibling = *check.model.siblings()->Get(static_cast<uint32_t>(i - 1));
    if (sibling.length() != data[i].bytes.size()) {
      return bad(Status(Code::bad_file,
                        format("Sibling \"{}\" has {} bytes, not {}.", text_of(sibling.path()),
                               data[i].bytes.size(), sibling.length())));
    }
  }
  BOWLINE_TRY(bad(check_ranges(std::move(check.ranges), data)));
  out->file_ = std::move(file);
  return std::shared_ptr<const VerifiedFile>(std::move(out));
}

const file::Model& VerifiedFile::tables() const { return *file::GetModel(flatbuffer_.data()); }

std::shared_ptr<const FileRange> VerifiedFile::range(uint32_t file, uint64_t offset,
                                                     uint64_t length, uint64_t xxh3) const {
  auto out = std::make_shared<FileRange>();
  out->file = file == 0 ? file_ : siblings_[file - 1];
  out->offset = (file == 0 ? data_start_ : 0) + offset;
  out->length = length;
  out->xxh3 = xxh3;
  return out;
}

std::shared_ptr<const FileRange> VerifiedFile::range(const file::Range& range) const {
  return this->range(range.file(), range.offset(), range.length(), range.xxh3());
}

std::shared_ptr<const FileRange> VerifiedFile::range(const file::RangeT& range) const {
  return this->range(range.file, range.offset, range.length, range.xxh3);
}

Status VerifiedFile::verify_all() const {
  const auto bytes = file_->bytes();
  const uint64_t end = bytes.size() - kTrailerBytes;
  const auto trailer = read_as<Trailer>(bytes, end);
  StreamHash hash;
  hash.add(bytes.first(end));
  BOWLINE_REQUIRE_CODE((hash.value() == Hash128{trailer.hash_low, trailer.hash_high}),
                       Code::bad_file, "The bytes of \"{}\" do not match the hash in its trailer.",
                       path());
  // Collects the ranges again; it cannot fail on a file that was verified.
  Check check(tables(), flatbuffer_.size());
  BOWLINE_TRY(check_tables(check));
  for (const NamedRange& r : check.ranges) {
    const auto place = range(r.file, r.offset, r.length, r.xxh3);
    BOWLINE_TRY(place->bytes().status().at(format("While checking {}.", r.name)));
  }
  return {};
}

}  // namespace bowline::detail::model
