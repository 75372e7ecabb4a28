#include "gguf/values.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/escape.h"
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
  // Decodes elements [first, first + count) of a row of the file.
  template <class Put>
  void decode(const std::byte* row, uint64_t first, uint64_t count, const Put& put) const {
    float block[kMostBlock];
    for (uint64_t i = 0; i < count;) {
      const uint64_t at = first + i;
      const uint64_t skipped = at % type->block;
      const uint64_t n = std::min<uint64_t>(type->block - skipped, count - i);
      type->decode(row + at / type->block * type->bytes, block);
      put(i, std::span<const float>(block + skipped, n));
      i += n;
    }
  }
};

// Calls `piece(row, first byte in the row, bytes)` for each part of a byte range over rows of
// `row_bytes`.
template <class Piece>
void for_rows(uint64_t first, std::span<std::byte> out, uint64_t row_bytes, const Piece& piece) {
  for (uint64_t done = 0; done < out.size();) {
    const uint64_t at = first + done;
    const uint64_t inside = at % row_bytes;
    const uint64_t n = std::min<uint64_t>(row_bytes - inside, out.size() - done);
    piece(at / row_bytes, inside, out.subspan(done, n));
    done += n;
  }
}

void copy_rows(const Rows& rows, uint64_t first, std::span<std::byte> out) {
  for_rows(first, out, rows.stored, [&](uint64_t row, uint64_t inside, std::span<std::byte> to) {
    std::memcpy(to.data(), rows.row(row) + inside, to.size());
  });
}

// A byte range may start and end inside of an element.
void put_floats(std::span<const float> from, uint64_t skipped, std::span<std::byte> to) {
  std::memcpy(to.data(), std::as_bytes(from).data() + skipped, to.size());
}

void decode_rows(const Rows& rows, uint64_t first, std::span<std::byte> out) {
  for_rows(
      first, out, rows.columns * sizeof(float),
      [&](uint64_t row, uint64_t inside, std::span<std::byte> to) {
        const uint64_t from = inside / sizeof(float);
        const uint64_t end = (inside + to.size() + sizeof(float) - 1) / sizeof(float);
        uint64_t skipped = inside % sizeof(float);
        uint64_t done = 0;
        rows.decode(rows.row(row), from, end - from, [&](uint64_t, std::span<const float> block) {
          const uint64_t n = std::min<uint64_t>(block.size_bytes() - skipped, to.size() - done);
          put_floats(block, skipped, to.subspan(done, n));
          done += n;
          skipped = 0;
        });
      });
}

// Output element (i, o) is element (o, i) of the file. Each column of the file is read once per
// byte range, in whole blocks. `Element` is the type of the output.
template <class Element, class Column>
void transpose(const Rows& rows, uint64_t first, std::span<std::byte> out, const Column& column) {
  const uint64_t size = sizeof(Element);
  const uint64_t begin = first / size;
  const uint64_t end = (first + out.size() + size - 1) / size;
  for (uint64_t o = 0; o < rows.rows; ++o) {
    // Smallest i with i * rows + o inside [begin, end), and the number of such i.
    const uint64_t i = (begin + rows.rows - 1 - o) / rows.rows;
    if (i * rows.rows + o >= end) {
      continue;
    }
    const uint64_t count = (end - 1 - o) / rows.rows - i + 1;
    column(o, i, count, [&](uint64_t k, Element value) {
      const uint64_t place = ((i + k) * rows.rows + o) * size;
      const uint64_t from = std::max(place, first);
      const uint64_t to = std::min<uint64_t>(place + size, first + out.size());
      std::memcpy(out.data() + (from - first),
                  reinterpret_cast<const std::byte*>(&value) + (from - place), to - from);
    });
  }
}

void transpose_numbers(const Rows& rows, uint64_t first, std::span<std::byte> out) {
  transpose<float>(rows, first, out, [&](uint64_t o, uint64_t i, uint64_t count, const auto& put) {
    rows.decode(rows.data + o * rows.stored, i, count,
                [&](uint64_t k, std::span<const float> block) {
                  for (uint64_t j = 0; j < block.size(); ++j) {
                    put(k + j, block[j]);
                  }
                });
  });
}

void transpose_16_bits(const Rows& rows, uint64_t first, std::span<std::byte> out) {
  transpose<uint16_t>(rows, first, out,
                      [&](uint64_t o, uint64_t i, uint64_t count, const auto& put) {
                        for (uint64_t k = 0; k < count; ++k) {
                          uint16_t bits = 0;
                          std::memcpy(&bits, rows.data + o * rows.stored + (i + k) * 2, 2);
                          put(k, bits);
                        }
                      });
}

// A byte range may start and end inside of an element.
void less_one(const Rows& rows, uint64_t first, std::span<std::byte> out) {
  constexpr uint64_t kSize = sizeof(float);
  const uint64_t skipped = first % kSize;
  std::vector<float> numbers((skipped + out.size() + kSize - 1) / kSize);
  decode_rows(rows, first - skipped, std::as_writable_bytes(std::span(numbers)));
  std::ranges::transform(numbers, numbers.begin(), [](float x) { return x - 1; });
  put_floats(numbers, skipped, out);
}

bool is_transposed(const Laid& laid) { return laid.order == Order::transposed; }

}  // namespace

bool stays_encoded(const Laid& laid) {
  const TensorType& type = *laid.tensor->type;
  if (laid.order == Order::one_less) {
    return false;
  }
  const bool codes = !is_transposed(laid) && laid.order != Order::numbers;
  return !type.encoding.empty() && (type.block == 1 || codes);
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
  const auto read = laid.order == Order::one_less ? less_one
                    : !is_transposed(laid)        ? (encoded ? copy_rows : decode_rows)
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
