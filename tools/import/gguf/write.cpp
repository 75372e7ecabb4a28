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

void Metadata::begin(std::string_view key, ValueType type) {
  append_text(bytes_, key);
  append(bytes_, static_cast<uint32_t>(type));
  ++count_;
}

template <class T>
void Metadata::put(std::string_view key, ValueType type, T value) {
  begin(key, type);
  append(bytes_, value);
}

void Metadata::number(std::string_view key, uint32_t value) { put(key, ValueType::u32, value); }
void Metadata::number(std::string_view key, float value) { put(key, ValueType::f32, value); }
void Metadata::flag(std::string_view key, bool value) {
  put(key, ValueType::boolean, static_cast<uint8_t>(value));
}

void Metadata::text(std::string_view key, std::string_view value) {
  begin(key, ValueType::text);
  append_text(bytes_, value);
}

template <class T, class Put>
void Metadata::put_array(std::string_view key, ValueType item, std::span<const T> values,
                         const Put& put_item) {
  put(key, ValueType::array, static_cast<uint32_t>(item));
  append(bytes_, uint64_t{values.size()});
  for (const T& value : values) {
    put_item(bytes_, value);
  }
}

void Metadata::texts(std::string_view key, std::span<const std::string> values) {
  put_array(key, ValueType::text, values, append_text);
}
void Metadata::numbers(std::string_view key, std::span<const int32_t> values) {
  put_array(key, ValueType::i32, values, append<int32_t>);
}
void Metadata::numbers(std::string_view key, std::span<const float> values) {
  put_array(key, ValueType::f32, values, append<float>);
}
void Metadata::numbers(std::string_view key, std::span<const uint8_t> values) {
  put_array(key, ValueType::u8, values, append<uint8_t>);
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
