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
  std::vector<int64_t> dims;
  for (int a = 0; a < std::max(p.rank, 1); ++a) {
    dims.push_back(dim(static_cast<size_t>(a)));
  }
  std::vector<uint32_t> words;
  append_divisors(dims, &words);
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
  const auto n = static_cast<uint64_t>(l.out_shape(0).elements());
  const Grid grid = l.over_elements(n);
  const uint64_t bits = stored_bits(l.type(), value);
  Push push;
  push.add(l.in(0)).add(l.out(0)).table(l.table(words)).u32(n).u32(grid.per_group);
  push.u32(static_cast<uint64_t>(first)).u32(bits).u32(bits >> 32);
  l.dispatch(of_bytes(l.type(), shader::pad_1, shader::pad_2, shader::pad_4, shader::pad_8),
             {rank_of(p), static_cast<uint32_t>(mode)}, push, grid, static_cast<double>(n) * 30,
             static_cast<double>(n) * 2 * l.element_bytes());
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
  const auto n = static_cast<uint64_t>(l.out_shape(0).elements());
  const Grid grid = l.over_single_elements(n);
  Push push;
  push.add(l.in(0)).add(l.out(0)).table(l.table(words)).u32(n).u32(grid.per_group);
  const auto terms = static_cast<double>(n + static_cast<uint64_t>(l.in_shape(0).elements()));
  l.dispatch(of_type(l.type(), shader::pad_grad_f32, shader::pad_grad_f16, shader::pad_grad_bf16),
             {rank_of(p), static_cast<uint32_t>(t.mode())}, push, grid, terms * 40,
             terms * l.element_bytes());
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
  return node.physical.is_software() && terms > kMaxIterations
             ? "An element has more pads than the loops of a software device run."
             : nullptr;
}

}  // namespace

BOWLINE_VULKAN_KERNEL(pad, .launch = pad);
BOWLINE_VULKAN_KERNEL(tile, .launch = tile);
BOWLINE_VULKAN_KERNEL(pad_grad, .launch = pad_grad, .refusal = refusal);
BOWLINE_VULKAN_KERNEL(pad_grad_f16, .launch = pad_grad, .refusal = refusal);
BOWLINE_VULKAN_KERNEL(pad_grad_bf16, .launch = pad_grad, .refusal = refusal);

}  // namespace bowline::detail::vulkan::pad_kernels
