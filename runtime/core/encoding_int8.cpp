// The form int8: quantized values in the order of the elements, then scales and zero points by
// block.
#include "core/encoding_forms.h"

namespace bowline {
namespace {

// The places of the parts of an int8 storage.
struct Int8Layout {
  uint64_t scales;
  uint64_t zeros;
  uint64_t bytes;

  Int8Layout(const Encoding& e, const Shape& shape) {
    const uint64_t scale = size_of(e.scale_type);
    const auto count = static_cast<uint64_t>(CodeBlocks(e, shape).count());
    scales = round_up(static_cast<uint64_t>(shape.elements()), scale);
    zeros = scales + count * scale;
    bytes = zeros + (e.symmetric ? 0 : count);
  }
};

Status check_int8(const Encoding& e, DType dtype, const Shape& shape) {
  BOWLINE_REQUIRE(is_float(dtype), "A storage of {} cannot be int8: only floats can be quantized.",
                  dtype);
  BOWLINE_REQUIRE(is_float(e.scale_type), "The scales of int8 cannot be {}: they must be floats.",
                  e.scale_type);
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
  // With a single block, every view has the same scale.
  return CodeBlocks(e, shape).count() <= 1 ? view_shape(view, shape).status()
                                           : check_view_blocks(e, view, shape);
}

void decode_int8(const Encoding& e, std::span<const std::byte> from, DType, const Shape& shape,
                 ElementRun run, std::span<float> to) {
  const CodeBlocks blocks(e, shape);
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

void encode_int8(const Encoding& e, std::span<const float> from, DType, const Shape& shape,
                 std::span<std::byte> to) {
  const CodeBlocks blocks(e, shape);
  const Int8Layout at(e, shape);
  std::fill(to.begin(), to.end(), std::byte{0});
  std::vector<BlockExtent> extents(static_cast<size_t>(blocks.count()));
  for (size_t i = 0; i < from.size(); ++i) {
    extents[static_cast<size_t>(blocks.block_of(static_cast<int64_t>(i)))].add(from[i]);
  }
  for (size_t b = 0; b < extents.size(); ++b) {
    const float rounded =
        store_scale(e, extents[b], to.data() + at.scales + b * size_of(e.scale_type));
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
  const CodeBlocks blocks(e, shape);
  const auto block = static_cast<uint64_t>(end ? blocks.count() : blocks.block_of(element));
  return {first, at.scales + block * size_of(e.scale_type), at.zeros + (e.symmetric ? 0 : block)};
}

}  // namespace

const EncodingFunctions kInt8Functions{check_int8,  bytes_int8,  check_view_int8, decode_int8,
                                       encode_int8, layout_int8, place_int8};

}  // namespace bowline
