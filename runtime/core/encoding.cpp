#include "core/encoding.h"

#include <cmath>
#include <cstring>

#include "core/checked.h"
#include "core/float16.h"
#include "core/strides.h"

namespace bowline {

struct EncodingForm {
  const char* name;
  Status (*check)(const Encoding& e, DType dtype, const Shape& shape);
  uint64_t (*bytes)(const Encoding& e, DType dtype, const Shape& shape);
  Status (*check_view)(const Encoding& e, const View& view, const Shape& shape);
  void (*decode)(const Encoding& e, std::span<const std::byte> from, DType dtype,
                 const Shape& shape, ElementRun run, std::span<float> to);
  void (*encode)(const Encoding& e, std::span<const float> from, DType dtype, const Shape& shape,
                 std::span<std::byte> to);
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

// -------------------------------------------------------------------------------------------- int8

// How the elements of a tensor fall into blocks: outer x length x inner elements, the middle one cut into blocks.
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

Status check_view_int8(const Encoding& e, const View& view, const Shape& shape) {
  BOWLINE_ASSIGN(const Shape shown, view_shape(view, shape));
  const ElementRun run = view_run(view, shape);
  const Blocks b(e, shape);
  if (b.count() <= 1) {
    return {};  // every element has the scale of the tensor
  }
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
  void add(float x) {
    if (!std::isfinite(x)) {
      least = NAN;
    } else if (!std::isnan(least)) {
      least = std::min(least, x);
      most = std::max(most, x);
    }
  }
};

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
    const auto [least, most] = extents[b];
    const float scale = e.symmetric ? std::max(-least, most) / 127 : (most - least) / 255;
    std::byte* const stored = to.data() + at.scales + b * size_of(e.scale_type);
    store_float(std::isfinite(scale) ? scale : 0, stored, e.scale_type);
    const float rounded = load_float(stored, e.scale_type);
    if (!e.symmetric && rounded != 0) {
      const float zero = std::clamp(-128 - std::nearbyint(least / rounded), -128.0f, 127.0f);
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

constexpr EncodingForm kForms[] = {
    {"plain", check_plain, bytes_plain, check_view_plain, decode_plain, encode_plain},
    {"int8", check_int8, bytes_int8, check_view_int8, decode_int8, encode_int8},
};

}  // namespace

const EncodingForm& plain_form() { return kForms[0]; }

const EncodingForm* find_encoding_form(std::string_view name) {
  const auto* const found = std::ranges::find(kForms, name, &EncodingForm::name);
  return found == std::end(kForms) ? nullptr : found;
}

std::string_view Encoding::name() const { return form->name; }

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

void append_text(std::string& out, const Encoding& e) {
  out += e.name();
  if (!e.is_plain()) {
    out += e.block == 0 ? "" : format(" block {} axis {}", e.block, e.axis);
    out += format(" scale {}{}", e.scale_type, e.symmetric ? "" : " with zero points");
  }
}

}  // namespace bowline
