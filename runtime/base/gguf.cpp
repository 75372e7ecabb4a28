#include "base/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <string>

#include "base/escape.h"
#include "base/utf8.h"

namespace bowline::gguf {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read as little endian.");

constexpr uint64_t kLeastEntry = 8 + 4 + 1;  // an empty key, a byte
constexpr uint64_t kMostName = 4096;

Result<ValueType> read_value_type(Reader& in) {
  BOWLINE_TRY_ASSIGN(const uint32_t type, in.number<uint32_t>());
  BOWLINE_REQUIRE_CODE(type < kValueTypes, Code::bad_file, "{} is not a value type of GGUF.", type);
  return static_cast<ValueType>(type);
}

Status read_array(Reader& in, Value& out) {
  BOWLINE_TRY_ASSIGN(out.item, read_value_type(in));
  BOWLINE_REQUIRE_CODE(out.item != ValueType::array, Code::bad_file,
                       "Arrays of arrays are not allowed.");
  BOWLINE_TRY_ASSIGN(out.count, in.number<uint64_t>());
  const uint64_t size = size_of(out.item);
  BOWLINE_REQUIRE_CODE(out.count <= in.left() / std::max<uint64_t>(size, 8 * (size == 0)),
                       Code::bad_file, "The array has {} elements, but only {} bytes follow.",
                       out.count, in.left());
  if (size != 0) {
    BOWLINE_TRY_ASSIGN(out.bytes, in.take(out.count * size));
    return {};
  }
  const uint64_t begin = in.at();
  for (uint64_t i = 0; i < out.count; ++i) {
    BOWLINE_TRY(in.sized().status());
  }
  out.bytes = in.since(begin);
  return {};
}

Status read_value(Reader& in, Value& out) {
  BOWLINE_TRY_ASSIGN(out.type, read_value_type(in));
  if (out.type == ValueType::array) {
    return read_array(in, out);
  }
  BOWLINE_TRY_ASSIGN(out.bytes,
                     out.type == ValueType::text ? in.sized() : in.take(size_of(out.type)));
  return {};
}

Status read_entry(Reader& in, Entry& out) {
  const uint64_t begin = in.at();
  BOWLINE_TRY_ASSIGN(out.key, in.name("key"));
  BOWLINE_TRY(
      read_value(in, out.value).at(format("While reading the key \"{}\".", escaped(out.key))));
  out.bytes = in.since(begin);
  return {};
}

Result<uint32_t> read_version(Reader& in) {
  const Result<std::span<const std::byte>> magic = in.take(4);
  BOWLINE_REQUIRE_CODE(magic.ok() && std::memcmp(magic.value().data(), "GGUF", 4) == 0,
                       Code::bad_file, "The file does not begin with \"GGUF\".");
  BOWLINE_TRY_ASSIGN(const uint32_t version, in.number<uint32_t>());
  BOWLINE_REQUIRE_CODE((version & 0xFFFF) != 0, Code::unsupported,
                       "Big-endian files are not supported.");
  BOWLINE_REQUIRE_CODE(version == 2 || version == 3, Code::unsupported,
                       "The file has version {}. Versions 2 and 3 are supported.", version);
  return version;
}

template <class T>
std::optional<T> as(const Value& v, uint64_t i) {
  return load<T>(v.bytes.data() + i * sizeof(T));
}

}  // namespace

uint64_t size_of(ValueType type) {
  constexpr uint64_t sizes[kValueTypes] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return sizes[static_cast<uint32_t>(type)];
}

std::optional<std::string_view> Value::text() const {
  if (type != ValueType::text) {
    return std::nullopt;
  }
  return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

std::vector<std::string_view> Value::texts() const {
  std::vector<std::string_view> out;
  if (type != ValueType::array || item != ValueType::text) {
    return out;
  }
  std::string_view rest(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  while (!rest.empty()) {  // all sizes were checked when the file was parsed
    uint64_t length = 0;
    std::memcpy(&length, rest.data(), sizeof(length));
    out.push_back(rest.substr(sizeof(length), length));
    rest.remove_prefix(sizeof(length) + length);
  }
  return out;
}

std::optional<bool> Value::boolean() const {
  return type == ValueType::boolean ? std::optional(bytes[0] != std::byte{0}) : std::nullopt;
}

std::optional<int64_t> Value::integer(uint64_t i) const {
  if (i >= count) {
    return std::nullopt;
  }
  switch (type == ValueType::array ? item : type) {
    case ValueType::u8:
      return as<uint8_t>(*this, i);
    case ValueType::i8:
      return as<int8_t>(*this, i);
    case ValueType::u16:
      return as<uint16_t>(*this, i);
    case ValueType::i16:
      return as<int16_t>(*this, i);
    case ValueType::u32:
      return as<uint32_t>(*this, i);
    case ValueType::i32:
      return as<int32_t>(*this, i);
    case ValueType::u64: {
      const auto value = load<uint64_t>(bytes.data() + i * 8);
      return value <= INT64_MAX ? std::optional(static_cast<int64_t>(value)) : std::nullopt;
    }
    case ValueType::i64:
      return as<int64_t>(*this, i);
    default:
      return std::nullopt;
  }
}

std::optional<double> Value::real(uint64_t i) const {
  if (i >= count) {
    return std::nullopt;
  }
  switch (type == ValueType::array ? item : type) {
    case ValueType::f32:
      return as<float>(*this, i);
    case ValueType::f64:
      return as<double>(*this, i);
    default:
      return integer(i);
  }
}

Result<std::span<const std::byte>> Reader::take(uint64_t count) {
  BOWLINE_REQUIRE_CODE(count <= left(), Code::bad_file,
                       "The file ends within {} bytes at offset {}: only {} bytes remain.", count,
                       at_, left());
  at_ += count;
  return bytes_.subspan(at_ - count, count);
}

Result<std::span<const std::byte>> Reader::sized() {
  BOWLINE_TRY_ASSIGN(const uint64_t length, number<uint64_t>());
  return take(length);
}

Result<std::string_view> Reader::name(std::string_view what) {
  const uint64_t begin = at_;
  BOWLINE_TRY_ASSIGN(const std::span<const std::byte> from, sized());
  const std::string_view out(reinterpret_cast<const char*>(from.data()), from.size());
  BOWLINE_REQUIRE_CODE(!out.empty() && out.size() <= kMostName, Code::bad_file,
                       "The {} at offset {} has {} bytes, not 1 to {}.", what, begin, out.size(),
                       kMostName);
  for (size_t i = 0; i < out.size();) {
    const size_t length = utf8_length(out.substr(i));
    BOWLINE_REQUIRE_CODE(length != 0, Code::bad_file, "The {} \"{}\" is not valid UTF-8.", what,
                         escaped(out));
    i += length;
  }
  return out;
}

Status Reader::check_count(uint64_t count, uint64_t least, std::string_view what) const {
  BOWLINE_REQUIRE_CODE(count <= left() / least && count <= UINT32_MAX, Code::bad_file,
                       "The file has {} {}, but only {} bytes follow.", count, what, left());
  return {};
}

Result<std::vector<uint32_t>> distinct(std::span<const std::string_view> names,
                                       std::string_view what) {
  std::vector<uint32_t> order(names.size());
  std::iota(order.begin(), order.end(), 0);
  const auto name = [&](uint32_t i) { return names[i]; };
  std::ranges::sort(order, {}, name);
  const auto twice = std::ranges::adjacent_find(order, {}, name);
  BOWLINE_REQUIRE_CODE(twice == order.end(), Code::bad_file, "The file has two {} \"{}\".", what,
                       escaped(names[*twice]));
  return order;
}

Result<Header> Header::read(Reader& in) {
  Header out;
  BOWLINE_TRY_ASSIGN(out.version, read_version(in));
  BOWLINE_TRY_ASSIGN(out.tensor_count, in.number<uint64_t>());
  BOWLINE_TRY_ASSIGN(const uint64_t entries, in.number<uint64_t>());
  BOWLINE_TRY(in.check_count(entries, kLeastEntry, "keys"));
  std::vector<std::string_view> keys;
  for (uint64_t i = 0; i < entries; ++i) {
    BOWLINE_TRY(read_entry(in, out.entries.emplace_back()));
    keys.push_back(out.entries.back().key);
  }
  BOWLINE_TRY_ASSIGN(out.by_key, distinct(keys, "keys"));
  return out;
}

const Entry* Header::find(std::string_view key) const {
  const auto found =
      std::ranges::lower_bound(by_key, key, {}, [&](uint32_t i) { return entries[i].key; });
  return found != by_key.end() && entries[*found].key == key ? &entries[*found] : nullptr;
}

}  // namespace bowline::gguf
