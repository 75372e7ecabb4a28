// The parts of the verification, one per .cpp file. They return bad_argument; the caller turns it
// into bad_file. Internal to model/.
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

// A byte range of the tables, with its name for messages.
struct NamedRange {
  uint32_t file = 0;
  uint64_t offset = 0;
  uint64_t length = 0;
  uint64_t xxh3 = 0;
  std::string name;
};

// The state of a verification.
struct Check {
  Check(const file::Model& m, uint64_t flatbuffer_bytes)
      : model(m), content_left(flatbuffer_bytes) {}

  const file::Model& model;
  std::vector<NamedRange> ranges;
  // By tie index. Filled by check_storages().
  std::vector<Shape> shapes;
  std::vector<Encoding> encodings;
  std::unordered_set<std::string_view> dims;
  std::unordered_set<std::string_view> parameters;

  // Size of texts and lists that the rest of the tables may have, in bytes. Without this limit,
  // many tables could refer to the same content and unpack to much more than the size of the file.
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

// Subtracts the size of a vector from content_left, and checks the alignment of its elements. The
// verifier of FlatBuffers checks only the alignment of the length.
template <class T>
Status spend(Check& check, const flatbuffers::Vector<T>* vector) {
  // The data of an empty vector is never read and need not be aligned.
  if (count_of(vector) == 0) {
    return {};
  }
  BOWLINE_REQUIRE(reinterpret_cast<uintptr_t>(vector->Data()) % alignof(T) == 0,
                  "A list of {} numbers is not aligned to {} bytes.", vector->size(), alignof(T));
  return check.spend(uint64_t{vector->size()} * sizeof(T));
}

// Checks that a name is present, not empty, not too long, and valid UTF-8 without control
// characters. `what` starts the message.
Status check_name(Check& check, const flatbuffers::String* name, std::string_view what);
// The same, but the name may be absent or empty.
Status check_optional_name(Check& check, const flatbuffers::String* name, std::string_view what);
// Checks that a text is absent, or valid UTF-8 of at most kMaxTextBytes.
Status check_text(Check& check, const flatbuffers::String* text, std::string_view what);
// As check_name(), for a name that is not in `names` yet.
Status check_new_name(Check& check, std::unordered_set<std::string_view>& names,
                      const flatbuffers::String* name, std::string_view what);
// Checks the rank, the dims, the number of elements, and the product of all dims that are not 0.
Result<Shape> check_shape(Check& check, const flatbuffers::Vector<int64_t>* dims);

Status check_features(Check& check);
Status check_dims(Check& check);
Status check_storages(Check& check);
Status check_parameters(Check& check);
Status check_graphs(Check& check);
// Assets, base, metadata, self tests, training state and siblings.
Status check_extras(Check& check);

// The data part of the model file, or a sibling.
struct DataFile {
  uint64_t bytes = 0;
  uint64_t data_start = 0;  // from the start of the file
};
// Bytes that belong to no range: alignment padding, which must contain zeros.
struct Gap {
  uint32_t file = 0;
  uint64_t offset = 0;  // from the start of the file
  uint64_t length = 0;
};
// Checks that ranges are inside their files, aligned and without overlap, and that the gaps between
// them are short. Returns the gaps. files[0] is the model file; the others are siblings.
Result<std::vector<Gap>> check_ranges(std::vector<NamedRange> ranges,
                                      std::span<const DataFile> files);

// Checks that every byte is zero. `file_offset` is where the bytes are, for messages.
Status check_zeros(std::span<const std::byte> bytes, uint64_t file_offset);

}  // namespace bowline::detail::model
