// A GGUF file, versions 2 and 3, little endian: metadata and tensors, each inside the file. Nothing
// of it is copied: names, texts and arrays are views of the bytes.
//
//   "GGUF", version u32, tensors u64, entries u64
//   entries   key, type u32, value: a number, a text (length u64, bytes), or an array (type u32,
//       count u64, values)
//   tensors   name, rank u32, dims u64 each, the fastest first, type u32, offset u64 behind the
//       begin of the data
//   data      from the next multiple of general.alignment (32) on, every tensor at such a multiple
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
// Bytes of a number; 0 of what has a length of its own.
uint64_t size_of(ValueType type);

struct Value {
  ValueType type = ValueType::u8;
  ValueType item = ValueType::u8;  // of an array
  uint64_t count = 1;              // of an array
  // Of a text itself; of an array its values one after the other, texts with their lengths.
  std::span<const std::byte> bytes;

  std::optional<std::string_view> text() const;
  // Of an array of texts; empty: it is none.
  std::vector<std::string_view> texts() const;
  std::optional<bool> boolean() const;
  // None: it is no whole number, or does not fit. Of an array element `i`.
  std::optional<int64_t> integer(uint64_t i = 0) const;
  // None: it is no number.
  std::optional<double> real(uint64_t i = 0) const;
};

struct Entry {
  std::string_view key;
  Value value;
  std::span<const std::byte> bytes;  // key, type and value, as a file has them
};

struct TensorEntry {
  std::string_view name;
  const TensorType* type = nullptr;
  std::vector<int64_t> shape;  // last dim fastest, as everywhere but in the file
  std::span<const std::byte> bytes;
};

class File {
 public:
  // Maps a regular file. A program that truncates it meanwhile ends this one by SIGBUS. Errors
  // io_error: it cannot be read. bad_file: what
  // and where.
  static Result<std::shared_ptr<const File>> open(const std::string& path);
  // Of bytes that outlive it.
  static Result<File> parse(std::span<const std::byte> bytes);

  File(File&&) = default;

  // Null: there is none.
  const Entry* find(std::string_view key) const;

  uint32_t version = 0;
  uint64_t alignment = 32;
  std::vector<Entry> entries;
  std::vector<TensorEntry> tensors;
  std::span<const std::byte> bytes;

 private:
  File() = default;
  std::vector<uint32_t> by_key_;  // of the entries, ascending
  std::shared_ptr<const void> mapping_;
};

}  // namespace bowline::gguf
