#include "common/npy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>

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

// The header is a Python dictionary of three literals. read_npy() turns each error into bad_file.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : rest_(text) {}

  // Returns an array without elements.
  Result<Array> parse() {
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
    BOWLINE_REQUIRE(rest_.empty(), "Text follows the dictionary: \"{}\".", rest_);
    BOWLINE_REQUIRE(keys_.size() == 3, "One of 'descr', 'fortran_order' and 'shape' is missing.");
    BOWLINE_REQUIRE(!fortran_ || header_.shape.size() < 2,
                    "The array is in Fortran order; numpy.ascontiguousarray converts it.");
    return header_;
  }

 private:
  Status entry(std::string_view key) {
    const bool is_new = keys_.insert(key).second;
    if (key == "descr" && is_new) {
      return descriptor();
    }
    if (key == "shape" && is_new) {
      return shape();
    }
    BOWLINE_REQUIRE(key == "fortran_order" && is_new, "Key '{}' is unknown or appears twice.", key);
    fortran_ = take_word("True");
    BOWLINE_REQUIRE(fortran_ || take_word("False"), "'fortran_order' is neither True nor False.");
    return {};
  }

  Status descriptor() {
    skip_spaces();
    BOWLINE_REQUIRE(rest_.starts_with('\'') || rest_.starts_with('"'),
                    "The elements are records, not numbers.");
    BOWLINE_TRY_ASSIGN(const std::string_view text, quoted());
    BOWLINE_REQUIRE(!text.starts_with('>'), "The elements ('{}') are in big-endian order.", text);
    // '<', '=' and '|' mean the same: the host is little endian, and a single byte has no order.
    const auto same = [&](std::string_view known) {
      return text == known || (text.size() == known.size() && text.substr(1) == known.substr(1) &&
                               "|=<"sv.find(text[0]) != std::string_view::npos);
    };
    const auto* found = std::ranges::find_if(kDescriptors, same);
    BOWLINE_REQUIRE(
        found != std::end(kDescriptors),
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
      BOWLINE_REQUIRE(error == std::errc() && dim >= 0 && header_.shape.size() < kMaxRank,
                      "'shape' is not a tuple of at most {} sizes.", kMaxRank);
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
    BOWLINE_REQUIRE(end != std::string_view::npos, "A text in quotes is missing at \"{}\".",
                    rest_.substr(0, 20));
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
    BOWLINE_REQUIRE(take(c), "'{}' is missing at \"{}\".", c, rest_.substr(0, 20));
    return {};
  }

  std::string_view rest_;
  Array header_;
  std::set<std::string_view> keys_;
  bool fortran_ = false;
};

Result<Array> parse(std::string_view file) {
  BOWLINE_REQUIRE(file.starts_with(kMagic) && file.size() >= 10, "It is not a NumPy array.");
  const auto byte = [&](size_t i) { return static_cast<size_t>(static_cast<uint8_t>(file[i])); };
  const size_t major = byte(6);
  BOWLINE_REQUIRE(major >= 1 && major <= 3 && byte(7) == 0,
                  "It has version {}.{}; 1.0, 2.0 and 3.0 are known.", major, byte(7));
  const size_t begin = major == 1 ? 10 : 12;
  BOWLINE_REQUIRE(file.size() >= begin, "It ends within its header.");
  const size_t length = byte(8) | byte(9) << 8 | (major == 1 ? 0 : byte(10) << 16 | byte(11) << 24);
  BOWLINE_REQUIRE(length <= file.size() - begin, "It has {} bytes; its header alone takes {}.",
                  file.size(), length);
  BOWLINE_TRY_ASSIGN(Array array, HeaderParser(file.substr(begin, length)).parse());
  BOWLINE_TRY_ASSIGN(const uint64_t bytes, bytes_of(array.dtype, array.shape));
  const auto data = std::as_bytes(std::span(file.substr(begin + length)));
  BOWLINE_REQUIRE(data.size() == bytes, "It has {} bytes of data; {}{} takes {}.", data.size(),
                  name_of(array.dtype), shape_text(array.shape), bytes);
  array.bytes.assign(data.begin(), data.end());
  return array;
}

std::string header_of(const Array& array) {
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}",
                                 kDescriptors[static_cast<size_t>(array.dtype)],
                                 fmt::join(array.shape, ", "), array.shape.size() == 1 ? "," : "");
  const size_t whole =
      (kMagic.size() + 4 + text.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  text.resize(whole - kMagic.size() - 4 - 1, ' ');
  text += '\n';
  const std::string length = {static_cast<char>(text.size() & 0xFF),
                              static_cast<char>(text.size() >> 8)};
  return std::string(kMagic) + std::string("\x01\x00", 2) + length + text;
}

}  // namespace

Result<Array> read_npy(const std::string& path) {
  BOWLINE_TRY_ASSIGN(const std::string file, read_file("Array", path, PTRDIFF_MAX));
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
