// Writes GGUF files, version 3.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bowline.h"
#include "gguf/file.h"

namespace bowline::gguf {

// Builds the metadata of a file, key by key.
class Metadata {
 public:
  void number(std::string_view key, uint32_t value);
  void number(std::string_view key, float value);
  void flag(std::string_view key, bool value);
  void text(std::string_view key, std::string_view value);
  void texts(std::string_view key, std::span<const std::string> values);
  void numbers(std::string_view key, std::span<const int32_t> values);
  void numbers(std::string_view key, std::span<const float> values);
  void numbers(std::string_view key, std::span<const uint8_t> values);
  // Copies an entry of another file unchanged.
  void copy(const Entry& entry);

  std::span<const std::byte> bytes() const { return bytes_; }
  uint64_t count() const { return count_; }

 private:
  void begin(std::string_view key, ValueType type);
  template <class T>
  void put(std::string_view key, ValueType type, T value);
  template <class T, class Put>
  void put_array(std::string_view key, ValueType item, std::span<const T> values,
                 const Put& put_item);
  std::vector<std::byte> bytes_;
  uint64_t count_ = 0;
};

struct WrittenTensor {
  std::string name;
  const TensorType* type = nullptr;
  std::vector<int64_t> shape;  // row-major: the last dim is contiguous
  uint64_t bytes = 0;
};

constexpr uint64_t kAlignment = 32;
// Number of zero bytes that follow `bytes` bytes of data.
constexpr uint64_t padding_behind(uint64_t bytes) {
  return (kAlignment - bytes % kAlignment) % kAlignment;
}

// Returns everything before the data. The data follows tensor by tensor, each with its padding.
std::vector<std::byte> header_of(const Metadata& metadata, std::span<const WrittenTensor> tensors);

// Returns a file with the keys that begin with `prefix`, except `without`, and no tensors. Empty if
// there are no such keys.
std::vector<std::byte> excerpt(const File& file, std::string_view prefix, std::string_view without);

}  // namespace bowline::gguf
