// Parses GGUF files, versions 2 and 3, little endian. Nothing is copied: names, texts and arrays
// are views of the file's bytes. Every tensor is inside the file.
//
//   "GGUF", version u32, tensor count u64, entry count u64
//   entries   key, type u32, value: a number, a text (length u64, bytes), or an array (type u32,
//       count u64, values)
//   tensors   name, rank u32, dims u64 each (the contiguous dim first), type u32, offset u64 from
//       the start of the data
//   data      starts at a multiple of general.alignment (32), as does every tensor
//
// Source  ggml/docs/gguf.md of ggml.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bowline.h"
#include "gguf/types.h"

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

struct TensorEntry {
  std::string_view name;
  const TensorType* type = nullptr;
  // Row-major: the last dim is contiguous. The file has the opposite order.
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

class File {
 public:
  // Memory-maps a regular file. If another program truncates the file later, SIGBUS ends this one.
  // Errors  io_error: the file cannot be read. bad_file: the message says what and where.
  static Result<std::shared_ptr<const File>> open(const std::string& path);
  // Parses bytes, which must outlive the File.
  static Result<File> parse(std::span<const std::byte> bytes);

  File(File&&) = default;

  // Null if the key is missing.
  const Entry* find(std::string_view key) const;

  uint32_t version = 0;
  uint64_t alignment = 32;
  std::vector<Entry> entries;
  std::vector<TensorEntry> tensors;
  std::span<const std::byte> bytes;

 private:
  File() = default;
  std::vector<uint32_t> by_key_;  // indices of the entries, sorted by key
  std::shared_ptr<const void> mapping_;
};

}  // namespace bowline::gguf
