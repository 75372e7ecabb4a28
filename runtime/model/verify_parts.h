// The parts of the verification, one per file. Each returns bad_argument with a sentence; the
// caller turns it into bad_file. Internal to model/.
#pragma once

#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/checked.h"
#include "core/encoding.h"
#include "core/rules.h"
#include "core/view.h"
#include "generated/model_generated.h"
#include "model/map.h"

namespace bowline::detail::model {

constexpr uint32_t kMaxNodeOutputs = 1024;
constexpr uint32_t kMaxSlots = 16;

// One byte range as the tables name it, with the row for messages.
struct NamedRange {
  uint32_t file = 0;
  uint64_t offset = 0;
  uint64_t length = 0;
  uint64_t xxh3 = 0;
  std::string name;
};

// State of one verification.
struct Check {
  Check(const file::Model& m, uint64_t flatbuffer_bytes)
      : model(m), content_left(flatbuffer_bytes) {}

  const file::Model& model;
  std::vector<NamedRange> ranges;
  // Of the storages, filled by check_storages.
  std::vector<Shape> shapes;
  std::vector<Encoding> encodings;
  std::unordered_set<std::string_view> dims;
  std::unordered_set<std::string_view> parameters;

  // Texts and lists that the tables may still hold, in bytes. Tables that point at the same content
  // again and again would unpack to more than the file has.
  uint64_t content_left;
  Status spend(uint64_t bytes);
};

// Number of elements of a vector that may be absent.
template <class V>
uint32_t count_of(const V* vector) {
  return vector == nullptr ? 0 : vector->size();
}

inline std::string_view text_of(const flatbuffers::String* text) {
  return text == nullptr ? std::string_view() : text->string_view();
}

// Counts a vector of scalars. FlatBuffers' verifier checks the alignment of its length, not of its
// elements.
template <class T>
Status spend(Check& check, const flatbuffers::Vector<T>* vector) {
  // Of no elements none is read, and a writer need not align them.
  if (count_of(vector) == 0) {
    return {};
  }
  BOWLINE_REQUIRE(reinterpret_cast<uintptr_t>(vector->Data()) % alignof(T) == 0,
                  "A list of {} numbers is not aligned to {} bytes.", vector->size(), alignof(T));
  return check.spend(uint64_t{vector->size()} * sizeof(T));
}

// Present, not empty, valid UTF-8 without control characters and not too long. `what` starts the
// sentence.
Status check_name(Check& check, const flatbuffers::String* name, std::string_view what);
// As check_name, or absent or empty.
Status check_optional_name(Check& check, const flatbuffers::String* name, std::string_view what);
// Valid UTF-8 of at most kMaxTextBytes, may be absent.
Status check_text(Check& check, const flatbuffers::String* text, std::string_view what);
Status check_unique(std::unordered_set<std::string_view>& names, const flatbuffers::String* name,
                    std::string_view what);
// Rank, dims and the number of elements; products that leave out zero dims are bounded too.
Result<Shape> check_shape(Check& check, const flatbuffers::Vector<int64_t>* dims);

Status check_features(Check& check);
Status check_dims(Check& check);
Status check_storages(Check& check);
Status check_parameters(Check& check);
Status check_graphs(Check& check);
// Assets, base, metadata, self tests, training state and siblings.
Status check_extras(Check& check);

// Ranges lie in their files, aligned, without overlap, and what lies between them is short and
// zero. files[0] is the model file, of which bytes [data_start, data_end) are meant; the others are
// siblings.
struct DataFile {
  std::span<const std::byte> bytes;
  uint64_t data_start = 0;  // from the begin of the file, for messages
};
Status check_ranges(std::vector<NamedRange> ranges, std::span<const DataFile> files);

// Every byte of [begin, end) is zero.
Status check_zeros(std::span<const std::byte> bytes, uint64_t begin, uint64_t end,
                   uint64_t file_offset);

}  // namespace bowline::detail::model
