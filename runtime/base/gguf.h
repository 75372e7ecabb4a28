// The head and the metadata of GGUF files, versions 2 and 3, little endian. Nothing is copied:
// keys, texts and arrays are views of the file's bytes.
//
//   "GGUF", version u32, tensor count u64, entry count u64
//   entries   key, type u32, value: a number, a text (length u64, bytes), or an array (type u32,
//       count u64, values)
//
// Source  ggml/docs/gguf.md of ggml.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace bowline::gguf {

enum class ValueType : uint32_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  text,
  array,
  u64,
  i64,
  f64,
};
constexpr uint32_t kValueTypes = 13;
// Bytes of a value; 0 for texts and arrays.
uint64_t size_of(ValueType type);

struct Value {
  ValueType type = ValueType::u8;
  ValueType item = ValueType::u8;  // element type of an array
  uint64_t count = 1;              // of an array
  // The bytes of a text; the consecutive values of an array, texts with their lengths.
  std::span<const std::byte> bytes;

  std::optional<std::string_view> text() const;
  // The texts of an array; empty if the value is not an array of texts.
  std::vector<std::string_view> texts() const;
  std::optional<bool> boolean() const;
  // An integer, or element `i` of an array. Empty: not an integer, or too large.
  std::optional<int64_t> integer(uint64_t i = 0) const;
  // Empty: not a number.
  std::optional<double> real(uint64_t i = 0) const;
};

struct Entry {
  std::string_view key;
  Value value;
  std::span<const std::byte> bytes;  // key, type and value as stored
};

// Reads a file from its start. Every length is checked against the remaining bytes.
// Errors of all functions  bad_file: the file is too short, or a value is not legal.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  uint64_t at() const { return at_; }
  uint64_t left() const { return bytes_.size() - at_; }
  std::span<const std::byte> since(uint64_t begin) const {
    return bytes_.subspan(begin, at_ - begin);
  }

  Result<std::span<const std::byte>> take(uint64_t count);
  template <class T>
  Result<T> number() {
    BOWLINE_TRY_ASSIGN(const std::span<const std::byte> from, take(sizeof(T)));
    return load<T>(from.data());
  }
  // Reads a length and this number of bytes.
  Result<std::span<const std::byte>> sized();
  // Reads a key or tensor name; `what` names it in messages.
  Result<std::string_view> name(std::string_view what);
  // Checks that `count` items of at least `least` bytes may follow.
  Status check_count(uint64_t count, uint64_t least, std::string_view what) const;

 private:
  std::span<const std::byte> bytes_;
  uint64_t at_ = 0;
};

// Returns the indices of the names in the order of the names.
// Errors  bad_file: a name occurs twice. `what` names the items in the message.
Result<std::vector<uint32_t>> distinct(std::span<const std::string_view> names,
                                       std::string_view what);

// The head and the metadata entries of a file, which stand before its tensors.
struct Header {
  // Reads the head and all entries.
  static Result<Header> read(Reader& in);
  // Null if the key is missing.
  const Entry* find(std::string_view key) const;

  uint32_t version = 0;
  uint64_t tensor_count = 0;
  std::vector<Entry> entries;
  std::vector<uint32_t> by_key;  // indices of the entries, sorted by key
};

}  // namespace bowline::gguf
