#include "common/text_array.h"

#include <fmt/format.h>

#include <concepts>

#include "base/status.h"
#include "common/files.h"
#include "common/strings.h"

namespace bowline::command {
namespace {

constexpr uint64_t kMostArrayBytes = uint64_t{1} << 30;

template <class T>
bool append(std::string_view word, std::vector<std::byte>& bytes) {
  const auto value = number_in<T>(word);
  if (value) {
    const auto raw = std::as_bytes(std::span(&*value, 1));
    bytes.insert(bytes.end(), raw.begin(), raw.end());
  }
  return value.has_value();
}

// Appends a value. Returns false if the word is not a number of the dtype.
bool append(DType dtype, std::string_view word, std::vector<std::byte>& bytes) {
  return with_zero(dtype, [&]<class T>(T) {
    if constexpr (std::same_as<T, bool>) {
      return (word == "0" || word == "1") && append<uint8_t>(word, bytes);
    } else if constexpr (std::same_as<T, f16> || std::same_as<T, bf16>) {
      return false;
    } else {
      return append<T>(word, bytes);
    }
  });
}

struct Rows {
  std::vector<std::byte> bytes;
  int64_t count = 0;
  int64_t columns = 0;
};

Result<Rows> read_rows(std::string_view text, const std::string& where, DType dtype) {
  constexpr std::string_view kBetween = " \t,\r";
  Rows rows;
  uint64_t line = 1;
  size_t line_begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_of("\n;", at), text.size());
    int64_t columns = 0;
    for (;;) {
      at = std::min(text.find_first_not_of(kBetween, at), end);
      if (at == end) {
        break;
      }
      const size_t stop = std::min(text.find_first_of(kBetween, at), end);
      const std::string_view word = text.substr(at, stop - at);
      BOWLINE_REQUIRE_CODE(append(dtype, word, rows.bytes), Code::bad_file,
                           "{}:{}:{}: \"{}\" is not a value of {}.", where, line,
                           at - line_begin + 1, word, name_of(dtype));
      ++columns;
      at = stop;
    }
    if (columns > 0) {
      BOWLINE_REQUIRE_CODE(rows.count == 0 || columns == rows.columns, Code::bad_file,
                           "{}:{}: the row has {} numbers, the first one {}.", where, line, columns,
                           rows.columns);
      rows.columns = columns;
      ++rows.count;
    }
    if (end < text.size() && text[end] == '\n') {
      ++line;
      line_begin = end + 1;
    }
    at = end + 1;
  }
  BOWLINE_REQUIRE_CODE(rows.count > 0, Code::bad_file, "{} has no numbers.", where);
  return rows;
}

// Returns the shape of an array that consists of these rows and columns.
Result<std::vector<int64_t>> shape_of(const Rows& rows, const std::string& where,
                                      std::vector<int64_t> shape) {
  const size_t rank = shape.size();
  const auto no_fit = [&] {
    return Status(
        Code::bad_file,
        fmt::format("{} has {} rows of {} numbers, which cannot form an array of rank {}.", where,
                    rows.count, rows.columns, rank));
  };
  if (rank == 0) {
    return rows.count == 1 && rows.columns == 1 ? Result(shape) : no_fit();
  }
  if (rank == 1) {
    shape[0] = rows.count * rows.columns;
    return rows.count == 1 || rows.columns == 1 ? Result(shape) : no_fit();
  }
  int64_t between = 1;
  for (size_t axis = 1; axis + 1 < rank; ++axis) {
    BOWLINE_REQUIRE_CODE(
        shape[axis] > 0, Code::bad_argument,
        "{} does not determine the size of axis {}. Set its dimension with --dim NAME=N.", where,
        axis);
    between = shape[axis] > rows.count ? rows.count + 1 : between * shape[axis];
    if (between > rows.count) {
      return no_fit();
    }
  }
  shape.back() = rows.columns;
  shape[0] = rows.count / between;
  return rows.count % between == 0 ? Result(shape) : no_fit();
}

std::string number_text(const Array& array, size_t i) {
  return with_zero(array.dtype, [&]<class T>(T) {
    if constexpr (std::integral<T>) {
      return fmt::format("{}", int64_t{element<T>(array, i)});
    } else {
      return fmt::format("{}", to_f32(element<T>(array, i)));
    }
  });
}

}  // namespace

Result<Array> parse_text_array(std::string_view text, const std::string& where,
                               const TextShape& shape) {
  BOWLINE_REQUIRE_CODE(shape.dtype != DType::f16 && shape.dtype != DType::bf16, Code::unsupported,
                       "{}: Values of dtype {} can be read only from .npy files.", where,
                       name_of(shape.dtype));
  BOWLINE_TRY_ASSIGN(Rows rows, read_rows(text, where, shape.dtype));
  BOWLINE_TRY_ASSIGN(std::vector<int64_t> sizes, shape_of(rows, where, shape.shape));
  return Array{shape.dtype, std::move(sizes), std::move(rows.bytes)};
}

Result<Array> read_text_array(const std::string& path, const TextShape& shape) {
  BOWLINE_TRY_ASSIGN(const std::string text, read_file("Array", path, kMostArrayBytes));
  return parse_text_array(text, path, shape);
}

Status write_text_array(const std::string& path, const Array& array) {
  const size_t columns = array.shape.empty() ? 1 : static_cast<size_t>(array.shape.back());
  std::string text;
  for (size_t i = 0; i < array.elements(); ++i) {
    text += number_text(array, i);
    text += (i + 1) % columns == 0 ? '\n' : ' ';
  }
  return write_text(path, text);
}

bool is_text_path(std::string_view path) { return path.ends_with(".txt"); }

}  // namespace bowline::command
