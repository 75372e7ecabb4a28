#include "gguf/write.h"

namespace bowline::gguf {
namespace {

template <class T>
void append(std::vector<std::byte>& out, T value) {
  for (const std::byte b : std::as_bytes(std::span(&value, 1))) {
    out.push_back(b);
  }
}

void append_text(std::vector<std::byte>& out, std::string_view text) {
  append(out, uint64_t{text.size()});
  const auto* const from = reinterpret_cast<const std::byte*>(text.data());
  out.insert(out.end(), from, from + text.size());
}

}  // namespace

template <class T>
void Metadata::put(T value) {
  append(bytes_, value);
}

void Metadata::put_text(std::string_view text) { append_text(bytes_, text); }

void Metadata::begin(std::string_view key, ValueType type) {
  put_text(key);
  put(static_cast<uint32_t>(type));
  ++count_;
}

void Metadata::number(std::string_view key, uint32_t value) {
  begin(key, ValueType::u32);
  put(value);
}

void Metadata::number(std::string_view key, float value) {
  begin(key, ValueType::f32);
  put(value);
}

void Metadata::flag(std::string_view key, bool value) {
  begin(key, ValueType::boolean);
  put(static_cast<uint8_t>(value));
}

void Metadata::text(std::string_view key, std::string_view value) {
  begin(key, ValueType::text);
  put_text(value);
}

void Metadata::texts(std::string_view key, std::span<const std::string> values) {
  begin(key, ValueType::array);
  put(static_cast<uint32_t>(ValueType::text));
  put(uint64_t{values.size()});
  for (const std::string& value : values) {
    put_text(value);
  }
}

template <class T>
void Metadata::put_array(std::string_view key, ValueType item, std::span<const T> values) {
  begin(key, ValueType::array);
  put(static_cast<uint32_t>(item));
  put(uint64_t{values.size()});
  for (const T value : values) {
    put(value);
  }
}

void Metadata::numbers(std::string_view key, std::span<const int32_t> values) {
  put_array(key, ValueType::i32, values);
}

void Metadata::numbers(std::string_view key, std::span<const float> values) {
  put_array(key, ValueType::f32, values);
}

void Metadata::numbers(std::string_view key, std::span<const uint8_t> values) {
  put_array(key, ValueType::u8, values);
}

void Metadata::copy(const Entry& entry) {
  bytes_.insert(bytes_.end(), entry.bytes.begin(), entry.bytes.end());
  ++count_;
}

std::vector<std::byte> header_of(const Metadata& metadata, std::span<const WrittenTensor> tensors) {
  std::vector<std::byte> out;
  for (const char c : {'G', 'G', 'U', 'F'}) {
    out.push_back(static_cast<std::byte>(c));
  }
  append(out, uint32_t{3});
  append(out, uint64_t{tensors.size()});
  append(out, metadata.count());
  out.insert(out.end(), metadata.bytes().begin(), metadata.bytes().end());
  uint64_t offset = 0;
  for (const WrittenTensor& tensor : tensors) {
    append_text(out, tensor.name);
    append(out, static_cast<uint32_t>(tensor.shape.size()));
    for (size_t i = tensor.shape.size(); i > 0; --i) {
      append(out, static_cast<uint64_t>(tensor.shape[i - 1]));
    }
    append(out, tensor.type->number);
    append(out, offset);
    offset += tensor.bytes + padding_behind(tensor.bytes);
  }
  out.resize(out.size() + padding_behind(out.size()));
  return out;
}

std::vector<std::byte> excerpt(const File& file, std::string_view prefix,
                               std::string_view without) {
  Metadata metadata;
  for (const Entry& entry : file.entries) {
    if (entry.key.starts_with(prefix) && entry.key != without) {
      metadata.copy(entry);
    }
  }
  return metadata.count() == 0 ? std::vector<std::byte>() : header_of(metadata, {});
}

}  // namespace bowline::gguf
