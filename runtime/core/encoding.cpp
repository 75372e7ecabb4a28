#include "core/encoding.h"

#include <array>
#include <charconv>
#include <cmath>

#include "base/checked.h"
#include "core/encoding_check.h"
#include "core/encoding_forms.h"

namespace bowline {
namespace {

Status check_plain(const Encoding& e, DType, const Shape&) {
  BOWLINE_REQUIRE(e == Encoding(), "The encoding \"plain\" takes no parameters.");
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

const EncodingFunctions kPlainFunctions{check_plain,  bytes_plain,  check_view_plain, decode_plain,
                                        encode_plain, layout_plain, place_plain};

enum FormIndex : size_t {
  kPlainForm,
  kInt8Form,
  kInt4Form,
#define BOWLINE_FORMAT(name, ...) kForm_##name,
#include "generated/formats.inc"
  kFormCount,
};

extern const EncodingForm kForms[kFormCount];
constexpr EncodingForm kForms[kFormCount] = {
    {"plain", &kPlainFunctions, {&kForms[kPlainForm]}},
    {"int8", &kInt8Functions, {&kForms[kInt8Form]}, true, 127, 255, 0.5},
    {"int4", &kInt4Functions, {&kForms[kInt4Form], 32, -1, DType::f16}, true, 7, 15, 0.5},
#define BOWLINE_FORMAT(name, number, block, bytes, group, has_minimum, gguf_type, gguf, gguf_file, \
                       steps, most_wrong, ...)                                                     \
  {#name,                                                                                          \
   &kFormatFunctions,                                                                              \
   {&kForms[kForm_##name], block, -1, DType::f16},                                                 \
   false,                                                                                          \
   steps,                                                                                          \
   2 * (steps),                                                                                    \
   most_wrong,                                                                                     \
   number},
#include "generated/formats.inc"
};

// The part of a step by which rounding the scale to 16 bits may move the largest values.
constexpr double kMostMoved = 1.0 / 8;

// Compares the values of a storage with the decoded values, one by one.
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
      return {};  // a plain non-finite value does not change
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
  BlockExtent& extent(size_t i) {
    return extents_[static_cast<size_t>(blocks_.block_of(static_cast<int64_t>(i)))];
  }

  const Encoding& e_;
  DType dtype_;
  CodeBlocks blocks_;
  std::vector<BlockExtent> extents_;
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
  if (form == &kForms[kInt8Form] && CodeBlocks(*this, shape).count() <= 1) {
    out.block = 0;
    out.axis = -1;
  }
  return out;
}

std::optional<CodeLayout> Encoding::layout(const Shape& shown) const {
  return form->functions->layout(*this, shown);
}
bool Encoding::takes_rows(const Shape& shape) const {
  const std::optional<CodeLayout> l = layout(shape);
  return l && l->bits == 8 && !l->zero_points && l->scale_type == DType::f32 && l->scale_row != 0;
}
CodePlace Encoding::place(DType dtype, const Shape& shape, uint64_t first_element) const {
  return form->functions->place(*this, dtype, shape, first_element);
}

Status Encoding::check(DType dtype, const Shape& shape) const {
  return form->functions->check(*this, dtype, shape);
}
uint64_t Encoding::bytes(DType dtype, const Shape& shape) const {
  return form->functions->bytes(*this, dtype, shape);
}
Status Encoding::check_view(const View& view, const Shape& shape) const {
  return form->functions->check_view(*this, view, shape);
}
void Encoding::decode(std::span<const std::byte> from, DType dtype, const Shape& shape,
                      ElementRun run, std::span<float> to) const {
  form->functions->decode(*this, from, dtype, shape, run, to);
}
void Encoding::encode(std::span<const float> from, DType dtype, const Shape& shape,
                      std::span<std::byte> to) const {
  form->functions->encode(*this, from, dtype, shape, to);
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
  if (!e.form->has_parameters) {
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
  BOWLINE_REQUIRE(form != nullptr, "There is no encoding \"{}\". Encodings of this build: {}.",
                  name, known);
  Encoding out = form->usual;
  for (std::string_view key = in.word(); !key.empty(); key = in.word()) {
    const std::string_view value = in.word();
    bool good = form->has_parameters;
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
    BOWLINE_REQUIRE(good, "\"{}\" is not an encoding: \"{} {}\" is not a parameter of {}.", text,
                    key, value, name);
  }
  return out;
}

}  // namespace bowline
