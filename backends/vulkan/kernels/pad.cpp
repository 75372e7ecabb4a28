//! ops(any) Pad Tile
//! ops(f32, f16, bf16) PadGrad
// Pads with elements of the tensor or with a constant. Tile pads with wrap.
#include "base/float16.h"
#include "core/padding.h"
#include "index.h"
#include "kernel.h"

namespace bowline::detail::vulkan::pad_kernels {
namespace {

// Appends `dim` of each axis with the constants for the division by it, then the other members of
// each axis.
template <class Dim, class... Other>
std::vector<uint32_t> table_of(const Padding& p, Dim dim, Other... others) {
  std::vector<uint32_t> dims;
  for (int a = 0; a < std::max(p.rank, 1); ++a) {
    dims.push_back(static_cast<uint32_t>(dim(static_cast<size_t>(a))));
  }
  std::vector<uint32_t> words = divisors(dims);
  const auto append = [&](auto of) {
    for (size_t a = 0; a < dims.size(); ++a) {
      words.push_back(static_cast<uint32_t>(of(a)));
    }
  };
  (append(others), ...);
  return words;
}

uint32_t rank_of(const Padding& p) { return static_cast<uint32_t>(std::max(p.rank, 1)); }

void launch_pad(Launch& l, const Padding& p, PadMode mode, float value) {
  const auto strides = p.strides();
  const std::vector<uint32_t> words = table_of(
      p, [&](size_t a) { return p.axes[a].whole; }, [&](size_t a) { return p.axes[a].before; },
      [&](size_t a) { return p.axes[a].part; }, [&](size_t a) { return strides[a]; },
      [&](size_t a) {
        const PaddedAxis& axis = p.axes[a];
        return axis.part > 0 ? (axis.part - axis.before % axis.part) % axis.part : 0;
      });
  int64_t first = 0;
  for (size_t a = 0; a < static_cast<size_t>(p.rank); ++a) {
    first += p.axes[a].crop * strides[a];
  }
  const Grid grid = l.over_elements(l.out_shape(0).elements());
  const uint64_t bits = stored_bits(l.type(), value);
  Push push;
  push.add(l.in(0), l.out(0))
      .table(l.table(words))
      .u32(grid.elements, grid.per_group, first, bits, bits >> 32);
  l.dispatch(shader::pad, {rank_of(p), static_cast<uint32_t>(mode)}, push, grid,
             l.each(grid.elements, 30, 2));
}

void pad(Launch& l) {
  const auto& t = l.attributes<PadAttributes>();
  launch_pad(l, padding_of(l.in_shape(0), *t.begin(), *t.end()), t.mode(), t.value());
}

void tile(Launch& l) { launch_pad(l, padding_of(l.in_shape(0), l.out_shape(0)), PadMode::wrap, 0); }

void pad_grad(Launch& l) {
  const auto& t = l.attributes<PadAttributes>();
  const Padding p = padding_of(l.out_shape(0), *t.begin(), *t.end());
  std::array<int64_t, kMaxRank> strides{};
  int64_t step = 1;
  for (int a = p.rank - 1; a >= 0; --a) {
    strides[static_cast<size_t>(a)] = step;
    step *= p.axes[static_cast<size_t>(a)].whole;
  }
  const std::vector<uint32_t> words = table_of(
      p, [&](size_t a) { return p.axes[a].source; }, [&](size_t a) { return p.axes[a].crop; },
      [&](size_t a) { return p.axes[a].part; }, [&](size_t a) { return p.axes[a].before; },
      [&](size_t a) { return p.axes[a].whole; }, [&](size_t a) { return strides[a]; });
  const Grid grid = l.over_single_elements(l.out_shape(0).elements());
  Push push;
  push.add(l.in(0), l.out(0)).table(l.table(words)).u32(grid.elements, grid.per_group);
  l.dispatch(shader::pad_grad, {rank_of(p), static_cast<uint32_t>(t.mode())}, push, grid,
             l.each(grid.elements + static_cast<uint64_t>(l.in_shape(0).elements()), 40, 1));
}

// One invocation adds all terms of an element.
const char* refusal(const NodeView& node) {
  const auto& t = node.attributes<PadAttributes>();
  const Padding p = padding_of(node.out(0), *t.begin(), *t.end());
  int64_t terms = 1;
  for (size_t a = 0; a < static_cast<size_t>(p.rank); ++a) {
    const PaddedAxis& axis = p.axes[a];
    const int64_t pads = axis.whole - axis.part;
    terms *= t.mode() == PadMode::edge      ? 1 + pads
             : t.mode() == PadMode::reflect ? 1 + std::min<int64_t>(pads, 2)
             : t.mode() == PadMode::wrap && axis.part > 0
                 ? axis.whole / axis.part + (axis.whole % axis.part != 0 ? 1 : 0)
                 : 1;
  }
  return refuse_loops(node, terms,
                      "An element has more pads than the loops of a software device run.");
}

}  // namespace

BOWLINE_KERNEL(pad, .launch = pad);
BOWLINE_KERNEL(tile, .launch = tile);
BOWLINE_KERNELS_OF_FLOATS(pad_grad, .launch = pad_grad, .refusal = refusal);

}  // namespace bowline::detail::vulkan::pad_kernels
