// Quantized rows (core/encoding.h), dequantized in runs of elements.
#pragma once

#include <cstddef>

#include "core/encoding.h"
#include "generated/ops.h"

namespace bowline::detail::cpu {

// Where the parts of a row start. In a block format, `scales` is the first block.
struct CodeRow {
  const std::byte* codes;
  const std::byte* scales;
  const std::byte* zeros;
};

struct Codes {
  const std::byte* codes = nullptr;
  const std::byte* scales = nullptr;
  const std::byte* zeros = nullptr;
  CodeLayout layout;

  CodeRow row(size_t row) const {
    return {codes + row * layout.row_bytes, scales + row * layout.scale_row,
            zeros + row * layout.zero_row};
  }
  // All rows from `row` on.
  Codes from_row(size_t row) const {
    return {codes + row * layout.row_bytes, scales + row * layout.scale_row,
            zeros + row * layout.zero_row, layout};
  }
};

// A pointer to quantized rows. In a build without kernels for quantized weights it is always null.
class CodesPointer {
 public:
  constexpr CodesPointer(const Codes* codes = nullptr) : codes_(codes) {}
  operator const Codes*() const { return kHasQuantized ? codes_ : nullptr; }
  const Codes* operator->() const { return *this; }

 private:
  const Codes* codes_;
};

// Dequantizes elements [first, first + count) of a row.
void decode(const Codes& codes, size_t row, size_t first, size_t count, float* out);

// The same for the blocks of a format that strides cannot describe (CodeLayout::bits is 0).
// `blocks` is the start of the row.
void decode_blocks_of_format(const BlockFormat& format, const std::byte* blocks, size_t first,
                             size_t count, float* out);

// Quantizes row `row` from values of T = f32, f16 or bf16. The encoding must support rows
// (Encoding::takes_rows).
template <class T>
void encode(const CodeLayout& layout, const T* from, size_t row, std::byte* codes,
            std::byte* scales);

}  // namespace bowline::detail::cpu
