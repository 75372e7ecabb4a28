#include "model/write.h"

#include <algorithm>

#include "model/checksum.h"

namespace bowline::detail::model {
namespace {

using Emit = std::function<Status(std::span<const std::byte>)>;

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

Status for_each_run(const Payload& payload, const Emit& run) {
  std::vector<std::byte> scratch;
  for (uint64_t first = 0; first < payload.length; first += kRunBytes) {
    const uint64_t count = std::min(kRunBytes, payload.length - first);
    BOWLINE_TRY_ASSIGN(const auto bytes, payload.bytes(first, count, scratch));
    BOWLINE_REQUIRE_CODE(bytes.size() == count, Code::internal,
                         "A run of a payload has {} bytes, not {}.", bytes.size(), count);
    BOWLINE_TRY(run(bytes));
  }
  return {};
}

// Gives every range its place and checksum. Returns the bytes from the data start to the trailer.
Result<uint64_t> place(std::span<const Payload> payloads) {
  uint64_t at = 0;
  for (const Payload& payload : payloads) {
    StreamChecksum sum;
    BOWLINE_TRY(for_each_run(payload, [&](std::span<const std::byte> bytes) {
      sum.add(bytes);
      return Status();
    }));
    *payload.range = {};
    payload.range->offset = at;
    payload.range->length = payload.length;
    payload.range->xxh3 = sum.value();
    at = round_up(at + payload.length, kRangeAlignment);
  }
  return at;
}

struct Head {
  flatbuffers::FlatBufferBuilder tables{1024};
  Header header;
};

void build_head(Head& head, const file::ModelT& tables, uint64_t data_bytes) {
  file::FinishModelBuffer(head.tables, file::Model::Pack(head.tables, &tables));
  head.header.flatbuffer_length = head.tables.GetSize();
  head.header.data_start = round_up(kHeaderBytes + head.tables.GetSize(), kPageBytes);
  head.header.file_length = head.header.data_start + data_bytes + kTrailerBytes;
}

Status emit_zeros(const Emit& emit, uint64_t count) {
  static constexpr std::array<std::byte, 256> zeros{};
  while (count > 0) {
    const uint64_t some = std::min<uint64_t>(count, zeros.size());
    BOWLINE_TRY(emit(std::span(zeros).first(some)));
    count -= some;
  }
  return {};
}

Status emit_all(const Head& head, std::span<const Payload> payloads, const Emit& emit) {
  const std::span tables(head.tables.GetBufferPointer(), head.tables.GetSize());
  BOWLINE_TRY(emit(bytes_of(head.header)));
  BOWLINE_TRY(emit(std::as_bytes(tables)));
  BOWLINE_TRY(emit_zeros(emit, head.header.data_start - kHeaderBytes - tables.size()));
  for (const Payload& payload : payloads) {
    BOWLINE_TRY(for_each_run(payload, emit));
    BOWLINE_TRY(emit_zeros(emit, round_up(payload.length, kRangeAlignment) - payload.length));
  }
  return {};
}

Status emit_file(const Head& head, std::span<const Payload> payloads, const Emit& emit) {
  StreamHash hash;
  BOWLINE_TRY(emit_all(head, payloads, [&](std::span<const std::byte> bytes) {
    hash.add(bytes);
    return emit(bytes);
  }));
  Trailer trailer;
  trailer.hash_low = hash.value().low;
  trailer.hash_high = hash.value().high;
  return emit(bytes_of(trailer));
}

Status verify(const AtomicFile& file, const Acceptance& acceptance, FileSystem& files) {
  BOWLINE_TRY_ASSIGN(auto written, MappedFile::open(file.temporary(), files));
  BOWLINE_TRY_ASSIGN(auto verified, VerifiedFile::verify(std::move(written), files));
  return acceptance(std::move(verified));
}

// If the written file does not verify, the saved model was wrong: bad_argument.
Status as_refusal(Status status) {
  if (status.ok() || status.code() == Code::io_error) {
    return status;
  }
  return std::move(status)
      .as(Code::bad_argument)
      .at("The file could not be opened again, so it is not saved.");
}

}  // namespace

Status write_file(const std::string& path, file::ModelT& tables, std::span<const Payload> payloads,
                  const Acceptance& acceptance, FileSystem& files) {
  BOWLINE_TRY_ASSIGN(const uint64_t data_bytes, place(payloads));
  Head head;
  build_head(head, tables, data_bytes);
  BOWLINE_TRY_ASSIGN(const auto file, AtomicFile::create(path, head.header.file_length, files));
  BOWLINE_TRY(emit_file(head, payloads,
                        [&](std::span<const std::byte> bytes) { return file->write(bytes); }));
  BOWLINE_TRY(as_refusal(verify(*file, acceptance, files)));
  return file->commit();
}

Result<std::vector<std::byte>> write_bytes(file::ModelT& tables,
                                           std::span<const Payload> payloads) {
  BOWLINE_TRY_ASSIGN(const uint64_t data_bytes, place(payloads));
  Head head;
  build_head(head, tables, data_bytes);
  std::vector<std::byte> out;
  out.reserve(head.header.file_length);
  BOWLINE_TRY(emit_file(head, payloads, [&](std::span<const std::byte> bytes) {
    out.insert(out.end(), bytes.begin(), bytes.end());
    return Status();
  }));
  return out;
}

}  // namespace bowline::detail::model
