#include <algorithm>

#include "device/begin.cuh"
#include "device/elements.cuh"
#include "device/results.cuh"
#include "device/staged_product.cuh"
#include "device/storage.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::staged_product_kernels {
namespace {

// Copies lines of `length` elements to lines of `packs_of_line` packs. The rest of a line is 0.
__global__ void pad_kernel(uint4* to, const uint16_t* from, unsigned length, unsigned packs_of_line,
                           unsigned packs) {
  begin_kernel();
  for_elements<1>(packs, [&](uint64_t i) {
    const unsigned line = static_cast<unsigned>(i) / packs_of_line;
    const unsigned first = static_cast<unsigned>(i) % packs_of_line * kPackSize;
    const uint16_t* const at = from + uint64_t{line} * length + first;
    Some<uint16_t, kPackSize> some;
    BOWLINE_UNROLL
    for (unsigned e = 0; e < kPackSize; ++e) {
      some.x[e] = first + e < length ? at[e] : uint16_t{0};
    }
    to[i] = __builtin_bit_cast(uint4, some);
  });
}

// Copies `count` elements from lines of `length` elements, with `line` elements between them. Pack
// i of `to` begins i packs after the address at a multiple of 16 bytes before `to`.
__global__ void pack_kernel(uint16_t* to, const uint16_t* from, unsigned length, unsigned line,
                            unsigned count) {
  begin_kernel();
  const unsigned before = static_cast<unsigned>(reinterpret_cast<uintptr_t>(to) % 16 / 2);
  const unsigned end = before + count;
  for_elements<1>((end + kPackSize - 1) / kPackSize, [&](uint64_t i) {
    const unsigned first = static_cast<unsigned>(i) * kPackSize;
    const bool is_whole = first >= before && first + kPackSize <= end;
    const unsigned at = max(first, before) - before;
    const unsigned last = min(first + kPackSize, end) - before;
    unsigned in_line = at % length;
    const uint16_t* source = from + uint64_t{at / length} * line + in_line;
    Some<uint16_t, kPackSize> some;
    BOWLINE_UNROLL
    for (unsigned e = 0; e < kPackSize; ++e) {
      if (at + e < last) {
        const uint16_t x = *source;
        if (is_whole) {
          some.x[e] = x;
        } else {
          to[at + e] = x;
        }
        ++source;
        if (++in_line == length) {
          in_line = 0;
          source += line - length;
        }
      }
    }
    if (is_whole) {
      *reinterpret_cast<uint4*>(to + at) = __builtin_bit_cast(uint4, some);
    }
  });
}

int64_t line_of_a(const BlasProduct& p) { return p.transpose_a ? p.m : p.k; }
int64_t lines_of(const BlasProduct& p, const Staging& s) { return s.along_k ? p.k : p.m; }

// The product of a chunk with so many lines.
BlasProduct product_of(BlasProduct p, const Staging& s, int64_t lines, bool is_first) {
  p.line_a = s.of == Staging::Of::a ? s.line : line_of_a(p);
  (s.along_k ? p.k : p.m) = lines;
  if (s.of == Staging::Of::a) {
    p.adds = p.adds || !is_first;
  } else {
    p.line_y = s.line;
    p.y_type = s.type;
    p.adds = false;
    p.epilogue = BlasEpilogue::none;
  }
  if (s.lines_b != 0) {
    (p.transpose_b ? p.n : p.k) = s.lines_b;
  }
  return p;
}

const std::byte* moved(const void* base, int64_t elements, DType type) {
  return static_cast<const std::byte*>(base) + elements * static_cast<int64_t>(size_of(type));
}

// A chunk of lines of the product of a record.
struct Piece {
  int64_t first = 0;
  int64_t lines = 0;
  BlasProduct product;
  BlasOperands operands;
};

Piece piece_of(const Launch& l, const BlasProduct& p, const Staging& s, int64_t first) {
  Piece c;
  c.first = first;
  c.lines = std::min(s.lines, lines_of(p, s) - first);
  c.product = product_of(p, s, c.lines, first == 0 || !s.along_k);
  const Results r = results_of(l);
  void* const stage = l.workspace();
  const int64_t row = s.along_k ? 0 : first;
  BlasOperands& o = c.operands;
  o.b = s.lines_b != 0 ? static_cast<std::byte*>(stage) + s.chunk_bytes()
                       : moved(l.in(1), s.along_k ? first * p.n : 0, p.type);
  o.workspace = static_cast<std::byte*>(stage) + s.bytes();
  o.workspace_bytes = l.workspace_bytes() - s.bytes();
  if (s.of == Staging::Of::y) {
    o.a = moved(l.in(0), p.transpose_a ? first : first * p.k, p.type);
    o.y = stage;
    return c;
  }
  o.a = stage;
  o.y = const_cast<std::byte*>(moved(l.out(0), row * p.n, p.y_type));
  const void* const old = s.along_k && first > 0 ? l.out(0)
                          : r.adds               ? static_cast<const void*>(r.gradient)
                                                 : r.addend;
  o.c = old == nullptr ? nullptr : moved(old, row * p.n, p.y_type);
  return c;
}

// Copies `lines` lines of `length` elements to lines of `line` elements.
void pad(Launch& l, const char* name, void* to, const void* from, int64_t lines, int64_t length,
         int64_t line) {
  const auto packs = static_cast<unsigned>(lines * line / kPackSize);
  l.launch(name, pad_kernel, element_blocks(packs, 1), kElementThreads, static_cast<uint4*>(to),
           static_cast<const uint16_t*>(from), static_cast<unsigned>(length),
           static_cast<unsigned>(line / kPackSize), packs);
}

// Copies the lines of a to scratch memory.
void pad_a(Launch& l, const BlasProduct& p, const Staging& s, const Piece& c) {
  const int64_t length = line_of_a(p);
  pad(l, "lines with pads", l.workspace(), moved(l.in(0), c.first * length, p.type), c.lines,
      length, s.line);
}

// Copies the scratch memory to y.
void pack_y(Launch& l, const BlasProduct& p, const Staging& s, const Piece& c) {
  auto* const to =
      reinterpret_cast<uint16_t*>(const_cast<std::byte*>(moved(l.out(0), c.first * p.n, p.type)));
  const auto count = static_cast<unsigned>(c.lines * p.n);
  const unsigned most_packs = count / kPackSize + 2;
  l.launch("lines without pads", pack_kernel, element_blocks(most_packs, 1), kElementThreads, to,
           reinterpret_cast<const uint16_t*>(l.workspace()), static_cast<unsigned>(p.n),
           static_cast<unsigned>(s.line), count);
}

}  // namespace
}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::staged_product_kernels

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

using namespace staged_product_kernels;

void copy_with_zeros(Launch& l, void* to, const void* from, int64_t bytes, int64_t padded) {
  pad(l, "a copy with zeros", to, from, 1, bytes / 2, padded / 2);
}

uint64_t Staging::chunk_bytes() const {
  return in_scratch(static_cast<uint64_t>(lines * line) * size_of(type));
}
uint64_t Staging::bytes() const {
  return chunk_bytes() + in_scratch(static_cast<uint64_t>(lines_b * line_b) * size_of(type));
}

bool is_large(const BlasProduct& p) {
  constexpr double kLarge = 1 << 30;  // multiply-adds
  return static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k) >= kLarge;
}

Staging staging_of(const BlasProduct& p, const Traits& traits) {
  const bool has_lines_b = (p.transpose_b ? p.k : p.n) % kPackSize == 0;
  if (p.type == DType::f32 || p.batch != 1 || !has_lines_b || p.k == 0 ||
      (!traits.stages_products && !is_large(p))) {
    return {};
  }
  const bool has_lines_a = line_of_a(p) % kPackSize == 0;
  if (p.epilogue != BlasEpilogue::none) {
    return {};
  }
  Staging s;
  s.type = p.type;
  if (!has_lines_a) {
    // The parts of k are added in f32.
    s.along_k = p.transpose_a;
    const bool is_exact = !s.along_k || (p.y_type == DType::f32 && !p.transpose_b);
    s.of = is_exact && p.n % kPackSize == 0 ? Staging::Of::a : Staging::Of::nothing;
    s.line = in_packs(line_of_a(p));
  } else if (p.n % kPackSize != 0) {
    s.of = p.y_type == p.type && !p.adds ? Staging::Of::y : Staging::Of::nothing;
    s.line = in_packs(p.n);
  }
  // A line of y then has n elements, and a line of a has k: the lines of b.
  if (s.of != Staging::Of::nothing && !s.along_k) {
    constexpr int64_t kTooFewRows = 128;  // the copy of b would take most of the time
    s.lines_b = s.line;
    s.line_b = p.transpose_b ? p.k : p.n;
    if ((p.m < kTooFewRows && !traits.stages_products) || s.lines_b > UINT32_MAX / s.line_b) {
      return {};
    }
  }
  // With 48 MiB, an H100 keeps most of a chunk in its cache. Parts of k read and write y again, so
  // there are few.
  constexpr int64_t kStageBytes = int64_t{48} << 20;
  constexpr int64_t kMostParts = 8;
  const int64_t line_bytes = s.line * static_cast<int64_t>(size_of(s.type));
  const int64_t all = lines_of(p, s);
  const int64_t wanted = std::max(kStageBytes, s.along_k ? all * line_bytes / kMostParts : 0);
  const int64_t granule = traits.stages_products ? kPackSize : 128;  // rows of a tile
  const int64_t lines =
      traits.stages_products ? granule : wanted / std::max<int64_t>(line_bytes, 1);
  s.lines = std::min(all, std::max(granule, lines / granule * granule));
  return s;
}

uint64_t staged_workspace(const BlasProduct& p, const Staging& s, const Blas& blas) {
  const int64_t all = lines_of(p, s);
  uint64_t theirs = 0;
  for (const int64_t lines : {s.lines, all % s.lines}) {
    if (lines != 0) {
      theirs = std::max({theirs, blas.workspace(product_of(p, s, lines, true)),
                         blas.workspace(product_of(p, s, lines, !s.along_k))});
    }
  }
  return s.bytes() + theirs;
}

bool multiply_staged(Launch& l, const BlasProduct& p, const Staging& s) {
  const int64_t all = lines_of(p, s);
  for (int64_t first = 0; first < all; first += s.lines) {
    const Piece c = piece_of(l, p, s, first);
    if (!l.can_multiply(c.product, c.operands)) {
      return false;
    }
  }
  if (s.lines_b != 0) {
    const int64_t line_bytes = s.line_b * static_cast<int64_t>(size_of(p.type));
    copy_with_zeros(l, reinterpret_cast<std::byte*>(l.workspace()) + s.chunk_bytes(), l.in(1),
                    (p.transpose_b ? p.n : p.k) * line_bytes, s.lines_b * line_bytes);
  }
  for (int64_t first = 0; first < all; first += s.lines) {
    const Piece c = piece_of(l, p, s, first);
    if (s.of == Staging::Of::a) {
      pad_a(l, p, s, c);
    }
    (void)l.multiply(c.product, c.operands);
    if (s.of == Staging::Of::y) {
      pack_y(l, p, s, c);
    }
  }
  return true;
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
