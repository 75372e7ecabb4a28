//! ops(f32, f16, bf16) MatMul Linear
// Matrix products: lane-shuffle kernels on software devices, shared-memory tiles on GPUs, and a
// kernel for products with few rows on both.
#include <algorithm>

#include "convert.h"
#include "core/products.h"
#include "index.h"

namespace bowline::detail::vulkan::matmul_kernels {
namespace {

// With the addresses of A, B, C and the bias (0: none).
struct Product : MatrixProduct {
  VkDeviceAddress a = 0;
  VkDeviceAddress b = 0;
  VkDeviceAddress c = 0;
  VkDeviceAddress bias = 0;
  std::vector<uint32_t> codes[2] = {};  // of A and B: Launch::code_words(), or empty

  uint32_t format = 0;  // of the quantized matrices, for shaders

  bool has_codes() const { return !codes[0].empty() || !codes[1].empty(); }
};

struct Choice {
  uint32_t shader = 0;
  uint32_t rows = 0;
  uint32_t columns = 0;
  uint32_t local = 0;  // invocations of a workgroup
};

// Tiles of matmul_tile.comp from large to small. An invocation has 64, 64, 32 and 8 results in
// registers; a workgroup has 20, 15, 10 and 5 KiB of shared memory.
struct Tile {
  uint32_t rows;
  uint32_t columns;
  uint32_t local;
};
constexpr Tile kTiles[] = {{128, 128, 256}, {128, 64, 128}, {64, 64, 128}, {32, 32, 128}};
constexpr uint32_t kLargestTileBytes = 20480;

// The number of the largest tile for a kind of device.
size_t first_tile(const PhysicalDevice& physical) {
  if (!physical.has_many_registers()) {
    return 2;
  }
  const bool is_large = physical.vendor() != kIntel &&
                        physical.max_invocations >= kTiles[0].local &&
                        physical.max_shared_bytes >= kLargestTileBytes;
  return is_large ? 0 : 1;
}

// Fewer workgroups do not occupy a GPU; then smaller tiles are faster.
constexpr uint64_t kManyTiles = 64;

const Tile& choose_tile(const PhysicalDevice& physical, const MatrixProduct& p) {
  const auto parts = [](int64_t n, uint32_t size) {
    return (static_cast<uint64_t>(n) + size - 1) / size;
  };
  size_t i = first_tile(physical);
  while (i + 1 < std::size(kTiles) &&
         parts(p.m, kTiles[i].rows) * parts(p.n, kTiles[i].columns) * p.batch.elements() <
             kManyTiles) {
    ++i;
  }
  return kTiles[i];
}

// Bits of matmul_tile.comp: rows of A, rows of B are aligned to 16 bytes.
uint32_t aligned_rows(const Product& p) {
  const auto fits = [&](size_t side, VkDeviceAddress address, int64_t length) {
    const auto& strides = p.batch.strides[side];
    return p.codes[side].empty() && address % 16 == 0 && length % 4 == 0 &&
           std::ranges::all_of(strides, [](int64_t stride) { return stride % 4 == 0; });
  };
  return (fits(0, p.a, p.transpose_a ? p.m : p.k) ? 1u : 0u) |
         (fits(1, p.b, p.transpose_b ? p.k : p.n) ? 2u : 0u);
}

bool all_even(const Product& p, std::initializer_list<int64_t> lengths) {
  bool even = std::ranges::all_of(lengths, [](int64_t n) { return n % 2 == 0; });
  for (const auto& strides : p.batch.strides) {
    for (const int64_t stride : strides) {
      even = even && stride % 2 == 0;
    }
  }
  return even && p.a % 8 == 0 && p.b % 8 == 0;
}

Choice choose(const Launch& l, const Product& p) {
  if (!l.physical().prefers_lanes()) {
    const Tile& tile = choose_tile(l.physical(), p);
    return {p.has_codes() ? shader::matmul_tile_codes : shader::matmul_tile_plain, tile.rows,
            tile.columns, tile.local};
  }
  const uint32_t columns = 4 * l.lanes();
  if (p.has_codes()) {
    return {shader::matmul_lanes_codes, 16, columns, l.lanes()};
  }
  if (!p.transpose_a && p.transpose_b && all_even(p, {p.k})) {
    return {shader::matmul_lanes_nt, 16, columns, l.lanes()};
  }
  if (!p.transpose_a && !p.transpose_b && all_even(p, {p.k, p.n})) {
    return {shader::matmul_lanes_nn, 16, columns, l.lanes()};
  }
  if (p.transpose_a && !p.transpose_b && all_even(p, {p.m, p.n})) {
    return {shader::matmul_lanes_tn, std::min(16u, 2 * l.lanes()), columns, l.lanes()};
  }
  return {shader::matmul_lanes_any, 16, columns, l.lanes()};
}

void multiply(Launch& l, Product p) {
  if (p.k == 0) {
    p.a = p.c;  // empty operands may be at the end of a buffer; the result of their loads is unused
    p.b = p.c;
    p.codes[0].clear();
    p.codes[1].clear();
  }
  const uint64_t batches = p.batch.elements();
  const Choice choice = choose(l, p);
  const auto m = static_cast<uint64_t>(p.m);
  const auto n = static_cast<uint64_t>(p.n);
  Grid grid;
  const bool tiles = !l.physical().prefers_lanes();
  grid.local = choice.local;
  const uint64_t groups_x = (n + choice.columns - 1) / choice.columns;
  const uint64_t groups_y = (m + choice.rows - 1) / choice.rows;
  grid.groups = groups_x * groups_y * batches;
  Push push;
  for (const size_t side : {0, 1}) {
    p.codes[side].empty() ? push.add(side == 0 ? p.a : p.b) : push.table(l.table(p.codes[side]));
  }
  push.add(p.c, p.bias)
      .table(l.table(words_of(p.batch)))
      .u32(m, n, p.k, batches == 1 ? 0 : rank_of(p.batch), p.bias != 0);
  push.u32(groups_x, groups_y, batches, p.transpose_a ? 1 : p.k, p.transpose_a ? p.m : 1);
  push.u32(p.transpose_b ? 1 : p.n, p.transpose_b ? p.k : 1);
  if (p.has_codes()) {
    push.u32((p.codes[0].empty() ? 0u : 1u) | (p.codes[1].empty() ? 0u : 2u) |
             (p.transpose_a ? 4u : 0u) | (p.transpose_b ? 8u : 0u));
  }
  const double products =
      static_cast<double>(batches) * static_cast<double>(p.m) * static_cast<double>(p.n);
  const Work work{products * 2 * static_cast<double>(std::max<int64_t>(p.k, 1)), products * 4};
  if (tiles) {
    l.dispatch(choice.shader, {choice.rows, choice.columns, aligned_rows(p), p.format}, push, grid,
               work);
  } else {
    l.dispatch(choice.shader, {choice.rows, p.format}, push, grid, work);
  }
}

// The most rows for matvec.comp. With more rows, tiles are faster. On software devices it saves
// only the conversion of the weights to f32.
int64_t few_rows(const Launch& l) {
  const bool converts = l.is_encoded(1) || l.type() != DType::f32;
  return !l.physical().uses_cpu_kernels() ? 8 : converts ? 1 : 0;
}

// True if matvec.comp can compute the product: it reads the weights once, in their dtype.
bool has_few_rows(const Launch& l, const MatrixProduct& p) {
  const auto is_aligned = [&](VkDeviceAddress address) { return address % 16 == 0; };
  const bool b_fits = l.is_encoded(1) || (l.in_type(1) == l.type() && is_aligned(l.in(1)));
  const bool bias_fits = l.inputs() < 3 || l.in_type(2) == l.type();
  return p.m <= few_rows(l) && p.batch.elements() == 1 && !p.transpose_a && p.transpose_b &&
         p.k > 0 && p.k % 8 == 0 && !l.is_encoded(0) && l.in_type(0) == l.type() &&
         l.out_type(0) == l.type() && is_aligned(l.in(0)) && b_fits && bias_fits;
}

void multiply_few_rows(Launch& l, const MatrixProduct& p) {
  const auto n = static_cast<uint64_t>(p.n);
  // Columns of C per workgroup: every row of A costs as many registers.
  const uint32_t per = p.m <= 4 ? 4 : 2;
  Grid grid;
  grid.local = l.physical().uses_cpu_kernels() ? l.lanes() : std::max(l.lanes(), 128u);
  grid.groups = (n + per - 1) / per;
  Push push;
  push.add(l.in(0));
  l.is_encoded(1) ? push.table(l.table(l.code_words(1))) : push.add(l.in(1));
  const bool has_bias = l.inputs() > 2;
  push.add(l.out(0), has_bias ? l.in(2) : 0).u32(n, p.k, has_bias);
  const double weights = static_cast<double>(p.n) * static_cast<double>(p.k);
  const auto& shaders = l.is_encoded(1) ? shader::matvec_codes : shader::matvec_plain;
  l.dispatch(
      shaders, {static_cast<uint32_t>(p.m), per, l.is_encoded(1) ? l.code_format(1) : 0}, push,
      grid,
      {weights * 2 * static_cast<double>(p.m), weights * static_cast<double>(size_of(l.type()))});
}

// Offsets in quantized operands have 32 bits.
const char* refusal(const NodeView& v) {
  const bool fits = std::ranges::all_of(v.query.inputs, [](const device::Operand& o) {
    return o.encoding.is_plain() || o.bytes() <= UINT32_MAX;
  });
  return fits ? nullptr : "A quantized matrix has more than 2^32 bytes.";
}

void product(Launch& l) {
  MatrixProduct few = matrix_product_of(l.record());
  if (!few.is_empty()) {
    few.join_rows();
    if (has_few_rows(l, few)) {
      multiply_few_rows(l, few);
      return;
    }
  }
  Wide wide(l);
  Product p{matrix_product_of(l.record()), wide.in(0), wide.in(1), wide.out(0)};
  p.bias = l.inputs() > 2 ? wide.in(2) : 0;
  for (const size_t side : {0, 1}) {
    if (l.is_encoded(side)) {
      p.codes[side] = l.code_words(side);
      p.format = l.code_format(side, l.is_encoded(0) ? 0 : 1);
    }
  }
  if (!p.is_empty()) {
    p.join_rows();
    multiply(l, p);
  }
  wide.finish();
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(mat_mul, .launch = product, .workspace = Wide::bytes, .refusal = refusal,
                          .encoded = 0b11);
BOWLINE_KERNELS_OF_FLOATS(linear, .launch = product, .workspace = Wide::bytes, .refusal = refusal,
                          .encoded = 0b10);

}  // namespace bowline::detail::vulkan::matmul_kernels
