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

// The first bytes of a file that tell which format it has.
constexpr uint64_t kHeadBytes = 512;

Status check_header(std::span<const std::byte> head, uint64_t file_bytes) {
  if (!has_magic(head)) {
    const std::string_view other = foreign_format(head, file_bytes);
    return Status(Code::bad_file, other.empty()
                                      ? "The file does not begin with \"BOWLINE1\"."
                                      : format("The file is {}, not a Bowline model.", other));
  }
  BOWLINE_REQUIRE(file_bytes >= kHeaderBytes + kTrailerBytes,
                  "The file has {} bytes, fewer than a header and a trailer.", file_bytes);
  const auto header = read_as<Header>(head, 0);
  BOWLINE_REQUIRE(header.format_major == kFormatMajor,
                  "The file has format {}; this library reads format {} (file offset 8).",
                  header.format_major, kFormatMajor);
  BOWLINE_REQUIRE(header.file_length == file_bytes,
                  "The header states {} bytes (file offset 40), but the file has {}.",
                  header.file_length, file_bytes);
  BOWLINE_TRY(check_zeros(head.subspan(12, 4), 12));
  BOWLINE_TRY(check_zeros(head.subspan(48, kHeaderBytes - 48), 48));
  BOWLINE_REQUIRE(header.flatbuffer_offset == kHeaderBytes,
                  "The tables begin at offset {}, not {} (file offset 16).",
                  header.flatbuffer_offset, kHeaderBytes);
  const Untrusted<uint64_t> length(header.flatbuffer_length);
  const uint64_t limit = std::min(kMaxFlatBuffer, file_bytes - kHeaderBytes - kTrailerBytes);
  BOWLINE_REQUIRE(
      length.at_most(limit),
      "The tables take {} bytes (file offset 24), more than the file has room for ({}).",
      header.flatbuffer_length, limit);
  const uint64_t end = kHeaderBytes + length.checked();
  BOWLINE_REQUIRE(header.data_start == round_up(end, kPageBytes),
                  "The data start at offset {} (file offset 32), not {}.", header.data_start,
                  round_up(end, kPageBytes));
  BOWLINE_REQUIRE(header.data_start <= file_bytes - kTrailerBytes,
                  "The data start at offset {}, beyond the end of the file ({}).",
                  header.data_start, file_bytes);
  return {};
}

Status check_trailer(std::span<const std::byte> bytes, uint64_t at) {
  const auto trailer = read_as<Trailer>(bytes, 0);
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
  BOWLINE_TRY_ASSIGN(auto file, MappedFile::open(path, files, MappedFile::access_of(options)));
  return verify(std::move(file), files, options);
}

Result<std::shared_ptr<const VerifiedFile>> VerifiedFile::verify(std::shared_ptr<MappedFile> file,
                                                                 FileSystem& files,
                                                                 const OpenOptions& options) {
  std::shared_ptr<VerifiedFile> out(new VerifiedFile);
  out->file_ = std::move(file);
  const std::string place = format("While loading {}.", out->file_->name());
  BOWLINE_TRY(out->read_tables(options).at(place));
  Check check(out->tables(), out->flatbuffer_.size());
  BOWLINE_TRY(check_tables(check).as(Code::bad_file).at(place));
  for (uint32_t i = 0; i < count_of(check.model.siblings()); ++i) {
    const std::string path = check.model.siblings()->Get(i)->path()->str();
    BOWLINE_TRY_ASSIGN(auto opened, out->file_->open_sibling(path, files));
    out->siblings_.push_back(std::move(opened));
  }
  BOWLINE_TRY(out->check_data(std::move(check.ranges)).at(place));
  return std::shared_ptr<const VerifiedFile>(std::move(out));
}

// A callback may fail for reasons that are not in the file, so only what it read can be a bad file.
// Each part of the file is copied before it is checked: a callback, or another program that writes
// to a mapped file, could return other bytes the second time.
Status VerifiedFile::read_tables(const OpenOptions& options) {
  const uint64_t size = file_->size();
  std::vector<std::byte> bytes(std::min(size, kHeadBytes));
  BOWLINE_TRY(file_->copy(0, bytes));
  BOWLINE_TRY(check_header(bytes, size).as(Code::bad_file));
  const auto header = read_as<Header>(bytes, 0);
  data_start_ = header.data_start;
  const uint64_t end = kHeaderBytes + header.flatbuffer_length;
  bytes.resize(data_start_ - end);
  BOWLINE_TRY(file_->copy(end, bytes));
  BOWLINE_TRY(check_zeros(bytes, end).as(Code::bad_file));
  bytes.resize(kTrailerBytes);
  BOWLINE_TRY(file_->copy(size - kTrailerBytes, bytes));
  BOWLINE_TRY(check_trailer(bytes, size - kTrailerBytes).as(Code::bad_file));

  budget_ = options.budget.value_or(Budget::of_file(header.flatbuffer_length));
  BOWLINE_TRY(Meter(budget_).spend(header.flatbuffer_length));
  flatbuffer_.resize(header.flatbuffer_length);
  BOWLINE_TRY(file_->copy(kHeaderBytes, std::as_writable_bytes(std::span(flatbuffer_))));
  return check_flatbuffer(flatbuffer_).as(Code::bad_file);
}

Status VerifiedFile::check_data(std::vector<NamedRange> ranges) {
  std::vector<DataFile> data = {{file_->size() - kTrailerBytes - data_start_, data_start_}};
  for (uint32_t i = 0; i < siblings_.size(); ++i) {
    const file::Sibling& sibling = *tables().siblings()->Get(i);
    data.push_back({siblings_[i]->size(), 0});
    BOWLINE_REQUIRE_CODE(sibling.length() == siblings_[i]->size(), Code::bad_file,
                         "Sibling \"{}\" has {} bytes, not {}.", text_of(sibling.path()),
                         siblings_[i]->size(), sibling.length());
  }
  auto gaps = check_ranges(std::move(ranges), data);
  if (!gaps.ok()) {
    return std::move(gaps).status().as(Code::bad_file);
  }
  std::vector<std::byte> scratch;
  for (const Gap& gap : gaps.value()) {
    const MappedFile& file = gap.file == 0 ? *file_ : *siblings_[gap.file - 1];
    BOWLINE_TRY_ASSIGN(const auto bytes, file.read(gap.offset, gap.length, scratch));
    BOWLINE_TRY(check_zeros(bytes, gap.offset).as(Code::bad_file));
  }
  return {};
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
  const uint64_t end = file_->size() - kTrailerBytes;
  std::vector<std::byte> bytes(kTrailerBytes);
  BOWLINE_TRY(file_->copy(end, bytes));
  const auto trailer = read_as<Trailer>(bytes, 0);
  StreamHash hash;
  BOWLINE_TRY(file_->each_piece(0, end, [&](uint64_t, std::span<const std::byte> piece) {
    hash.add(piece);
    return Status();
  }));
  BOWLINE_REQUIRE_CODE((hash.value() == Hash128{trailer.hash_low, trailer.hash_high}),
                       Code::bad_file, "The bytes of {} do not match the hash in its trailer.",
                       name());
  // Collects the ranges again; it cannot fail on a file that was verified.
  Check check(tables(), flatbuffer_.size());
  BOWLINE_TRY(check_tables(check));
  for (const NamedRange& r : check.ranges) {
    const auto place = range(r.file, r.offset, r.length, r.xxh3);
    BOWLINE_TRY(place->check().at(format("While checking {}.", r.name)));
  }
  return {};
}

}  // namespace bowline::detail::model
