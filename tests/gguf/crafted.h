// Builds valid and invalid GGUF files byte by byte.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "gguf/file.h"

namespace bowline::gguf {

struct Crafted {
  std::string bytes;

  template <class T>
  Crafted& put(T value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  Crafted& text(std::string_view text) {
    put(uint64_t{text.size()});
    bytes += text;
    return *this;
  }
  Crafted& head(uint64_t tensors, uint64_t entries, uint32_t version = 3) {
    bytes += "GGUF";
    return put(version).put(tensors).put(entries);
  }
  Crafted& key(std::string_view key, ValueType type) {
    return text(key).put(static_cast<uint32_t>(type));
  }
  Crafted& tensor(std::string_view name, std::initializer_list<uint64_t> dims, uint32_t type,
                  uint64_t offset) {
    text(name).put(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) {
      put(dim);
    }
    return put(type).put(offset);
  }
  // Adds zeros up to the next multiple of 32, and `count` more.
  Crafted& data(size_t count) {
    bytes.resize((bytes.size() + 31) / 32 * 32 + count);
    return *this;
  }
  std::span<const std::byte> span() const {
    return std::as_bytes(std::span(bytes.data(), bytes.size()));
  }
};

}  // namespace bowline::gguf
