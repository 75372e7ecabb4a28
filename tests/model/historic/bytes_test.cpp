// Hostile bytes: header, trailer, ranges, and FlatBuffers that no builder writes.
#include "model/historic/hostile.h"

namespace bowline {
namespace {

using test::Bytes;
using test::Hostile;
using test::Sample;

template <class T>
void put(Bytes& bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof(value));
}

template <class T>
T get(const Bytes& bytes, size_t at) {
  return model::read_as<T>(bytes, at);
}

struct Patch {
  const char* name;
  const char* says;
  std::function<void(Bytes&)> change;
};

const Patch kPatches[] = {
    {"wrong_magic", "BOWLINE1", [](Bytes& b) { b[0] = std::byte{'X'}; }},
    {"newer_format", "format 2", [](Bytes& b) { put<uint32_t>(b, 8, 2); }},
    {"header_padding", "file offset 12", [](Bytes& b) { b[12] = std::byte{1}; }},
    {"header_end_padding", "file offset 63", [](Bytes& b) { b[63] = std::byte{1}; }},
    {"tables_elsewhere", "file offset 16", [](Bytes& b) { put<uint64_t>(b, 16, 128); }},
    {"tables_longer_than_the_file", "file offset 24",
     [](Bytes& b) { put<uint64_t>(b, 24, b.size()); }},
    {"tables_length_wraps", "file offset 24",
     [](Bytes& b) { put<uint64_t>(b, 24, UINT64_MAX - 32); }},
    {"tables_of_no_bytes", "fewer than 16",
     [](Bytes& b) {
       std::fill(b.begin() + 64, b.begin() + 4096, std::byte{0});
       put<uint64_t>(b, 24, 0);
     }},
    {"data_start_beyond_the_file", "data start",
     [](Bytes& b) { put<uint64_t>(b, 32, uint64_t{1} << 40); }},
    {"data_start_unaligned", "data start", [](Bytes& b) { put<uint64_t>(b, 32, 4097); }},
    {"file_length_wrong", "file offset 40", [](Bytes& b) { put<uint64_t>(b, 40, b.size() + 1); }},
    {"padding_before_the_data", "not zero",
     [](Bytes& b) { b[get<uint64_t>(b, 32) - 1] = std::byte{1}; }},
    {"wrong_identifier", "BWLN", [](Bytes& b) { b[64 + 4] = std::byte{'X'}; }},
    {"root_offset_out_of_range", "malformed", [](Bytes& b) { put<uint32_t>(b, 64, 0x7FFFFFF0); }},
    {"root_offset_negative", "malformed", [](Bytes& b) { put<uint32_t>(b, 64, 0xFFFFFFF0); }},
    {"root_offset_unaligned", "malformed",
     [](Bytes& b) { put<uint32_t>(b, 64, get<uint32_t>(b, 64) + 1); }},
    {"vtable_out_of_range", "malformed",
     [](Bytes& b) { put<int32_t>(b, 64 + get<uint32_t>(b, 64), 0x7FFFFFF0); }},
    {"trailer_magic", "trailer", [](Bytes& b) { b[b.size() - 32] = std::byte{0}; }},
    {"trailer_padding", "trailer", [](Bytes& b) { b[b.size() - 1] = std::byte{1}; }},
};

TEST(Historic, Bytes) {
  for (const Patch& patch : kPatches) {
    Bytes bytes = test::make_sample().bytes();
    patch.change(bytes);
    test::expect_refused(patch.name, test::open_as_app(std::move(bytes)), patch.says);
  }
}

file::RangeT& range(Sample& s, size_t i) { return *s.model.storages[i]->range; }

const Hostile kRanges[] = {
    {"overlap", "CVE-2024-23496: aliased buffers", "storage 1 and storage 0 overlap",
     [](Sample& s) { range(s, 1).offset = 0; }},
    {"overlap_in_part", "CVE-2024-21802", "overlap",
     [](Sample& s) {
       s.model.storages[2]->shape = {12, 2};
       range(s, 2).length = 96;
     }},
    {"past_the_end", "CVE-2024-23605: heap overflow", "storage 2",
     [](Sample& s) { range(s, 2).offset = 1 << 20; }},
    {"offset_wraps", "llama.cpp#26318: padding wraps", "storage 2",
     [](Sample& s) { range(s, 2).offset = UINT64_MAX - 63; }},
    {"length_wraps", "GHSA-3p4r-fq3f-q74v: offset + length wraps", "18446744073709551600 bytes",
     [](Sample& s) { range(s, 2).length = UINT64_MAX - 15; }},
    {"unaligned", "unaligned tensor data (CVE-2023-33976)", "no multiple of 64",
     [](Sample& s) { range(s, 2).offset += 4; }},
    {"hole_with_content", "hidden bytes", "not zero", [](Sample& s) { s.data[40] = std::byte{1}; }},
    {"large_hole", "hidden bytes", "belong to no range",
     [](Sample& s) { s.data.resize(s.data.size() + 8192); }},
    {"hole_at_the_begin", "hidden bytes", "belong to no range",
     [](Sample& s) {
       s.data.insert(s.data.begin(), 4096, std::byte{0});
       for (auto& row : s.model.storages) {
         if (row->range) {
           row->range->offset += 4096;
         }
       }
       s.model.assets[0]->range->offset += 4096;
     }},
    {"asset_over_a_storage", "aliased buffers", "overlap",
     [](Sample& s) { s.model.assets[0]->range->offset = 0; }},
};

TEST(Historic, Ranges) { test::expect_all_refused(kRanges); }

// Writes `value` into the byte field of a table.
void put_field(Bytes& bytes, const flatbuffers::Table* table, flatbuffers::voffset_t field,
               uint8_t value) {
  const uint8_t* at = table->GetAddressOf(field);
  ASSERT_NE(at, nullptr);
  bytes[static_cast<size_t>(at - reinterpret_cast<const uint8_t*>(bytes.data()))] =
      std::byte{value};
}

const file::Model& tables(const Bytes& bytes) { return *file::GetModel(bytes.data() + 64); }

template <class T>
const flatbuffers::Table* as_table(const T* table) {
  return reinterpret_cast<const flatbuffers::Table*>(table);
}

// The verifier of FlatBuffers accepts an unknown union tag.
TEST(Historic, UnknownUnionTag) {
  Bytes bytes = test::make_sample().bytes();
  const auto* node = tables(bytes).graphs()->Get(0)->nodes()->Get(0);
  put_field(bytes, as_table(node), file::Node::VT_OP_TYPE, 200);
  test::expect_refused("tag 200", test::open_as_app(bytes), "operator 200");
}

// The table of one operator has the tag of another operator. The verifier checks the table as the
// tag says.
TEST(Historic, UnionTagOfAnotherOperator) {
  for (int tag = 1; tag <= 255; ++tag) {
    Bytes bytes = test::make_sample().bytes();
    const auto* node = tables(bytes).graphs()->Get(0)->nodes()->Get(3);
    put_field(bytes, as_table(node), file::Node::VT_OP_TYPE, static_cast<uint8_t>(tag));
    const Status status = test::open_as_app(bytes);
    EXPECT_TRUE(status.ok() || status.code() == Code::bad_file ||
                status.code() == Code::unsupported)
        << status.message();
  }
}

// The verifier of FlatBuffers accepts 64-bit numbers at a multiple of 4 bytes. Fuzzing found this
// case.
TEST(Historic, UnalignedShape) {
  Bytes bytes = test::make_sample().bytes();
  const auto* row = as_table(tables(bytes).storages()->Get(1));
  const auto at = static_cast<size_t>(row->GetAddressOf(file::Storage::VT_SHAPE) -
                                      reinterpret_cast<const uint8_t*>(bytes.data()));
  put<uint32_t>(bytes, at, get<uint32_t>(bytes, at) + 4);
  test::expect_refused("shape", test::open_as_app(bytes), "not aligned to 8");
}

// A known tag without a table.
TEST(Historic, NullUnion) {
  Sample s = test::make_sample();
  s.model.graphs[0]->nodes[0]->op.Reset();
  s.model.graphs[0]->nodes[0]->op.type = static_cast<file::Op>(200);
  Bytes bytes = s.bytes();
  const auto* node = tables(bytes).graphs()->Get(0)->nodes()->Get(0);
  put_field(bytes, as_table(node), file::Node::VT_OP_TYPE, 2);
  EXPECT_EQ(test::open_as_app(bytes).code(), Code::bad_file);
}

Status open_tables(flatbuffers::FlatBufferBuilder& b, flatbuffers::Offset<file::Model> model) {
  file::FinishModelBuffer(b, model);
  return test::open_as_app(Sample().assemble({b.GetBufferPointer(), b.GetSize()}));
}

// Many rows that share one long text unpack to far more bytes than the file has.
TEST(Historic, SharedContentIsRefused) {
  flatbuffers::FlatBufferBuilder b;
  const auto text = b.CreateString(std::string(1 << 18, 'x'));
  std::vector<flatbuffers::Offset<file::Metadata>> rows;
  for (int i = 0; i < 10000; ++i) {
    rows.push_back(file::CreateMetadata(b, b.CreateString(format("key{}", i)), text));
  }
  const auto vector = b.CreateVector(rows);
  file::ModelBuilder m(b);
  m.add_metadata(vector);
  test::expect_refused("shared text", open_tables(b, m.Finish()), "share content");
}

// A million references to one table.
TEST(Historic, TableBombIsRefused) {
  flatbuffers::FlatBufferBuilder b;
  const auto one = file::CreateMetadata(b, b.CreateString("key"));
  const auto vector =
      b.CreateVector(std::vector<flatbuffers::Offset<file::Metadata>>(1'000'000, one));
  file::ModelBuilder m(b);
  m.add_metadata(vector);
  test::expect_refused("table bomb", open_tables(b, m.Finish()), "malformed");
}

TEST(Historic, AModelWithNothingInItIsLegal) {
  flatbuffers::FlatBufferBuilder b;
  EXPECT_TRUE(open_tables(b, file::ModelBuilder(b).Finish()).ok());
}

// Flips every bit of the tables. Each file is refused or loads, and no file crashes the reader.
TEST(Historic, EveryFlippedBitOfTheTablesLoadsOrIsRefused) {
  Bytes bytes = test::make_sample().bytes();
  const size_t end = 64 + get<uint64_t>(bytes, 24);
  int loaded = 0;
  for (size_t bit = 64 * 8; bit < end * 8; ++bit) {
    const std::byte mask{static_cast<uint8_t>(1u << (bit % 8))};
    bytes[bit / 8] ^= mask;
    const Status status = test::open_as_app(bytes);
    loaded += status.ok() ? 1 : 0;
    bytes[bit / 8] ^= mask;
  }
  RecordProperty("loaded", loaded);
}

}  // namespace
}  // namespace bowline
