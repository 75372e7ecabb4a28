#include "gguf/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>

#include "base/escape.h"
#include "base/status.h"

namespace bowline::gguf {
namespace {

constexpr uint64_t kLeastTensor = 8 + 4 + 8 + 4 + 8;  // an empty name, one dim
constexpr uint32_t kMostRank = 4;
constexpr uint64_t kMostAlignment = uint64_t{1} << 20;

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

}  // namespace

Result<File> File::parse(std::span<const std::byte> bytes) {
  Reader in(bytes);
  BOWLINE_TRY_ASSIGN(Header metadata, Header::read(in));
  File out(std::move(metadata));
  out.bytes = bytes;
  BOWLINE_TRY(in.check_count(out.tensor_count, kLeastTensor, "tensors"));
  BOWLINE_TRY_ASSIGN(out.alignment, alignment_of(out));
  std::vector<Placed> placed;
  std::vector<std::string_view> names;
  for (uint64_t i = 0; i < out.tensor_count; ++i) {
    BOWLINE_TRY(read_tensor(in, placed.emplace_back()));
    names.push_back(placed.back().tensor.name);
  }
  BOWLINE_TRY(distinct(names, "tensors").status());
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
  BOWLINE_TRY(Status(parsed.status()).at(fmt::format("While reading \"{}\" as GGUF.", path)));
  auto out = std::make_shared<File>(std::move(parsed).value());
  out->mapping_ = mapping;
  return std::shared_ptr<const File>(std::move(out));
}

}  // namespace bowline::gguf
