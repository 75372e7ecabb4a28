#include "core/encoding.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstring>

#include "core/checked.h"
#include "core/code_rows.h"
#include "core/encoding_check.h"
#include "core/float16.h"
#include "core/strides.h"

namespace bowline {

struct EncodingForm {
  const char* name;
  Encoding usual;  // what parse_encoding() begins with
  Status (*check)(const Encoding& e, DType dtype, const Shape& shape);
  uint64_t (*bytes)(const Encoding& e, DType dtype, const Shape& shape);
  Status (*check_view)(const Encoding& e, const View& view, const Shape& shape);
  void (*decode)(const Encoding& e, std::span<const std::byte> from, DType dtype,
                 const Shape& shape, ElementRun run, std::span<float> to);
  void (*encode)(const Encoding& e, std::span<const float> from, DType dtype, const Shape& shape,
                 std::span<std::byte> to);
  std::optional<CodeLayout> (*layout)(const Encoding& e, const Shape& shown);
  CodePlace (*place)(const Encoding& e, DType dtype, const Shape& shape, uint64_t first);
  double steps = 0;           // from 0 to the largest magnitude of a symmetric block
  double steps_of_range = 0;  // from the least to the largest value of a block with a zero point
  double most_wrong = 0;      // error of a value, in steps
};

namespace {

float load_float(const std::byte* from, DType dtype) {
  const auto as = [from]<class T>(T value) {
    std::memcpy(&value, from, sizeof(value));
    return to_f32(value);
  };
  return dtype == DType::f16 ? as(f16()) : dtype == DType::bf16 ? as(bf16()) : as(float());
}

void store_float(float x, std::byte* to, DType dtype) {
  const auto as = [to](auto value) { std::memcpy(to, &value, sizeof(value)); };
  dtype == DType::f16 ? as(from_f32<f16>(x)) : dtype == DType::bf16 ? as(from_f32<bf16>(x)) : as(x);
}

float next_above(float x, DType dtype) {
  const auto above = [x]<class T>(T h) {
    h = from_f32<T>(x);
    ++h.bits;
    return to_f32(h);
  };
  return dtype == DType::f16    ? above(f16())
         : dtype == DType::bf16 ? above(bf16())
                                : std::nextafter(x, INFINITY);
}

// Stores the scale of a block that spans `steps` steps of `exact`, and returns the stored scale.
// Rounds to nearest, or up where the codes would end more than `spare` steps before the values.
// A scale that is not finite is stored as 0.
float store_scale(double exact, double steps, double spare, std::byte* to, DType dtype) {
  const auto stored = [to, dtype](float scale) {
    store_float(scale, to, dtype);
    return load_float(to, dtype);
  };
  float scale = stored(static_cast<float>(exact));
  if (exact * steps > scale * (steps + spare)) {
    scale = stored(next_above(scale, dtype));
  }
  return std::isfinite(scale) ? scale : stored(0);
}
// Symmetric codes round the largest value to the last one; a zero point is rounded too.
constexpr double kSpare = 0.5;
constexpr double kSpareOfRange = 1.0 / 64;

// ------------------------------------------------------------------------------------------- plain

Status check_plain(const Encoding& e, DType, const Shape&) {
  BOWLINE_REQUIRE(e == Encoding(), "The encoding \"plain\" has parameters.");
  return {};
}

uint64_t bytes_plain(const Encoding&, DType dtype, const Shape& shape) {
  return static_cast<uint64_t>(shape.elements()) * size_of(dtype);
}

Status check_view_plain(const Encoding&, const View&, const Shape&) { return {}; }

void decode_plain(const Encoding&, std::span<const std::byte> from, DType dtype, const Shape&,
                  ElementRun run, std::span<float> to) {
  for (size_t i = 0; i < to.size(); ++i) {
    to[i] = load_float(from.data() + (static_cast<size_t>(run.first) + i) * size_of(dtype), dtype);
  }
}

void encode_plain(const Encoding&, std::span<const float> from, DType dtype, const Shape&,
                  std::span<std::byte> to) {
  for (size_t i = 0; i < from.size(); ++i) {
    store_float(from[i], to.data() + i * size_of(dtype), dtype);
  }
}

std::optional<CodeLayout> layout_plain(const Encoding&, const Shape&) { return std::nullopt; }

CodePlace place_plain(const Encoding&, DType dtype, const Shape&, uint64_t first) {
  return {first * size_of(dtype), 0, 0};
}

// -------------------------------------------------------------------------------- int8, and blocks

// Elements of a row; a number is a row of itself.
uint64_t columns_of(const Shape& shape) {
  return shape.rank() == 0 ? 1 : static_cast<uint64_t>(shape.back());
}

// How the elements of a tensor fall into blocks: outer x length x inner elements, the middle one
// cut into blocks.
struct Blocks {
  int64_t outer = 1;
  int64_t length = 1;
  int64_t inner = 1;
  int64_t size = 1;  // of a block along the middle
  int64_t per_line = 1;

  Blocks(const Encoding& e, const Shape& shape) {
    if (e.block == 0) {
      length = shape.elements();
      size = std::max<int64_t>(length, 1);
    } else {
      const int axis = positive_axis(e.axis, shape.rank());
      outer = shape.elements(0, axis);
      length = shape[axis];
      inner = shape.elements(axis + 1, shape.rank());
      size = e.block;
    }
    per_line = (length + size - 1) / size;
  }
  int64_t count() const { return outer * per_line * inner; }
  int64_t block_of(int64_t element) const {
    const int64_t at = element / inner % length;
    return (element / (inner * length) * per_line + at / size) * inner + element % inner;
  }
};

// Where the parts of an int8 storage lie.
struct Int8Layout {
  uint64_t scales;
  uint64_t zeros;
  uint64_t bytes;

  Int8Layout(const Encoding& e, const Shape& shape) {
    const uint64_t scale = size_of(e.scale_type);
    const auto count = static_cast<uint64_t>(Blocks(e, shape).count());
    scales = round_up(static_cast<uint64_t>(shape.elements()), scale);
    zeros = scales + count * scale;
    bytes = zeros + (e.symmetric ? 0 : count);
  }
};

Status check_int8(const Encoding& e, DType dtype, const Shape& shape) {
  BOWLINE_REQUIRE(is_float(dtype), "A storage of {} cannot be int8: it stands for floats.", dtype);
  BOWLINE_REQUIRE(is_float(e.scale_type), "The scales of int8 are {}, not floats.", e.scale_type);
  if (e.block == 0) {
    BOWLINE_REQUIRE(e.axis == -1, "The encoding \"int8\" has an axis ({}) but no block.", e.axis);
    return {};
  }
  BOWLINE_REQUIRE(e.axis >= -shape.rank() && e.axis < shape.rank(),
                  "Axis {} of the encoding lies outside the rank ({}).", e.axis, shape.rank());
  const int64_t length = shape[positive_axis(e.axis, shape.rank())];
  BOWLINE_REQUIRE(std::cmp_less_equal(e.block, length),
                  "A block of {} is longer than axis {} of {}.", e.block, e.axis, shape);
  return {};
}

uint64_t bytes_int8(const Encoding& e, DType, const Shape& shape) {
  return Int8Layout(e, shape).bytes;
}

Status check_view_blocks(const Encoding& e, const View& view, const Shape& shape) {
  BOWLINE_TRY_ASSIGN(const Shape shown, view_shape(view, shape));
  const ElementRun run = view_run(view, shape);
  const Blocks b(e, shape);
  const int axis = positive_axis(e.axis, shape.rank());
  BOWLINE_REQUIRE(!view.transpose, "A view cannot transpose blocks along axis {}.", e.axis);
  BOWLINE_REQUIRE(view.shape.empty() || shown.back() == shape.back() || axis < shape.rank() - 1,
                  "A view cannot reshape the axis along which blocks of {} lie.", e.block);
  BOWLINE_REQUIRE(view.shape.empty() || axis == shape.rank() - 1,
                  "A view cannot reshape blocks along axis {}.", e.axis);
  const int64_t rows = run.first + run.count == shape.elements() ? 0 : run.first + run.count;
  const int64_t line = b.inner * b.size;  // elements from one block of axis 0 to the next
  BOWLINE_REQUIRE(axis != 0 || (run.first % line == 0 && rows % line == 0),
                  "A view of rows begins or ends inside a block of {} along axis 0.", e.block);
  return {};
}

Status check_view_int8(const Encoding& e, const View& view, const Shape& shape) {
  // Every element of one block has the scale of the tensor.
  return Blocks(e, shape).count() <= 1 ? view_shape(view, shape).status()
                                       : check_view_blocks(e, view, shape);
}

void decode_int8(const Encoding& e, std::span<const std::byte> from, DType, const Shape& shape,
                 ElementRun run, std::span<float> to) {
  const Blocks blocks(e, shape);
  const Int8Layout at(e, shape);
  for (size_t i = 0; i < to.size(); ++i) {
    const int64_t element = run.first + static_cast<int64_t>(i);
    const auto block = static_cast<size_t>(blocks.block_of(element));
    const auto code = static_cast<int8_t>(from[static_cast<size_t>(element)]);
    const int zero = e.symmetric ? 0 : static_cast<int8_t>(from[at.zeros + block]);
    const float scale =
        load_float(from.data() + at.scales + block * size_of(e.scale_type), e.scale_type);
    to[i] = scale * static_cast<float>(code - zero);
  }
}

// The least and the largest number of a block, 0 among them; NaN where one is not finite.
struct Extent {
  float least = 0;
  float most = 0;
  // NaN stays, and of zeros alone it is no -0.
  float magnitude() const { return std::max(-least, most) + 0.0f; }
  void add(float x) {
    if (!std::isfinite(x)) {
      least = NAN;
    } else if (!std::isnan(least)) {
      least = std::min(least, x);
      most = std::max(most, x);
    }
  }
};

// The quantization step, before the scale is rounded.
double exact_step(const Encoding& e, const Extent& extent) {
  return e.symmetric ? extent.magnitude() / e.form->steps
                     : (double{extent.most} - extent.least) / e.form->steps_of_range;
}

float store_scale_of(const Encoding& e, const Extent& extent, std::byte* to) {
  return store_scale(exact_step(e, extent), e.symmetric ? e.form->steps : e.form->steps_of_range,
                     e.symmetric ? kSpare : kSpareOfRange, to, e.scale_type);
}

void encode_int8(const Encoding& e, std::span<const float> from, DType, const Shape& shape,
                 std::span<std::byte> to) {
  const Blocks blocks(e, shape);
  const Int8Layout at(e, shape);
  std::fill(to.begin(), to.end(), std::byte{0});
  std::vector<Extent> extents(static_cast<size_t>(blocks.count()));
  for (size_t i = 0; i < from.size(); ++i) {
    extents[static_cast<size_t>(blocks.block_of(static_cast<int64_t>(i)))].add(from[i]);
  }
  for (size_t b = 0; b < extents.size(); ++b) {
    const float rounded =
        store_scale_of(e, extents[b], to.data() + at.scales + b * size_of(e.scale_type));
    if (!e.symmetric && rounded != 0) {
      const float zero =
          std::clamp(-128 - std::nearbyint(extents[b].least / rounded), -128.0f, 127.0f);
      to[at.zeros + b] = static_cast<std::byte>(static_cast<int8_t>(zero));
    }
  }
  for (size_t i = 0; i < from.size(); ++i) {
    const auto b = static_cast<size_t>(blocks.block_of(static_cast<int64_t>(i)));
    const float scale = load_float(to.data() + at.scales + b * size_of(e.scale_type), e.scale_type);
    const float zero = e.symmetric ? 0 : static_cast<float>(static_cast<int8_t>(to[at.zeros + b]));
    const float code =
        scale == 0 ? zero : std::clamp(std::nearbyint(from[i] / scale) + zero, -128.0f, 127.0f);
    to[i] = static_cast<std::byte>(static_cast<int8_t>(code));
  }
}

// Blocks of the whole tensor are rows without strides of their own.
std::optional<CodeLayout> layout_int8(const Encoding& e, const Shape& shown) {
  const bool whole = e.block == 0;
  if (!whole && positive_axis(e.axis, shown.rank()) != shown.rank() - 1) {
    return std::nullopt;
  }
  CodeLayout out;
  out.zero_points = !e.symmetric;
  out.scale_type = e.scale_type;
  out.columns = columns_of(shown);
  out.row_bytes = out.columns;
  out.block = whole ? out.columns : e.block;
  out.block_bytes = out.block;
  if (!whole) {
    const uint64_t blocks = (out.columns + out.block - 1) / out.block;
    out.scale_block = size_of(e.scale_type);
    out.scale_row = blocks * out.scale_block;
    out.zero_block = e.symmetric ? 0 : 1;
    out.zero_row = e.symmetric ? 0 : blocks;
  }
  return out;
}

CodePlace place_int8(const Encoding& e, DType, const Shape& shape, uint64_t first) {
  const Int8Layout at(e, shape);
  const auto element = static_cast<int64_t>(first);
  const bool end = element >= shape.elements();
  const Blocks blocks(e, shape);
  const auto block = static_cast<uint64_t>(end ? blocks.count() : blocks.block_of(element));
  return {first, at.scales + block * size_of(e.scale_type), at.zeros + (e.symmetric ? 0 : block)};
}

// ---------------------------------------------------------------------- codes row by row: 4 bits,
// q8_0

// Where the run begins in a storage whose parts begin at `base`: at a block.
CodePlace advanced(const CodeLayout& l, const CodePlace& base, uint64_t first) {
  const uint64_t row = l.columns == 0 ? 0 : first / l.columns;
  const uint64_t block = l.columns == 0 ? 0 : first % l.columns / l.block;
  return {base.codes + row * l.row_bytes + block * l.block_bytes,
          base.scales + row * l.scale_row + block * l.scale_block,
          base.zeros + row * l.zero_row + block * l.zero_block};
}

// The rows of blocks of a storage.
struct Rows {
  CodeLayout layout;
  CodePlace base;
  uint64_t rows;
  uint64_t blocks;  // of a row

  Rows(const Encoding& e, DType dtype, const Shape& shape)
      : layout(*e.layout(shape)),
        base(e.place(dtype, shape, 0)),
        rows(shape.rank() == 0 ? 1 : static_cast<uint64_t>(shape.elements(0, shape.rank() - 1))),
        blocks(layout.columns == 0 ? 0 : (layout.columns + layout.block - 1) / layout.block) {}

  CodePlace block(uint64_t row, uint64_t number) const {
    return advanced(layout, base, row * layout.columns + number * layout.block);
  }
  uint64_t length(uint64_t number) const {
    return std::min(layout.block, layout.columns - number * layout.block);
  }
};

// The byte of code i of a block, and the bits of it before the code.
struct Nibble {
  uint64_t byte;
  uint32_t shift;
};
Nibble nibble(const CodeLayout& l, uint64_t i) {
  return l.half != 0 ? Nibble{i % l.half, i < l.half ? 0u : 4u}
                     : Nibble{i / 2, i % 2 == 0 ? 0u : 4u};
}

int code_at(const CodeLayout& l, std::span<const std::byte> from, uint64_t codes, uint64_t i) {
  if (l.bits == 8) {
    return static_cast<int8_t>(from[codes + i]);
  }
  const Nibble at = nibble(l, i);
  return static_cast<int>(from[codes + at.byte]) >> at.shift & 15;
}

void put_code(const CodeLayout& l, std::span<std::byte> to, uint64_t codes, uint64_t i, int code) {
  if (l.bits == 8) {
    to[codes + i] = static_cast<std::byte>(code);
  } else {
    const Nibble at = nibble(l, i);
    to[codes + at.byte] |= static_cast<std::byte>((code & 15) << at.shift);
  }
}

void decode_rows(const Encoding& e, std::span<const std::byte> from, DType dtype,
                 const Shape& shape, ElementRun run, std::span<float> to) {
  const Rows rows(e, dtype, shape);
  decode_codes(rows.layout, from, rows.base, static_cast<uint64_t>(run.first), to);
}

// How a form makes the scale of a block, as it is stored or as GGUF divides by it, and its codes.
using EncodeBlock = void (*)(const Encoding& e, const CodeLayout& l, std::span<const float> from,
                             std::span<std::byte> to, const CodePlace& at);

void encode_rows(const Encoding& e, std::span<const float> from, DType dtype, const Shape& shape,
                 std::span<std::byte> to, EncodeBlock encode) {
  const Rows rows(e, dtype, shape);
  std::fill(to.begin(), to.end(), std::byte{0});
  for (uint64_t row = 0; row < rows.rows; ++row) {
    for (uint64_t b = 0; b < rows.blocks; ++b) {
      const uint64_t first = row * rows.layout.columns + b * rows.layout.block;
      encode(e, rows.layout, from.subspan(first, rows.length(b)), to, rows.block(row, b));
    }
  }
}

Extent extent_of(std::span<const float> block) {
  Extent out;
  for (const float x : block) {
    out.add(x);
  }
  return out;
}

uint64_t columns_rounded(const Shape& shape, uint64_t to) {
  return (columns_of(shape) + to - 1) / to;
}

// -------------------------------------------------------------------------------------------- int4

Status check_int4(const Encoding& e, DType dtype, const Shape& shape) {
  BOWLINE_REQUIRE(is_float(dtype), "A storage of {} cannot be int4: it stands for floats.", dtype);
  BOWLINE_REQUIRE(is_float(e.scale_type), "The scales of int4 are {}, not floats.", e.scale_type);
  BOWLINE_REQUIRE(e.axis == -1, "The blocks of int4 lie along the last axis, not {}.", e.axis);
  BOWLINE_REQUIRE(e.block >= 2 && e.block % 2 == 0, "A block of int4 has {} elements.", e.block);
  BOWLINE_REQUIRE(shape.rank() >= 1, "A storage of rank 0 has no blocks of {}.", e.block);
  return {};
}

std::optional<CodeLayout> layout_int4(const Encoding& e, const Shape& shown) {
  CodeLayout out;
  out.bits = 4;
  out.zero = 8;
  out.zero_points = !e.symmetric;
  out.scale_type = e.scale_type;
  out.columns = columns_of(shown);
  out.block = e.block;
  out.row_bytes = columns_rounded(shown, 2);
  out.block_bytes = e.block / 2;
  const uint64_t blocks = columns_rounded(shown, e.block);
  out.scale_block = size_of(e.scale_type);
  out.scale_row = blocks * out.scale_block;
  out.zero_block = e.symmetric ? 0 : 1;
  out.zero_row = e.symmetric ? 0 : blocks;
  return out;
}

// The begins of the scales and the zero points, and the end.
CodePlace parts_int4(const Encoding& e, const Shape& shape, uint64_t& end) {
  const auto rows = static_cast<uint64_t>(shape.elements(0, shape.rank() - 1));
  const CodeLayout l = *layout_int4(e, shape);
  const uint64_t scales = round_up(rows * l.row_bytes, size_of(e.scale_type));
  const uint64_t zeros = scales + rows * l.scale_row;
  end = zeros + rows * l.zero_row;
  return {0, scales, zeros};
}

uint64_t bytes_int4(const Encoding& e, DType, const Shape& shape) {
  uint64_t end = 0;
  (void)parts_int4(e, shape, end);
  return end;
}

CodePlace place_int4(const Encoding& e, DType, const Shape& shape, uint64_t first) {
  uint64_t end = 0;
  const CodePlace base = parts_int4(e, shape, end);
  return advanced(*layout_int4(e, shape), base, first);
}

void encode_block_int4(const Encoding& e, const CodeLayout& l, std::span<const float> from,
                       std::span<std::byte> to, const CodePlace& at) {
  const Extent extent = extent_of(from);
  const float rounded = store_scale_of(e, extent, to.data() + at.scales);
  float zero = 8;
  if (!e.symmetric) {
    zero = rounded == 0 ? 0 : std::clamp(-std::nearbyint(extent.least / rounded), 0.0f, 15.0f);
    to[at.zeros] = static_cast<std::byte>(static_cast<int>(zero));
  }
  for (size_t i = 0; i < from.size(); ++i) {
    const float code =
        rounded == 0 ? zero : std::clamp(std::nearbyint(from[i] / rounded) + zero, 0.0f, 15.0f);
    put_code(l, to, at.codes, i, static_cast<int>(code));
  }
}

void encode_int4(const Encoding& e, std::span<const float> from, DType dtype, const Shape& shape,
                 std::span<std::byte> to) {
  encode_rows(e, from, dtype, shape, to, encode_block_int4);
}

// ------------------------------------------------------------------------------------ q8_0 and
// q4_0

constexpr uint32_t kGgufBlock = 32;

Status check_gguf(const Encoding& e, DType dtype, const Shape& shape) {
  BOWLINE_REQUIRE(is_float(dtype), "A storage of {} cannot be {}: it stands for floats.", dtype,
                  e.name());
  BOWLINE_REQUIRE(e == e.form->usual, "The encoding \"{}\" has parameters of its own.", e.name());
  BOWLINE_REQUIRE(shape.rank() >= 1 && shape.back() % kGgufBlock == 0,
                  "Rows of {} are not whole blocks of {}, which {} has.", columns_of(shape),
                  kGgufBlock, e.name());
  return {};
}

// A scale and 32 codes.
template <uint32_t kBits>
std::optional<CodeLayout> layout_gguf(const Encoding&, const Shape& shown) {
  CodeLayout out;
  out.bits = kBits;
  out.half = kBits == 4 ? kGgufBlock / 2 : 0;
  out.zero = kBits == 4 ? 8 : 0;
  out.scale_type = DType::f16;
  out.columns = columns_of(shown);
  out.block = kGgufBlock;
  out.block_bytes = size_of(DType::f16) + kGgufBlock * kBits / 8;
  out.row_bytes = columns_rounded(shown, kGgufBlock) * out.block_bytes;
  out.scale_row = out.row_bytes;
  out.scale_block = out.block_bytes;
  return out;
}

template <uint32_t kBits>
uint64_t bytes_gguf(const Encoding& e, DType, const Shape& shape) {
  const auto rows = static_cast<uint64_t>(shape.elements(0, shape.rank() - 1));
  return rows * layout_gguf<kBits>(e, shape)->row_bytes;
}

template <uint32_t kBits>
CodePlace place_gguf(const Encoding& e, DType, const Shape& shape, uint64_t first) {
  return advanced(*layout_gguf<kBits>(e, shape), {size_of(DType::f16), 0, 0}, first);
}

// ggml divides by the exact scale. That would move values by whole steps if f16 stores the scale as
// a denormal.
float inverse_of_scale(float exact, float stored) {
  constexpr float kLeastNormal = 0x1p-14f;
  return stored == 0 ? 0 : 1 / (stored < kLeastNormal ? stored : exact);
}

void encode_block_q8_0(const Encoding& e, const CodeLayout& l, std::span<const float> from,
                       std::span<std::byte> to, const CodePlace& at) {
  const Extent extent = extent_of(from);
  const float stored = store_scale_of(e, extent, to.data() + at.scales);
  const float inverse = inverse_of_scale(extent.magnitude() / 127, stored);
  for (size_t i = 0; i < from.size() && inverse != 0; ++i) {
    const float code = std::clamp(std::round(from[i] * inverse), -127.0f, 127.0f);
    put_code(l, to, at.codes, i, static_cast<int>(code));
  }
}

void encode_block_q4_0(const Encoding& e, const CodeLayout& l, std::span<const float> from,
                       std::span<std::byte> to, const CodePlace& at) {
  float most = 0;  // the first one of the largest magnitude
  for (const float x : from) {
    most = std::abs(x) > std::abs(most) ? x : most;
  }
  const float stored = store_scale_of(e, extent_of(from), to.data() + at.scales);
  const float sign = most > 0 ? -1.0f : 1.0f;
  store_float(stored == 0 ? 0 : sign * stored, to.data() + at.scales, DType::f16);
  const float inverse = sign * inverse_of_scale(std::abs(most) / 8, stored);
  for (size_t i = 0; i < from.size(); ++i) {
    const float x = inverse == 0 ? 0 : from[i] * inverse;
    put_code(l, to, at.codes, i, std::clamp(static_cast<int>(x + 8.5f), 0, 15));
  }
}

template <EncodeBlock kEncode>
void encode_gguf(const Encoding& e, std::span<const float> from, DType dtype, const Shape& shape,
                 std::span<std::byte> to) {
  encode_rows(e, from, dtype, shape, to, kEncode);
}

// ---------------------------------------------------------------------------------- the registry

extern const EncodingForm kForms[5];
constexpr EncodingForm kForms[5] = {
    {"plain",
     {&kForms[0]},
     check_plain,
     bytes_plain,
     check_view_plain,
     decode_plain,
     encode_plain,
     layout_plain,
     place_plain},
    {"int8",
     {&kForms[1]},
     check_int8,
     bytes_int8,
     check_view_int8,
     decode_int8,
     encode_int8,
     layout_int8,
     place_int8,
     127,
     255,
     0.5},
    {"int4",
     {&kForms[2], 32, -1, DType::f16},
     check_int4,
     bytes_int4,
     check_view_blocks,
     decode_rows,
     encode_int4,
     layout_int4,
     place_int4,
     7,
     15,
     0.5},
    {"q8_0",
     {&kForms[3], kGgufBlock, -1, DType::f16},
     check_gguf,
     bytes_gguf<8>,
     check_view_blocks,
     decode_rows,
     encode_gguf<encode_block_q8_0>,
     layout_gguf<8>,
     place_gguf<8>,
     127,
     255,
     0.5},
    {"q4_0",
     {&kForms[4], kGgufBlock, -1, DType::f16},
     check_gguf,
     bytes_gguf<4>,
     check_view_blocks,
     decode_rows,
     encode_gguf<encode_block_q4_0>,
     layout_gguf<4>,
     place_gguf<4>,
     8,
     16,
     1},
};

// Part of a step by which rounding the scale to 16 bits may move the last codes.
constexpr double kMostMoved = 1.0 / 8;

// Compares the values of a storage with the decoded ones, one after the other.
class Losses {
 public:
  Losses(const Encoding& e, DType dtype, const Shape& shape, std::span<const float> values)
      : e_(e), dtype_(dtype), blocks_(e, shape), extents_(static_cast<size_t>(blocks_.count())) {
    for (size_t i = 0; i < values.size() && !e.is_plain(); ++i) {
      extent(i).add(values[i]);
    }
  }

  Status check(size_t i, float value, float decoded) {
    if (e_.is_plain() && !std::isfinite(value)) {
      return {};  // it stays what it is
    }
    BOWLINE_REQUIRE(std::isfinite(value), "Element {} is {}, which cannot be quantized.", i, value);
    std::byte stored[sizeof(float)];
    store_float(decoded, stored, dtype_);
    BOWLINE_REQUIRE(std::isfinite(load_float(stored, dtype_)),
                    "Element {} ({}) would become {} in {}.", i, value, load_float(stored, dtype_),
                    dtype_);
    if (e_.is_plain()) {
      return {};
    }
    const double step = exact_step(e_, extent(i));
    const double wrong = std::abs(double{value} - decoded);
    BOWLINE_REQUIRE(wrong <= step * (e_.form->most_wrong + kMostMoved),
                    "Element {} ({}) would become {}; a quantization step of its block is {}.", i,
                    value, decoded, static_cast<float>(step));
    return {};
  }

 private:
  Extent& extent(size_t i) {
    return extents_[static_cast<size_t>(blocks_.block_of(static_cast<int64_t>(i)))];
  }

  const Encoding& e_;
  DType dtype_;
  Blocks blocks_;
  std::vector<Extent> extents_;
};

// Reads "int8 block 32 axis -1 scale f16 with zero points" word by word.
class TextReader {
 public:
  explicit TextReader(std::string_view text) : rest_(text) {}

  std::string_view word() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(' '), rest_.size()));
    const std::string_view out = rest_.substr(0, rest_.find(' '));
    rest_.remove_prefix(out.size());
    return out;
  }
  template <class T>
  bool number(std::string_view text, T& to) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), to);
    return error == std::errc() && end == text.data() + text.size();
  }

 private:
  std::string_view rest_;
};

}  // namespace

const EncodingForm& plain_form() { return kForms[0]; }

const EncodingForm* find_encoding_form(std::string_view name) {
  const auto* const found = std::ranges::find(kForms, name, &EncodingForm::name);
  return found == std::end(kForms) ? nullptr : found;
}

std::string_view Encoding::name() const { return form->name; }

Encoding Encoding::for_shape(const Shape& shape) const {
  Encoding out = *this;
  if (block == kWholeRow) {
    out.block = static_cast<uint32_t>(std::min<uint64_t>(columns_of(shape), kWholeRow - 1));
  }
  return out;
}

Encoding Encoding::simplest(const Shape& shape) const {
  Encoding out = *this;
  if (form == &kForms[1] && Blocks(*this, shape).count() <= 1) {
    out.block = 0;
    out.axis = -1;
  }
  return out;
}

std::optional<CodeLayout> Encoding::layout(const Shape& shown) const {
  return form->layout(*this, shown);
}
bool Encoding::takes_rows(const Shape& shape) const {
  const std::optional<CodeLayout> l = layout(shape);
  return l && l->bits == 8 && !l->zero_points && l->scale_type == DType::f32 && l->scale_row != 0;
}
CodePlace Encoding::place(DType dtype, const Shape& shape, uint64_t first_element) const {
  return form->place(*this, dtype, shape, first_element);
}

Status Encoding::check(DType dtype, const Shape& shape) const {
  return form->check(*this, dtype, shape);
}
uint64_t Encoding::bytes(DType dtype, const Shape& shape) const {
  return form->bytes(*this, dtype, shape);
}
Status Encoding::check_view(const View& view, const Shape& shape) const {
  return form->check_view(*this, view, shape);
}
void Encoding::decode(std::span<const std::byte> from, DType dtype, const Shape& shape,
                      ElementRun run, std::span<float> to) const {
  form->decode(*this, from, dtype, shape, run, to);
}
void Encoding::encode(std::span<const float> from, DType dtype, const Shape& shape,
                      std::span<std::byte> to) const {
  form->encode(*this, from, dtype, shape, to);
}

Status check_encoded(const Encoding& encoding, std::span<const float> values,
                     std::span<const std::byte> encoded, DType dtype, const Shape& shape) {
  constexpr size_t kPiece = 4096;
  std::array<float, kPiece> piece;
  Losses losses(encoding, dtype, shape, values);
  for (size_t first = 0; first < values.size(); first += kPiece) {
    const std::span<float> decoded(piece.data(), std::min(kPiece, values.size() - first));
    encoding.decode(encoded, dtype, shape,
                    {static_cast<int64_t>(first), static_cast<int64_t>(decoded.size())}, decoded);
    for (size_t i = 0; i < decoded.size(); ++i) {
      BOWLINE_TRY(losses.check(first + i, values[first + i], decoded[i]));
    }
  }
  return {};
}

void append_text(std::string& out, const Encoding& e) {
  out += e.name();
  if (e.is_plain() || e.form->check == check_gguf) {
    return;
  }
  if (e.block != 0) {
    out +=
        format(" block {} axis {}", e.block == kWholeRow ? "row" : format("{}", e.block), e.axis);
  }
  out += format(" scale {}{}", e.scale_type, e.symmetric ? "" : " with zero points");
}

Result<Encoding> parse_encoding(std::string_view text) {
  TextReader in(text);
  const std::string_view name = in.word();
  const EncodingForm* const form = find_encoding_form(name);
  std::string known;
  for (const EncodingForm& f : kForms) {
    known += format("{}{}", known.empty() ? "" : ", ", f.name);
  }
  BOWLINE_REQUIRE(form != nullptr, "There is no encoding \"{}\" but {}.", name, known);
  Encoding out = form->usual;
  for (std::string_view key = in.word(); !key.empty(); key = in.word()) {
    const std::string_view value = in.word();
    bool good = !out.is_plain() && form->check != check_gguf;
    if (key == "block") {
      out.block = kWholeRow;
      good = good && (value == "row" || in.number(value, out.block));
    } else if (key == "axis") {
      good = good && in.number(value, out.axis);
    } else if (key == "scale") {
      good = good && (value == "f32" || value == "f16" || value == "bf16");
      out.scale_type = value == "f16" ? DType::f16 : value == "bf16" ? DType::bf16 : DType::f32;
    } else {
      out.symmetric = false;
      good = good && key == "with" && value == "zero" && in.word() == "points";
    }
    BOWLINE_REQUIRE(good, "\"{}\" is not an encoding: \"{} {}\" does not describe {}.", text, key,
                    value, name);
  }
  return out;
}

void decode_codes(const CodeLayout& l, std::span<const std::byte> storage, const CodePlace& place,
                  uint64_t skipped, std::span<float> to) {
  for (size_t i = 0; i < to.size(); ++i) {
    const uint64_t element = skipped + i;
    const CodePlace at = advanced(l, place, element);
    const int zero = l.zero_points ? static_cast<int8_t>(storage[at.zeros]) : l.zero;
    const int code = code_at(l, storage, at.codes, element % l.columns % l.block);
    to[i] = load_float(storage.data() + at.scales, l.scale_type) * static_cast<float>(code - zero);
  }
}

uint64_t codes_end(const CodeLayout& l, const CodePlace& place, const Shape& shown) {
  const auto elements = static_cast<uint64_t>(shown.elements());
  if (elements == 0) {
    return 0;
  }
  const CodePlace last = advanced(l, place, elements - 1);
  const uint64_t length = (l.columns - 1) % l.block + 1;
  const uint64_t bytes = l.bits == 8 ? length : l.half != 0 ? l.half : (length + 1) / 2;
  return std::max({last.codes + bytes, last.scales + size_of(l.scale_type),
                   l.zero_points ? last.zeros + 1 : 0});
}

}  // namespace bowline
