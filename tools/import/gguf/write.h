// Writes GGUF, version 3.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bowline.h"
#include "gguf/file.h"

namespace bowline::gguf {

// Metadata as a file has it, key by key.
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
  // An entry of another file, as it is.
  void copy(const Entry& entry);

  std::span<const std::byte> bytes() const { return bytes_; }
  uint64_t count() const { return count_; }

 private:
  void begin(std::string_view key, ValueType type);
  void put_text(std::string_view text);
  template <class T>
  void put(T value);
  template <class T>
  void put_array(std::string_view key, ValueType item, std::span<const T> values);
  std::vector<std::byte> bytes_;
  uint64_t count_ = 0;
};

struct WrittenTensor {
  std::string name;
  const TensorType* type = nullptr;
  std::vector<int64_t> shape;  // last dim fastest
  uint64_t bytes = 0;
};

constexpr uint64_t kAlignment = 32;
// Zeros that follow so many bytes of the data.
constexpr uint64_t padding_behind(uint64_t bytes) {
  return (kAlignment - bytes % kAlignment) % kAlignment;
}

// All in front of the data, which follows tensor by tensor, each with its padding.
std::vector<std::byte> header_of(const Metadata& metadata, std::span<const WrittenTensor> tensors);

// A file of the keys that begin with `prefix`, but for `without`, and no tensors. Empty: there are
// none.
std::vector<std::byte> excerpt(const File& file, std::string_view prefix, std::string_view without);

}  // namespace bowline::gguf
