#include "common/npy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/status.h"
#include "common/files.h"

namespace bowline::command {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kMagic = "\x93NUMPY"sv;
constexpr size_t kAlignment = 64;
constexpr size_t kMaxRank = 8;  // of a Tensor

constexpr std::string_view kDescriptors[kDTypes] = {"<f4", "<f2", "<V2", "|i1",
                                                    "|u1", "<i4", "<i8", "|b1"};

struct Header {
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
};

// The header is a Python dictionary of three literals.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : rest_(text) {}

  Result<Header> parse() {
    BOWLINE_TRY(expect('{'));
    while (!take('}')) {
      BOWLINE_TRY_ASSIGN(const std::string_view key, quoted());
      BOWLINE_TRY(expect(':'));
      BOWLINE_TRY(entry(key));
      if (!take(',')) {
        BOWLINE_TRY(expect('}'));
        break;
      }
    }
    skip_spaces();
    BOWLINE_REQUIRE_CODE(rest_.empty(), Code::bad_file, "Text follows the dictionary: \"{}\".",
                         rest_);
    BOWLINE_REQUIRE_CODE(has_descr_ && has_order_ && has_shape_, Code::bad_file,
                         "One of 'descr', 'fortran_order' and 'shape' is missing.");
    BOWLINE_REQUIRE_CODE(!fortran_ || header_.shape.size() < 2, Code::bad_file,
                         "The array is in Fortran order; numpy.ascontiguousarray converts it.");
    return header_;
  }

 private:
  Status entry(std::string_view key) {
    if (key == "descr" && !has_descr_) {
      has_descr_ = true;
      return descriptor();
    }
    if (key == "fortran_order" && !has_order_) {
      has_order_ = true;
      fortran_ = take_word("True");
      BOWLINE_REQUIRE_CODE(fortran_ || take_word("False"), Code::bad_file,
                           "'fortran_order' is neither True nor False.");
      return {};
    }
    if (key == "shape" && !has_shape_) {
      has_shape_ = true;
      return shape();
    }
    return Status(Code::bad_file, fmt::format("Key '{}' is unknown or appears twice.", key));
  }

  Status descriptor() {
    skip_spaces();
    BOWLINE_REQUIRE_CODE(rest_.starts_with('\'') || rest_.starts_with('"'), Code::bad_file,
                         "The elements are records, not numbers.");
    BOWLINE_TRY_ASSIGN(const std::string_view text, quoted());
    BOWLINE_REQUIRE_CODE(!text.starts_with('>'), Code::bad_file,
                         "The elements ('{}') are in big-endian order.", text);
    // '<', '=' and '|' mean the same: the host is little endian, and a single byte has no order.
    const auto same = [&](std::string_view known) {
      return text == known || (text.size() == known.size() && text.substr(1) == known.substr(1) &&
                               "|=<"sv.find(text[0]) != std::string_view::npos);
    };
    const auto* found = std::ranges::find_if(kDescriptors, same);
    BOWLINE_REQUIRE_CODE(
        found != std::end(kDescriptors), Code::bad_file,
        "The dtype '{}' is unknown; known are f4, f2, V2 (bf16), i1, u1, i4, i8 and b1.", text);
    header_.dtype = static_cast<DType>(found - std::begin(kDescriptors));
    return {};
  }

  Status shape() {
    BOWLINE_TRY(expect('('));
    while (!take(')')) {
      skip_spaces();
      int64_t dim = 0;
      const auto [stop, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), dim);
      BOWLINE_REQUIRE_CODE(error == std::errc() && dim >= 0 && header_.shape.size() < kMaxRank,
                           Code::bad_file, "'shape' is not a tuple of at most {} sizes.", kMaxRank);
      rest_.remove_prefix(static_cast<size_t>(stop - rest_.data()));
      header_.shape.push_back(dim);
      if (!take(',')) {
        return expect(')');
      }
    }
    return {};
  }

  Result<std::string_view> quoted() {
    skip_spaces();
    const char quote = rest_.empty() ? '\0' : rest_[0];
    const size_t end =
        quote == '\'' || quote == '"' ? rest_.find(quote, 1) : std::string_view::npos;
    BOWLINE_REQUIRE_CODE(end != std::string_view::npos, Code::bad_file,
                         "A text in quotes is missing at \"{}\".", rest_.substr(0, 20));
    const std::string_view text = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return text;
  }

  void skip_spaces() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\n"), rest_.size()));
  }
  bool take_word(std::string_view word) {
    skip_spaces();
    const bool found = rest_.starts_with(word);
    rest_.remove_prefix(found ? word.size() : 0);
    return found;
  }
  bool take(char c) { return take_word({&c, 1}); }
  Status expect(char c) {
    BOWLINE_REQUIRE_CODE(take(c), Code::bad_file, "'{}' is missing at \"{}\".", c,
                         rest_.substr(0, 20));
    return {};
  }

  std::string_view rest_;
  Header header_;
  bool has_descr_ = false;
  bool has_order_ = false;
  bool has_shape_ = false;
  bool fortran_ = false;
};

// Returns the size of an array in bytes. Errors  bad_argument: it is too large.
Result<uint64_t> bytes_of(DType dtype, std::span<const int64_t> shape) {
  uint64_t bytes = size_of(dtype);
  for (const int64_t dim : shape) {
    const auto n = static_cast<uint64_t>(dim);
    BOWLINE_REQUIRE(dim >= 0 && (n == 0 || bytes <= PTRDIFF_MAX / n),
                    "An array of shape {} is too large.", shape_text(shape));
    bytes *= n;
  }
  return bytes;
}

Result<Array> parse(std::string_view file) {
  BOWLINE_REQUIRE_CODE(file.starts_with(kMagic) && file.size() >= 10, Code::bad_file,
                       "It is not a NumPy array.");
  const auto byte = [&](size_t i) { return static_cast<size_t>(static_cast<uint8_t>(file[i])); };
  const size_t major = byte(6);
  BOWLINE_REQUIRE_CODE(major >= 1 && major <= 3 && byte(7) == 0, Code::bad_file,
                       "It has version {}.{}; 1.0, 2.0 and 3.0 are known.", major, byte(7));
  const size_t begin = major == 1 ? 10 : 12;
  BOWLINE_REQUIRE_CODE(file.size() >= begin, Code::bad_file, "It ends within its header.");
  const size_t length = byte(8) | byte(9) << 8 | (major == 1 ? 0 : byte(10) << 16 | byte(11) << 24);
  BOWLINE_REQUIRE_CODE(length <= file.size() - begin, Code::bad_file,
                       "It has {} bytes; its header alone takes {}.", file.size(), length);
  BOWLINE_TRY_ASSIGN(const Header header, HeaderParser(file.substr(begin, length)).parse());
  BOWLINE_TRY_ASSIGN(const uint64_t bytes, bytes_of(header.dtype, header.shape));
  const std::string_view data = file.substr(begin + length);
  BOWLINE_REQUIRE_CODE(data.size() == bytes, Code::bad_file,
                       "It has {} bytes of data; {}{} takes {}.", data.size(),
                       name_of(header.dtype), shape_text(header.shape), bytes);
  Array array{header.dtype, header.shape, std::vector<std::byte>(data.size())};
  std::ranges::copy(std::as_bytes(std::span(data)), array.bytes.begin());
  return array;
}

std::string header_of(const Array& array) {
  std::string shape;
  for (const int64_t dim : array.shape) {
    shape += fmt::format("{}, ", dim);
  }
  if (array.shape.size() > 1) {
    shape.resize(shape.size() - 2);
  } else if (!shape.empty()) {
    shape.resize(shape.size() - 1);
  }
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
                                 kDescriptors[static_cast<size_t>(array.dtype)], shape);
  const size_t whole =
      (kMagic.size() + 4 + text.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  text.resize(whole - kMagic.size() - 4 - 1, ' ');
  text += '\n';
  const std::string length = {static_cast<char>(text.size() & 0xFF),
                              static_cast<char>(text.size() >> 8)};
  return std::string(kMagic) + std::string("\x01\x00", 2) + length + text;
}

}  // namespace

Result<Array> make_array(DType dtype, std::span<const int64_t> shape) {
  BOWLINE_TRY_ASSIGN(const uint64_t bytes, bytes_of(dtype, shape));
  return Array{dtype, {shape.begin(), shape.end()}, std::vector<std::byte>(bytes)};
}

std::string shape_text(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ","));
}

Result<Array> read_npy(const std::string& path) {
  std::string file;
  BOWLINE_TRY(read_regular("Array", path, PTRDIFF_MAX, [&](std::string_view piece) {
    file += piece;
    return Status();
  }));
  Result<Array> array = parse(file);
  return array.ok() ? std::move(array)
                    : Result<Array>(std::move(array)
                                        .status()
                                        .as(Code::bad_file)
                                        .at(fmt::format("While reading \"{}\".", path)));
}

Status write_npy(const std::string& path, const Array& array) {
  const std::string header = header_of(array);
  const std::span<const std::byte> pieces[] = {std::as_bytes(std::span(header)), array.bytes};
  return write_file(path, pieces);
}

}  // namespace bowline::command
