#include "gguf/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/bytes.h"
#include "base/escape.h"
#include "base/float16.h"
#include "base/status.h"
#include "base/utf8.h"

namespace bowline::gguf {
namespace {

constexpr uint64_t kLeastEntry = 8 + 4 + 1;           // an empty key, a byte
constexpr uint64_t kLeastTensor = 8 + 4 + 8 + 4 + 8;  // an empty name, one dim
constexpr uint32_t kMostRank = 4;
constexpr uint64_t kMostAlignment = uint64_t{1} << 20;
constexpr uint64_t kMostName = 4096;

// Reads from the start of the file. Every length is checked against the remaining bytes.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  uint64_t at() const { return at_; }
  uint64_t left() const { return bytes_.size() - at_; }
  std::span<const std::byte> since(uint64_t begin) const {
    return bytes_.subspan(begin, at_ - begin);
  }

  Result<std::span<const std::byte>> take(uint64_t count) {
    BOWLINE_REQUIRE_CODE(count <= left(), Code::bad_file,
                         "The file ends within {} bytes at offset {}: only {} bytes remain.", count,
                         at_, left());
    at_ += count;
    return bytes_.subspan(at_ - count, count);
  }
  template <class T>
  Result<T> number() {
    BOWLINE_TRY_ASSIGN(const std::span<const std::byte> from, take(sizeof(T)));
    return load<T>(from.data());
  }
  Result<std::span<const std::byte>> sized() {
    BOWLINE_TRY_ASSIGN(const uint64_t length, number<uint64_t>());
    return take(length);
  }
  // Reads a key or tensor name.
  Result<std::string_view> name(std::string_view what) {
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

 private:
  std::span<const std::byte> bytes_;
  uint64_t at_ = 0;
};

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
      read_value(in, out.value).at(fmt::format("While reading the key \"{}\".", escaped(out.key))));
  out.bytes = in.since(begin);
  return {};
}

// A tensor with its offset in the data, before the data is located.
struct Placed {
  TensorEntry tensor;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

Status read_shape(Reader& in, Placed& out) {
  BOWLINE_TRY_ASSIGN(const uint32_t rank, in.number<uint32_t>());
  BOWLINE_REQUIRE_CODE(rank >= 1 && rank <= kMostRank, Code::bad_file,
                       "The rank is {}, not 1 to {}.", rank, kMostRank);
  uint64_t elements = 1;
  out.tensor.shape.resize(rank);
  for (uint32_t i = 0; i < rank; ++i) {
    BOWLINE_TRY_ASSIGN(const uint64_t dim, in.number<uint64_t>());
    BOWLINE_REQUIRE_CODE(
        dim >= 1 && dim <= INT64_MAX && !__builtin_mul_overflow(elements, dim, &elements) &&
            elements <= INT64_MAX,
        Code::bad_file, "Dim {} is {}, which is zero or makes too many elements.", i, dim);
    out.tensor.shape[rank - 1 - i] = static_cast<int64_t>(dim);
  }
  BOWLINE_TRY_ASSIGN(const uint32_t number, in.number<uint32_t>());
  out.tensor.type = find_tensor_type(number);
  BOWLINE_REQUIRE_CODE(out.tensor.type != nullptr, Code::unsupported,
                       "The tensor type {} is not supported. Supported: {}.",
                       tensor_type_name(number), known_tensor_types());
  const TensorType& type = *out.tensor.type;
  const int64_t columns = out.tensor.shape.back();
  BOWLINE_REQUIRE_CODE(columns % type.block == 0, Code::bad_file,
                       "Rows of {} are not a multiple of the block size {} of {}.", columns,
                       type.block, type.name);
  BOWLINE_REQUIRE_CODE(!__builtin_mul_overflow(elements / type.block, type.bytes, &out.bytes),
                       Code::bad_file, "The size of {} elements in bytes overflows.", elements);
  BOWLINE_TRY_ASSIGN(out.offset, in.number<uint64_t>());
  return {};
}

Status read_tensor(Reader& in, Placed& out) {
  BOWLINE_TRY_ASSIGN(out.tensor.name, in.name("name of a tensor"));
  return read_shape(in, out).at(
      fmt::format("While reading tensor \"{}\".", escaped(out.tensor.name)));
}

// Locates the bytes of each tensor. All must be inside the file. Two tensors must not overlap, or
// must have the same offset and format, which is a tie.
Status place_tensors(std::vector<Placed>& placed, std::span<const std::byte> data,
                     uint64_t alignment) {
  std::vector<Placed*> order;
  for (Placed& p : placed) {
    BOWLINE_REQUIRE_CODE(p.offset % alignment == 0, Code::bad_file,
                         "The offset {} of tensor \"{}\" is not a multiple of {}.", p.offset,
                         escaped(p.tensor.name), alignment);
    BOWLINE_REQUIRE_CODE(p.offset <= data.size() && p.bytes <= data.size() - p.offset,
                         Code::bad_file,
                         "Tensor \"{}\" has {} bytes at offset {}, but the data has only {} bytes.",
                         escaped(p.tensor.name), p.bytes, p.offset, data.size());
    p.tensor.bytes = data.subspan(p.offset, p.bytes);
    order.push_back(&p);
  }
  std::ranges::sort(order, {}, &Placed::offset);
  for (size_t i = 1; i < order.size(); ++i) {
    const bool tied = order[i]->offset == order[i - 1]->offset &&
                      order[i]->tensor.type == order[i - 1]->tensor.type &&
                      order[i]->tensor.shape == order[i - 1]->tensor.shape;
    const bool apart = order[i]->offset - order[i - 1]->offset >= order[i - 1]->bytes;
    BOWLINE_REQUIRE_CODE(tied || apart, Code::bad_file,
                         "Tensors \"{}\" and \"{}\" overlap in the file.",
                         escaped(order[i - 1]->tensor.name), escaped(order[i]->tensor.name));
  }
  return {};
}

// Returns the indices of the items, sorted by name.
template <class Items, class Name>
Result<std::vector<uint32_t>> ordered(const Items& items, Name name, std::string_view what) {
  std::vector<uint32_t> order(items.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](uint32_t i) { return name(items[i]); });
  const auto twice =
      std::ranges::adjacent_find(order, {}, [&](uint32_t i) { return name(items[i]); });
  BOWLINE_REQUIRE_CODE(twice == order.end(), Code::bad_file, "The file has two {} \"{}\".", what,
                       escaped(name(items[*twice])));
  return order;
}

Status check_count(const Reader& in, uint64_t count, uint64_t least, std::string_view what) {
  BOWLINE_REQUIRE_CODE(count <= in.left() / least && count <= UINT32_MAX, Code::bad_file,
                       "The file has {} {}, but only {} bytes follow.", count, what, in.left());
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

Result<uint64_t> alignment_of(const File& file) {
  const Entry* const entry = file.find("general.alignment");
  if (entry == nullptr) {
    return file.alignment;
  }
  const int64_t value = entry->value.integer().value_or(0);
  BOWLINE_REQUIRE_CODE(value > 0 && value <= static_cast<int64_t>(kMostAlignment) &&
                           std::has_single_bit(static_cast<uint64_t>(value)),
                       Code::bad_file, "The alignment is {}, not a power of two up to {}.", value,
                       kMostAlignment);
  return static_cast<uint64_t>(value);
}

struct Mapping {
  void* data = MAP_FAILED;
  size_t bytes = 0;
  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (data != MAP_FAILED) {
      munmap(data, bytes);
    }
  }
};

// O_NONBLOCK and the checks below: opening never waits for another process and never touches a
// device.
Status map_file(const std::string& path, Mapping& out) {
  const auto refused = [&](const std::string& why) {
    return Status(Code::io_error, fmt::format("File \"{}\" {}.", path, why));
  };
  struct stat info {};
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return refused("is not a regular file");
  }
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0) {
    return refused(fmt::format("cannot be opened: {}", std::strerror(errno)));
  }
  const bool regular = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  out.bytes = regular ? static_cast<size_t>(info.st_size) : 0;
  if (out.bytes > 0) {
    out.data = mmap(nullptr, out.bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  }
  const int error = errno;
  ::close(fd);
  if (!regular || out.bytes == 0) {
    return refused(regular ? "is empty" : "is not a regular file");
  }
  return out.data != MAP_FAILED
             ? Status()
             : refused(fmt::format("cannot be mapped: {}", std::strerror(error)));
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

Result<File> File::parse(std::span<const std::byte> bytes) {
  File out;
  out.bytes = bytes;
  Reader in(bytes);
  BOWLINE_TRY_ASSIGN(out.version, read_version(in));
  BOWLINE_TRY_ASSIGN(const uint64_t tensors, in.number<uint64_t>());
  BOWLINE_TRY_ASSIGN(const uint64_t entries, in.number<uint64_t>());
  BOWLINE_TRY(check_count(in, entries, kLeastEntry, "keys"));
  BOWLINE_TRY(check_count(in, tensors, kLeastTensor, "tensors"));
  for (uint64_t i = 0; i < entries; ++i) {
    BOWLINE_TRY(read_entry(in, out.entries.emplace_back()));
  }
  BOWLINE_TRY_ASSIGN(out.by_key_, ordered(
                                      out.entries, [](const Entry& e) { return e.key; }, "keys"));
  BOWLINE_TRY_ASSIGN(out.alignment, alignment_of(out));
  std::vector<Placed> placed;
  for (uint64_t i = 0; i < tensors; ++i) {
    BOWLINE_TRY(read_tensor(in, placed.emplace_back()));
  }
  BOWLINE_TRY(ordered(
                  placed, [](const Placed& p) { return p.tensor.name; }, "tensors")
                  .status());
  const uint64_t begin = (in.at() + out.alignment - 1) / out.alignment * out.alignment;
  BOWLINE_TRY(
      place_tensors(placed, bytes.subspan(std::min<uint64_t>(begin, bytes.size())), out.alignment));
  for (Placed& p : placed) {
    out.tensors.push_back(std::move(p.tensor));
  }
  return out;
}

Result<std::shared_ptr<const File>> File::open(const std::string& path) {
  const auto mapping = std::make_shared<Mapping>();
  BOWLINE_TRY(map_file(path, *mapping));
  Result<File> parsed = parse({static_cast<const std::byte*>(mapping->data), mapping->bytes});
  if (!parsed.ok()) {
    return std::move(parsed).status().at(fmt::format("While reading \"{}\" as GGUF.", path));
  }
  auto out = std::make_shared<File>(std::move(parsed).value());
  out->mapping_ = mapping;
  return std::shared_ptr<const File>(std::move(out));
}

const Entry* File::find(std::string_view key) const {
  const auto found =
      std::ranges::lower_bound(by_key_, key, {}, [&](uint32_t i) { return entries[i].key; });
  return found != by_key_.end() && entries[*found].key == key ? &entries[*found] : nullptr;
}

}  // namespace bowline::gguf
