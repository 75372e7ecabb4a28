#include "compute/block_dots.h"

#include <algorithm>

#include "compute/block_variants.h"
#include "compute/spans.h"

namespace bowline::detail::cpu {
namespace {

const BlockDots* best() {
#ifdef __aarch64__
  return block_dots_dotprod();
#else
  const BlockDots* const vnni = block_dots_vnni();
  return vnni != nullptr ? vnni : block_dots_avx2();
#endif
}

}  // namespace

size_t block_row_floats(size_t columns) {
  return best() == nullptr ? 0 : columns / kSpan * best()->span_bytes / sizeof(float);
}

bool has_block_dots(const BlockFormat& format, size_t columns) {
  return best() != nullptr && has_spans(format, columns);
}

bool to_block_integers(IntegersOf of, const float* a, size_t columns, float* row) {
  return best()->to_integers(of, a, columns, row);
}

IntegerDots block_dots(const BlockFormat& format, IntegersOf of) {
  return best()->dots(format, of);
}

}  // namespace bowline::detail::cpu
