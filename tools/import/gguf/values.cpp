#include "gguf/values.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/escape.h"
#include "base/formats.h"
#include "base/status.h"

namespace bowline::gguf {
namespace {

// A tensor as rows. A vector with reordered heads has rows of one element.
struct Rows {
  const TensorType* type;
  const std::byte* data;
  uint64_t rows;
  uint64_t columns;
  uint64_t stored;    // bytes of a row
  uint64_t head_dim;  // 0: the row order is unchanged

  explicit Rows(const Laid& laid) : type(laid.tensor->type), data(laid.tensor->bytes.data()) {
    const std::vector<int64_t>& shape = laid.tensor->shape;
    const bool heads = laid.order == Order::query_heads || laid.order == Order::key_heads;
    const bool column = heads && shape.size() == 1;
    columns = column ? 1 : static_cast<uint64_t>(shape.back());
    rows = 1;
    for (size_t i = 0; i + (column ? 0 : 1) < shape.size(); ++i) {
      rows *= static_cast<uint64_t>(shape[i]);
    }
    stored = columns / type->block * type->bytes;
    head_dim = heads ? rows / static_cast<uint64_t>(laid.heads) : 0;
  }

  const std::byte* row(uint64_t i) const {
    return data + (head_dim == 0 ? i : gguf_row(i, head_dim)) * stored;
  }
  // Decodes elements from `first` on of a row of the file.
  void decode(const std::byte* row, uint64_t first, std::span<float> to) const {
    float block[kMostFormatBlock];
    while (!to.empty()) {
      const uint64_t skipped = first % type->block;
      const uint64_t n = std::min<uint64_t>(type->block - skipped, to.size());
      type->decode(row + first / type->block * type->bytes, block);
      std::copy_n(block + skipped, n, to.begin());
      first += n;
      to = to.subspan(n);
    }
  }
};

// Calls `piece(row, first in the row, part)` for each part of a range over rows of `row_size`.
template <class T, class Piece>
void for_rows(uint64_t first, std::span<T> out, uint64_t row_size, const Piece& piece) {
  while (!out.empty()) {
    const uint64_t inside = first % row_size;
    const uint64_t n = std::min<uint64_t>(row_size - inside, out.size());
    piece(first / row_size, inside, out.first(n));
    first += n;
    out = out.subspan(n);
  }
}

// Reads bytes that may start and end inside of an element. `read` fills elements, from an index on.
// Whole elements need no copy of the range.
template <class Element, class Read>
void by_elements(uint64_t first, std::span<std::byte> out, const Read& read) {
  const uint64_t skipped = first % sizeof(Element);
  if (skipped == 0 && out.size() % sizeof(Element) == 0 &&
      reinterpret_cast<uintptr_t>(out.data()) % alignof(Element) == 0) {
    read(first / sizeof(Element),
         std::span(reinterpret_cast<Element*>(out.data()), out.size() / sizeof(Element)));
    return;
  }
  std::vector<Element> elements((skipped + out.size() + sizeof(Element) - 1) / sizeof(Element));
  read(first / sizeof(Element), std::span(elements));
  std::memcpy(out.data(), std::as_bytes(std::span(elements)).data() + skipped, out.size());
}

void copy_rows(const Rows& rows, uint64_t first, std::span<std::byte> out) {
  for_rows(first, out, rows.stored, [&](uint64_t row, uint64_t inside, std::span<std::byte> to) {
    std::memcpy(to.data(), rows.row(row) + inside, to.size());
  });
}

// Decodes all values and subtracts `less`.
template <int less>
void decode_rows(const Rows& rows, uint64_t first, std::span<std::byte> out) {
  by_elements<float>(first, out, [&](uint64_t begin, std::span<float> all) {
    for_rows(begin, all, rows.columns, [&](uint64_t row, uint64_t inside, std::span<float> to) {
      rows.decode(rows.row(row), inside, to);
    });
    if constexpr (less != 0) {
      std::ranges::transform(all, all.begin(), [](float x) { return x - less; });
    }
  });
}

// Output element (i, o) is element (o, i) of the file. Each column of the file is read once per
// byte range, in whole blocks: column(o, i, values) reads elements from i on of row o.
template <class Element, class Column>
void transpose(const Rows& rows, uint64_t first, std::span<std::byte> out, const Column& column) {
  by_elements<Element>(first, out, [&](uint64_t begin, std::span<Element> to) {
    const uint64_t end = begin + to.size();
    for (uint64_t o = 0; o < rows.rows; ++o) {
      // Smallest i with i * rows + o inside [begin, end), and the values of all such i.
      const uint64_t i = (begin + rows.rows - 1 - o) / rows.rows;
      if (i * rows.rows + o >= end) {
        continue;
      }
      std::vector<Element> values((end - 1 - o) / rows.rows - i + 1);
      column(o, i, std::span(values));
      for (uint64_t k = 0; k < values.size(); ++k) {
        to[(i + k) * rows.rows + o - begin] = values[k];
      }
    }
  });
}

void transpose_numbers(const Rows& rows, uint64_t first, std::span<std::byte> out) {
  transpose<float>(rows, first, out, [&](uint64_t o, uint64_t i, std::span<float> to) {
    rows.decode(rows.data + o * rows.stored, i, to);
  });
}

void transpose_16_bits(const Rows& rows, uint64_t first, std::span<std::byte> out) {
  transpose<uint16_t>(rows, first, out, [&](uint64_t o, uint64_t i, std::span<uint16_t> to) {
    std::memcpy(to.data(), rows.data + o * rows.stored + i * 2, to.size_bytes());
  });
}

bool is_transposed(const Laid& laid) { return laid.order == Order::transposed; }

}  // namespace

bool stays_encoded(const Laid& laid) {
  const TensorType& type = *laid.tensor->type;
  if (laid.order == Order::one_less) {
    return false;
  }
  const bool codes = !is_transposed(laid) && laid.order != Order::numbers;
  return type.block == 1 || codes;
}

uint64_t value_bytes(const Laid& laid) {
  const TensorEntry& tensor = *laid.tensor;
  return stays_encoded(laid)
             ? tensor.bytes.size()
             : tensor.bytes.size() / tensor.type->bytes * tensor.type->block * sizeof(float);
}

Status check_laid(const Laid& laid) {
  const std::vector<int64_t>& shape = laid.tensor->shape;
  if (is_transposed(laid)) {
    BOWLINE_REQUIRE_CODE(shape.size() == 2, Code::bad_file,
                         "Tensor \"{}\" has {} axes, not the two of a matrix.",
                         escaped(laid.tensor->name), shape.size());
  } else if (laid.order == Order::query_heads || laid.order == Order::key_heads) {
    BOWLINE_REQUIRE_CODE(
        laid.heads > 0 && laid.heads <= shape[0] / 2 && shape.size() <= 2 &&
            shape[0] % (2 * laid.heads) == 0 &&
            (shape.size() == 2 || laid.tensor->type->block == 1),
        Code::bad_file,
        "The {} rows of tensor \"{}\" are not {} heads with an even number of rows.", shape[0],
        escaped(laid.tensor->name), laid.heads);
  }
  return {};
}

ValueSource values_of(std::shared_ptr<const File> file, const Laid& laid) {
  const bool encoded = stays_encoded(laid);
  const bool halves = laid.tensor->type->bytes == 2;
  const auto read = laid.order == Order::one_less ? decode_rows<1>
                    : !is_transposed(laid)        ? (encoded ? copy_rows : decode_rows<0>)
                                           : (halves ? transpose_16_bits : transpose_numbers);
  return [file = std::move(file), rows = Rows(laid), read, bytes = value_bytes(laid)](
             uint64_t first, std::span<std::byte> out) -> Status {
    BOWLINE_REQUIRE(first <= bytes && out.size() <= bytes - first,
                    "Bytes {} to {} are out of range for a tensor of {} bytes.", first,
                    first + out.size(), bytes);
    if (!out.empty()) {
      read(rows, first, out);
    }
    return {};
  };
}

}  // namespace bowline::gguf
