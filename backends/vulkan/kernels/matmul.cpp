//! ops(f32, f16, bf16) MatMul Linear
// Matrix products: lane-shuffle kernels on software devices, shared-memory tiles on GPUs, matrix
// units for 16-bit matrices, and a kernel for products with few rows.
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

uint64_t parts(int64_t n, uint32_t size) { return (static_cast<uint64_t>(n) + size - 1) / size; }

bool has_few(const PhysicalDevice& physical, const Tile& tile, const MatrixProduct& p) {
  return parts(p.m, tile.rows) * parts(p.n, tile.columns) * p.batch.elements() <
         physical.many_groups;
}

const Tile& choose_tile(const PhysicalDevice& physical, const MatrixProduct& p) {
  size_t i = first_tile(physical);
  while (i + 1 < std::size(kTiles) && has_few(physical, kTiles[i], p)) {
    ++i;
  }
  return kTiles[i];
}

// Bits 0 and 1 of LAYOUT: the rows of A, of B are aligned to 16 bytes, which have `per_vector`
// elements.
uint32_t aligned_rows(const Product& p, int64_t per_vector) {
  const auto fits = [&](size_t side, VkDeviceAddress address, int64_t length) {
    const auto& strides = p.batch.strides[side];
    return p.codes[side].empty() && address % 16 == 0 && length % per_vector == 0 &&
           std::ranges::all_of(strides, [&](int64_t stride) { return stride % per_vector == 0; });
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

// The push constants of lib/matmul.glsl, for workgroups that compute `rows` x `columns`. Sets the
// number of workgroups.
Push operands(Launch& l, const Product& p, uint32_t rows, uint32_t columns, Grid* grid) {
  const uint64_t batches = p.batch.elements();
  const uint64_t groups_x = parts(p.n, columns), groups_y = parts(p.m, rows);
  grid->groups = groups_x * groups_y * batches;
  Push push;
  for (const size_t side : {0, 1}) {
    p.codes[side].empty() ? push.add(side == 0 ? p.a : p.b) : push.table(l.table(p.codes[side]));
  }
  push.add(p.c, p.bias)
      .table(l.table(words_of(p.batch)))
      .u32(p.m, p.n, p.k, batches == 1 ? 0 : rank_of(p.batch), p.bias != 0);
  push.u32(groups_x, groups_y, batches, p.transpose_a ? 1 : p.k, p.transpose_a ? p.m : 1);
  push.u32(p.transpose_b ? 1 : p.n, p.transpose_b ? p.k : 1);
  return push;
}

Work work_of(const Product& p, double bytes) {
  const double products =
      static_cast<double>(p.batch.elements()) * static_cast<double>(p.m) * static_cast<double>(p.n);
  return {products * 2 * static_cast<double>(std::max<int64_t>(p.k, 1)), products * bytes};
}

void multiply(Launch& l, const Product& p) {
  const Choice choice = choose(l, p);
  Grid grid;
  grid.local = choice.local;
  Push push = operands(l, p, choice.rows, choice.columns, &grid);
  if (p.has_codes()) {
    push.u32((p.codes[0].empty() ? 0u : 1u) | (p.codes[1].empty() ? 0u : 2u) |
             (p.transpose_a ? 4u : 0u) | (p.transpose_b ? 8u : 0u));
  }
  const Work work = work_of(p, sizeof(float));
  if (l.physical().prefers_lanes()) {
    l.dispatch(choice.shader, {choice.rows, p.format}, push, grid, work);
  } else {
    l.dispatch(choice.shader, {choice.rows, choice.columns, aligned_rows(p, 4), p.format}, push,
               grid, work);
  }
}

// True if matrix units compute the node: its matrices have the storage dtype.
template <class Node>
bool runs_on_units(const PhysicalDevice& physical, const Node& node) {
  const auto fits = [&](const device::Operand& o) {
    return o.encoding.is_plain() && o.dtype == node.type;
  };
  return physical.matrix_unit(node.type) != nullptr && std::ranges::all_of(node.inputs, fits) &&
         std::ranges::all_of(node.outputs, fits);
}

// Tiles of matmul_units.comp from large to small. `local` is the number of invocations that have
// 64, 32 and 8 results in registers.
constexpr Tile kUnitTiles[] = {{128, 128, 256}, {64, 64, 128}, {32, 32, 128}};

// The rows and columns of subgroups that share a tile.
struct Regions {
  uint32_t rows = 1;
  uint32_t columns = 1;
  uint32_t count() const { return rows * columns; }
};

// At most `subgroups`. A region has at least one matrix.
Regions regions_of(const Tile& tile, const MatrixUnit& unit, uint32_t subgroups) {
  Regions r;
  while (r.count() < subgroups) {
    const uint32_t height = tile.rows / r.rows, width = tile.columns / r.columns;
    const bool can_split_rows = height >= 2 * unit.m, can_split_columns = width >= 2 * unit.n;
    if (can_split_columns && (width >= height || !can_split_rows)) {
      r.columns *= 2;
    } else if (can_split_rows) {
      r.rows *= 2;
    } else {
      break;
    }
  }
  return r;
}

// Bytes of shared memory of matmul_units.comp: tiles of A and B along K, or results.
uint32_t shared_bytes(const Tile& tile, const MatrixUnit& unit, const Regions& regions) {
  constexpr uint32_t kVector = 16, kLineAlongK = 5, kFloats = 4;
  const uint32_t operands = (tile.rows + tile.columns) * kLineAlongK;
  const uint32_t results =
      regions.count() * unit.m * (tile.columns / regions.columns / kFloats + 1);
  return std::max(operands, results) * kVector;
}

void multiply_on_units(Launch& l, const Product& p) {
  const PhysicalDevice& physical = l.physical();
  const MatrixUnit& unit = *physical.matrix_unit(l.type());
  const uint32_t subgroup = physical.unit_subgroup();
  const auto regions = [&](const Tile& t) { return regions_of(t, unit, t.local / subgroup); };
  const Tile* tile = kUnitTiles;
  while (tile + 1 != std::end(kUnitTiles) &&
         (has_few(physical, *tile, p) || tile->local > physical.max_invocations ||
          shared_bytes(*tile, unit, regions(*tile)) > physical.max_shared_bytes)) {
    ++tile;
  }
  const Regions r = regions(*tile);
  const bool c_is_aligned = p.n % 4 == 0 && p.c % 8 == 0;
  const uint32_t layout = aligned_rows(p, 8) | (c_is_aligned ? 4u : 0u) |
                          (p.transpose_a ? 0u : 8u) | (p.transpose_b ? 16u : 0u);
  Grid grid;
  grid.local = r.count() * subgroup;
  grid.subgroup = subgroup;
  const Push push = operands(l, p, tile->rows, tile->columns, &grid);
  l.dispatch(shader::matmul_units,
             {tile->rows, tile->columns, layout, r.rows, r.columns, unit.m, unit.n, unit.k}, push,
             grid, work_of(p, 2));
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
  Product p{matrix_product_of(l.record())};
  if (p.is_empty()) {
    return;
  }
  p.join_rows();
  if (has_few_rows(l, p)) {
    multiply_few_rows(l, p);
    return;
  }
  const auto set = [&](const auto& from) {
    p.a = from.in(0);
    p.b = from.in(1);
    p.c = from.out(0);
    p.bias = l.inputs() > 2 ? from.in(2) : 0;
    if (p.k == 0) {
      p.a = p.b =
          p.c;  // empty operands may be at the end of a buffer; the result of their loads is unused
    }
  };
  if (runs_on_units(l.physical(), l.record())) {
    set(l);
    multiply_on_units(l, p);
    return;
  }
  Wide wide(l);
  set(wide);
  for (const size_t side : {0, 1}) {
    if (l.is_encoded(side) && p.k != 0) {
      p.codes[side] = l.code_words(side);
      p.format = l.code_format(side, l.is_encoded(0) ? 0 : 1);
    }
  }
  multiply(l, p);
  wide.finish();
}

uint64_t workspace(const NodeView& v) {
  return runs_on_units(v.physical, v.query) ? 0 : Wide::bytes(v);
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(mat_mul, .launch = product, .workspace = workspace, .refusal = refusal,
                          .encoded = 0b11);
BOWLINE_KERNELS_OF_FLOATS(linear, .launch = product, .workspace = workspace, .refusal = refusal,
                          .encoded = 0b10);

}  // namespace bowline::detail::vulkan::matmul_kernels
