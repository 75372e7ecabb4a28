//! ops(f32, f16, bf16) MatMul Linear FusedMatMul
// Matrix products: lane-shuffle kernels on software devices, shared-memory tiles on GPUs, matrix
// units of subgroups or workgroups for 16-bit matrices, and a kernel for products with few rows.
// With few tiles, workgroups divide the k.
#include <algorithm>
#include <bit>
#include <optional>

#include "convert.h"
#include "few_rows.h"
#include "index.h"
#include "product_tiles.h"

namespace bowline::detail::vulkan::matmul_kernels {
namespace {

// With the addresses of A, B, C and the bias (0: none).
struct Product : MatrixProduct {
  VkDeviceAddress a = 0;
  VkDeviceAddress b = 0;
  VkDeviceAddress c = 0;
  VkDeviceAddress bias = 0;
  std::vector<uint32_t> codes[2] = {};  // of A and B: Launch::code_words(), or empty
  bool is_gradient = false;             // C, in f32
  bool is_first = false;                // the first contribution to the gradient
  // Of FusedMatMul, see follow.glsl. `other` and `before` are optional.
  uint32_t follow = 0;
  VkDeviceAddress other = 0, before = 0;

  uint32_t format = 0;  // of the quantized matrices, for shaders

  bool has_codes() const { return !codes[0].empty() || !codes[1].empty(); }
};

struct Choice {
  uint32_t shader = 0;
  uint32_t rows = 0;
  uint32_t columns = 0;
  uint32_t local = 0;  // invocations of a workgroup
};

// A way to compute a product: a candidate of its node.
struct Way {
  enum class Kind : uint8_t {
    few_rows,   // few_rows.h; `size` columns per workgroup
    lanes,      // matmul_lanes.comp; kLaneTiles[size]
    tile,       // matmul_tile.comp; kTiles[size]
    units,      // matmul_units.comp; kUnitTiles[size]
    workgroup,  // matmul_workgroup.comp; kWorkgroupTiles[size]
  };
  Kind kind;
  uint32_t size;
  uint32_t parts = 1;  // of k
  // On matrix units: what follows the product is computed by the kernel that combines parts, even
  // if there is only one.
  bool apart = false;
};

// Tiles of matmul_lanes.comp: rows, and columns of each lane. Loads take most of the time, and the
// largest tile needs the fewest. The variants `any` and `codes` do not have it,
// and its loop may have a step for each k.
struct LaneTile {
  uint32_t rows;
  uint32_t columns;
};
constexpr LaneTile kLaneTiles[] = {{64, 8}, {16, 4}, {8, 4}, {4, 4}};

// The largest tile, if the product is worth its code, which takes a second to compile, and has
// tiles for several threads.
const LaneTile& choose_lane_tile(const MatrixProduct& p, uint32_t lanes) {
  constexpr double kManyProducts = 1 << 25;
  constexpr uint64_t kManyTiles = 4;
  const LaneTile& large = kLaneTiles[0];
  const double products = static_cast<double>(elements_of_c(p)) * static_cast<double>(p.k);
  const uint64_t tiles =
      tiles_along(p.m, large.rows) * tiles_along(p.n, large.columns * lanes) * p.batch.elements();
  return products >= kManyProducts && tiles >= kManyTiles ? large : kLaneTiles[1];
}

// Bits 0 and 1 of LAYOUT: the rows of A, of B are aligned to 16 bytes, which have `per_vector`
// elements.
uint32_t aligned_rows(const Product& p, int64_t per_vector) {
  const auto fits = [&](size_t side, VkDeviceAddress address) {
    return p.codes[side].empty() && address % 16 == 0 && has_whole_vectors(p, side, per_vector);
  };
  return (fits(0, p.a) ? 1u : 0u) | (fits(1, p.b) ? 2u : 0u);
}

bool all_even(const Product& p, std::initializer_list<int64_t> lengths) {
  bool even = std::ranges::all_of(lengths, [](int64_t n) { return n % 2 == 0; });
  for (const auto& strides : p.batch.strides) {
    for (const int64_t stride : strides) {
      even = even && stride % 2 == 0;
    }
  }
  return even && p.a % 8 == 0 && p.b % 8 == 0 && p.c % 8 == 0;
}

Choice choose(const Launch& l, const Product& p, const std::optional<Way>& way) {
  if (!l.physical().prefers_lanes()) {
    const Tile& tile = way ? kTiles[way->size] : choose_tile(l.physical(), p);
    return {p.has_codes() ? shader::matmul_tile_codes : shader::matmul_tile_plain, tile.rows,
            tile.columns, tile.local};
  }
  const bool nt = !p.transpose_a && p.transpose_b && all_even(p, {p.k});
  const bool nn = !p.transpose_a && !p.transpose_b && all_even(p, {p.k, p.n});
  const bool tn = p.transpose_a && !p.transpose_b && all_even(p, {p.m, p.n});
  const bool has_large = !p.has_codes() && (nt || nn || tn) && p.k <= kMaxIterations;
  const LaneTile& tile = !has_large ? kLaneTiles[std::max(way ? way->size : 0, 1u)]
                         : way      ? kLaneTiles[way->size]
                                    : choose_lane_tile(p, l.lanes());
  const uint32_t shader = p.has_codes() ? shader::matmul_lanes_codes
                          : nt          ? shader::matmul_lanes_nt
                          : nn          ? shader::matmul_lanes_nn
                          : tn          ? shader::matmul_lanes_tn
                                        : shader::matmul_lanes_any;
  return {shader, tile.rows, tile.columns * l.lanes(), l.lanes()};
}

// The push constants of lib/matmul.glsl, for workgroups that compute `rows` x `columns`. Sets the
// number of workgroups.
Push operands(Launch& l, const Product& p, uint32_t rows, uint32_t columns, const Parts& parts,
              Grid* grid) {
  const uint64_t batches = p.batch.elements();
  const uint64_t groups_x = tiles_along(p.n, columns), groups_y = tiles_along(p.m, rows);
  grid->groups = groups_x * groups_y * batches * parts.count;
  Push push;
  for (const size_t side : {0, 1}) {
    p.codes[side].empty() ? push.add(side == 0 ? p.a : p.b) : push.table(l.table(p.codes[side]));
  }
  push.add(p.c, p.bias)
      .table(l.table(words_of(p.batch)))
      .add(p.is_gradient ? l.step() : p.c, p.other == 0 ? p.c : p.other, p.before)
      .u32(p.m, p.n, p.k, batches == 1 ? 0 : rank_of(p.batch), p.bias != 0);
  push.u32(groups_x, groups_y, batches * parts.count);
  push.u32(p.transpose_a ? 1 : p.k, p.transpose_a ? p.m : 1);
  push.u32(p.transpose_b ? 1 : p.n, p.transpose_b ? p.k : 1, parts.size, p.is_first);
  return push;
}

Work work_of(const Product& p, double bytes) {
  const double products =
      static_cast<double>(p.batch.elements()) * static_cast<double>(p.m) * static_cast<double>(p.n);
  return {products * 2 * static_cast<double>(std::max<int64_t>(p.k, 1)), products * bytes};
}

// The product whose C are the results of the parts.
Product product_of_parts(const Product& p, VkDeviceAddress results) {
  Product of_parts = p;
  of_parts.c = results;
  of_parts.bias = 0;
  of_parts.is_gradient = false;
  of_parts.follow = 0;
  return of_parts;
}

// Adds the results of the parts. `type` is the dtype of C, the bias and what follows, if C is no
// gradient.
void add_parts(Launch& l, DType type, const Product& p, VkDeviceAddress results,
               const Parts& parts) {
  l.barrier();
  const uint64_t elements = elements_of_c(p);
  const Grid grid = l.over_elements(elements);
  Push push;
  push.add(results, p.c, p.bias == 0 ? p.c : p.bias, p.is_gradient ? l.step() : p.c,
           p.other == 0 ? p.c : p.other, p.before)
      .u32(elements, p.n, p.bias != 0, grid.per_group, p.is_first);
  const double sums = static_cast<double>(elements * parts.count);
  l.dispatch(variant(shader::matmul_combine, p.is_gradient ? DType::f32 : type),
             {static_cast<uint32_t>(parts.count), p.is_gradient, p.follow}, push, grid,
             {sums, (sums + static_cast<double>(elements)) * sizeof(float)});
}

void multiply(Launch& l, const Product& all, VkDeviceAddress workspace,
              const std::optional<Way>& way, uint32_t most_parts) {
  const Parts parts = parts_of(all.k, most_parts);
  const Product p = parts.count == 1 ? all : product_of_parts(all, workspace);
  const Choice choice = choose(l, p, way);
  Grid grid;
  grid.local = choice.local;
  Push push = operands(l, p, choice.rows, choice.columns, parts, &grid);
  if (p.has_codes()) {
    push.u32((p.codes[0].empty() ? 0u : 1u) | (p.codes[1].empty() ? 0u : 2u) |
             (p.transpose_a ? 4u : 0u) | (p.transpose_b ? 8u : 0u));
  }
  const Work work = work_of(p, sizeof(float));
  if (l.physical().prefers_lanes()) {
    l.dispatch(choice.shader, {choice.rows, p.format, choice.columns / l.lanes()}, push, grid,
               work);
  } else {
    l.dispatch(choice.shader,
               {choice.rows, choice.columns, aligned_rows(p, 4), p.format, p.is_gradient, p.follow},
               push, grid, work);
  }
  if (parts.count != 1) {
    add_parts(l, DType::f32, all, workspace, parts);
  }
}

// The operands of a node behind A, B and C. -1: it has none.
struct Others {
  template <class Node>
  explicit Others(const Node& node) {
    if (node.op != Op::FusedMatMul) {
      bias = node.inputs.size() > 2 ? 2 : -1;
      return;
    }
    constexpr uint32_t kAddend = 1, kSlope = 2, kGelu = 4;  // of follow.glsl
    const auto& t = node.attributes.template as<FusedMatMulAttributes>();
    const FusedInputs inputs(t);
    bias = inputs.bias;
    addend = inputs.addend;
    slope = inputs.slope;
    before = t.gelu() ? 1 : -1;
    follow = (addend < 0 ? 0u : kAddend) | (slope < 0 ? 0u : kSlope) | (before < 0 ? 0u : kGelu);
  }
  int bias = -1, addend = -1, slope = -1;
  int before = -1;  // an output
  uint32_t follow = 0;
};

// True if the result of the node is a gradient in f32. A query does not tell.
bool has_gradient(const device::Record& record) { return record.accumulate != 0; }
bool has_gradient(const device::NodeQuery&) { return false; }

// True if matrix units compute the node: its matrices have the storage dtype, or the result is a
// gradient.
template <class Node>
bool runs_on_units(const PhysicalDevice& physical, const Node& node) {
  const auto fits = [&](const device::Operand& o) {
    return o.encoding.is_plain() && o.dtype == node.type;
  };
  return physical.matrix_unit(node.type) != nullptr && std::ranges::all_of(node.inputs, fits) &&
         (has_gradient(node) || std::ranges::all_of(node.outputs, fits));
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

Regions regions_of(const PhysicalDevice& physical, const Tile& tile, const MatrixUnit& unit) {
  return regions_of(tile, unit, tile.local / physical.unit_subgroup());
}

// True if the device can run a tile, or if it is the smallest.
bool fits(const PhysicalDevice& physical, const Tile& tile, const MatrixUnit& unit) {
  const uint32_t bytes = shared_bytes(tile, unit, regions_of(physical, tile, unit));
  return &tile + 1 == std::end(kUnitTiles) ||
         (tile.local <= physical.max_invocations && bytes <= physical.max_shared_bytes);
}

const Tile& choose_unit_tile(const PhysicalDevice& physical, const MatrixUnit& unit,
                             const MatrixProduct& p) {
  const Tile* tile = kUnitTiles;
  while (tile + 1 != std::end(kUnitTiles) &&
         (has_few(physical, *tile, p) || !fits(physical, *tile, unit))) {
    ++tile;
  }
  return *tile;
}

// The tile of matmul_workgroup.comp for the product. Null: subgroups multiply matrices.
const Tile* workgroup_tile(const Launch& l, const Product& p, const std::optional<Way>& way) {
  if (aligned_rows(p, 8) != 3) {
    return nullptr;
  }
  if (way) {
    return way->kind == Way::Kind::workgroup ? &kWorkgroupTiles[way->size] : nullptr;
  }
  return choose_workgroup_tile(l.physical(), l.type(), p);
}

// True if what follows a product on matrix units is computed by the kernel that combines parts.
// With the code for it, NVIDIA's driver 580 makes a kernel that is six times as slow (H200).
bool follows_apart(const PhysicalDevice& physical, const MatrixProduct& p, uint32_t follow,
                   const std::optional<Way>& way) {
  constexpr uint64_t kMostBytes = uint64_t{1} << 29;  // of results in f32
  return follow != 0 && (way ? way->apart : physical.vendor() == kNvidia) &&
         elements_of_c(p) <= kMostBytes / sizeof(float);
}

void multiply_on_units(Launch& l, const Product& all, const std::optional<Way>& way,
                       uint32_t most_parts) {
  const PhysicalDevice& physical = l.physical();
  const Parts parts = parts_of(all.k, most_parts);
  const bool combines = parts.count != 1 || follows_apart(physical, all, all.follow, way);
  const Product p = combines ? product_of_parts(all, l.workspace()) : all;
  const bool c_is_f32 = combines || p.is_gradient;
  const bool c_is_aligned = p.n % 4 == 0 && p.c % (c_is_f32 ? 16 : 8) == 0;
  const uint32_t layout = aligned_rows(p, 8) | (c_is_aligned ? 4u : 0u) |
                          (p.transpose_a ? 0u : 8u) | (p.transpose_b ? 16u : 0u) |
                          (c_is_f32 ? 32u : 0u) | (p.is_gradient ? 64u : 0u);
  Grid grid;
  if (const Tile* const whole = workgroup_tile(l, p, way); whole != nullptr) {
    grid.local = whole->local;
    const Push push = operands(l, p, whole->rows, whole->columns, parts, &grid);
    l.dispatch(shader::matmul_workgroup,
               {whole->rows, whole->columns, layout, p.follow, rows_of_results(physical, *whole),
                kWorkgroupDepth},
               push, grid, work_of(p, 2));
  } else {
    const MatrixUnit& unit = *physical.matrix_unit(l.type());
    const Tile& tile = way && way->kind == Way::Kind::units ? kUnitTiles[way->size]
                                                            : choose_unit_tile(physical, unit, p);
    const Regions r = regions_of(physical, tile, unit);
    grid.subgroup = physical.unit_subgroup();
    grid.local = r.count() * grid.subgroup;
    const Push push = operands(l, p, tile.rows, tile.columns, parts, &grid);
    l.dispatch(
        p.follow == 0 ? shader::matmul_units_store : shader::matmul_units_follow,
        {tile.rows, tile.columns, layout, p.follow, r.rows, r.columns, unit.m, unit.n, unit.k},
        push, grid, work_of(p, 2));
  }
  if (combines) {
    add_parts(l, l.type(), all, l.workspace(), parts);
  }
}

// True if matvec.comp or matvec_columns.comp can compute the product: they read the weights once,
// in their dtype.
template <class Node>
bool has_few_rows(const PhysicalDevice& physical, const Node& node, const MatrixProduct& p) {
  const auto is_own = [&](const device::Operand& o) {
    return o.encoding.is_plain() && o.dtype == node.type;
  };
  const bool quantized = !node.inputs[1].encoding.is_plain();
  const bool bias_fits = node.inputs.size() < 3 || node.inputs[2].dtype == node.type;
  return has_few_rows(physical, p.m, node.type, quantized) && p.batch.elements() == 1 &&
         !p.transpose_a && p.k > 0 && is_own(node.inputs[0]) &&
         node.outputs[0].dtype == node.type && (quantized || is_own(node.inputs[1])) && bias_fits;
}

// The ways to compute a product. They depend on no address, so that a query can count them.
template <class Node>
std::vector<Way> ways_of(const PhysicalDevice& physical, const Node& node) {
  std::vector<Way> ways;
  MatrixProduct p = matrix_product_of(node);
  if (p.is_empty()) {
    return ways;
  }
  p.join_rows();
  const bool has_rows = has_few_rows(physical, node, p);
  const uint32_t follow = Others(node).follow;
  const auto add_ways = [&](Way::Kind kind, uint32_t size, const Tile& tile) {
    const uint32_t most = has_rows ? 1 : most_parts(physical, tile, p);
    for (uint32_t count = 1; count <= most; count *= 2) {
      ways.push_back({kind, size, count});
    }
  };
  const auto add_unit_ways = [&](Way::Kind kind, uint32_t size, const Tile& tile) {
    add_ways(kind, size, tile);
    if (const Way apart{kind, size, 1, true}; follows_apart(physical, p, follow, apart)) {
      ways.push_back(apart);
    }
  };
  if (has_rows) {
    const bool quantized = !node.inputs[1].encoding.is_plain();
    for (const uint32_t columns : few_rows_columns(p.m, p.transpose_b, quantized)) {
      ways.push_back({Way::Kind::few_rows, columns});
    }
  }
  if (runs_on_units(physical, node)) {
    for (uint32_t i = 0; i < std::size(kUnitTiles); ++i) {
      if (fits(physical, kUnitTiles[i], *physical.matrix_unit(node.type))) {
        add_unit_ways(Way::Kind::units, i, kUnitTiles[i]);
      }
    }
    for (uint32_t i = 0; i < std::size(kWorkgroupTiles); ++i) {
      const Tile& tile = kWorkgroupTiles[i];
      if (fits_workgroup(physical, tile, node.type) && has_whole_tiles(tile, p)) {
        add_unit_ways(Way::Kind::workgroup, i, tile);
      }
    }
  }
  if (physical.prefers_lanes()) {
    for (uint32_t i = 0; i < std::size(kLaneTiles); ++i) {
      ways.push_back({Way::Kind::lanes, i});
    }
    return ways;
  }
  for (uint32_t i = 0; i < std::size(kTiles); ++i) {
    if (fits(physical, kTiles[i])) {
      add_ways(Way::Kind::tile, i, kTiles[i]);
    }
  }
  return ways;
}

uint32_t candidates(const NodeView& v) {
  return static_cast<uint32_t>(ways_of(v.physical, v.query).size());
}

// Only the kernels for few rows and the tiles have what follows.
uint32_t fused_candidates(const NodeView& v) {
  return v.physical.prefers_lanes() ? 0 : candidates(v);
}

// The way of the candidate of the node. Empty: the tables choose.
template <class Node>
std::optional<Way> way_of(const PhysicalDevice& physical, const Node& node) {
  if (node.candidate == device::kNoCandidate) {
    return {};
  }
  const std::vector<Way> ways = ways_of(physical, node);
  return node.candidate < ways.size() ? std::optional(ways[node.candidate]) : std::nullopt;
}

// The most parts of k on matrix units, or in f32.
template <class Node>
uint32_t parts_on_units(const PhysicalDevice& physical, const Node& node, const MatrixProduct& p,
                        const std::optional<Way>& way) {
  if (way) {
    return way->parts;
  }
  const Tile& tile = choose_unit_tile(physical, *physical.matrix_unit(node.type), p);
  return has_few_rows(physical, node, p) ? 1 : choose_parts(physical, tile, p);
}
template <class Node>
uint32_t parts_in_f32(const PhysicalDevice& physical, const Node& node, const MatrixProduct& p,
                      const std::optional<Way>& way) {
  return way                               ? way->parts
         : has_few_rows(physical, node, p) ? 1
                                           : choose_parts(physical, choose_tile(physical, p), p);
}

bool is(const std::optional<Way>& way, Way::Kind kind) { return !way || way->kind == kind; }
bool is_on_units(const std::optional<Way>& way) {
  return is(way, Way::Kind::units) || is(way, Way::Kind::workgroup);
}

// Offsets in quantized operands have 32 bits.
const char* refusal(const NodeView& v) {
  const bool fits = std::ranges::all_of(v.query.inputs, [](const device::Operand& o) {
    return o.encoding.is_plain() || o.bytes() <= UINT32_MAX;
  });
  return fits ? nullptr : "A quantized matrix has more than 2^32 bytes.";
}

void product_of_few_rows(Launch& l, const Product& p, const Others& others, uint32_t columns) {
  const auto in = [&](int i) { return i < 0 ? 0 : l.in(static_cast<size_t>(i)); };
  FewRowsProduct few;
  few.m = static_cast<uint32_t>(p.m);
  few.k = static_cast<uint32_t>(p.k);
  few.transpose_b = p.transpose_b;
  few.parts = {{.n = static_cast<uint32_t>(p.n), .bias = in(others.bias), .y = l.out(0)}};
  few.addend = in(others.addend);
  few.sums = others.before < 0 ? 0 : l.out(1);
  few.activation = others.before < 0 ? ProductActivation::none : ProductActivation::gelu_tanh;
  multiply_few_rows(l, few, columns);
}

void product(Launch& l) {
  Product p{matrix_product_of(l.record())};
  const ListEntry gradient = l.is_gradient(0) ? l.gradient(0) : ListEntry();
  p.is_gradient = l.is_gradient(0);
  p.is_first = gradient.first;
  if (p.is_empty() || (p.is_gradient && gradient.elements == 0)) {
    return;
  }
  p.join_rows();
  const Others others(l.record());
  const std::optional<Way> way = way_of(l.physical(), l.record());
  if (is(way, Way::Kind::few_rows) && has_few_rows(l.physical(), l.record(), p)) {
    return product_of_few_rows(l, p, others, way ? way->size : 0);
  }
  const auto set = [&](const auto& from) {
    const auto in = [&](int i) { return i < 0 ? 0 : from.in(static_cast<size_t>(i)); };
    p.a = from.in(0);
    p.b = from.in(1);
    p.c = from.out(0);
    p.bias = in(others.bias);
    p.other = in(others.addend < 0 ? others.slope : others.addend);
    p.before = others.before < 0 ? 0 : from.out(1);
    p.follow = others.follow;
    if (p.k == 0) {
      p.a = p.b =
          p.c;  // empty operands may be at the end of a buffer; the result of their loads is unused
    }
  };
  if (is_on_units(way) && runs_on_units(l.physical(), l.record())) {
    set(l);
    multiply_on_units(l, p, way, parts_on_units(l.physical(), l.record(), p, way));
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
  multiply(l, p, wide.workspace(), way, parts_in_f32(l.physical(), l.record(), p, way));
  wide.finish();
}

// Matrix units and the kernels for few rows read operands in their dtype. Other kernels convert
// them to f32.
uint64_t workspace(const NodeView& v) {
  MatrixProduct p = matrix_product_of(v.query);
  if (p.is_empty()) {
    return 0;
  }
  p.join_rows();
  const std::optional<Way> way = way_of(v.physical, v.query);
  if (is(way, Way::Kind::few_rows) && has_few_rows(v.physical, v.query, p)) {
    return 0;
  }
  if (is_on_units(way) && runs_on_units(v.physical, v.query)) {
    const uint64_t apart = follows_apart(v.physical, p, Others(v.query).follow, way)
                               ? elements_of_c(p) * sizeof(float)
                               : 0;
    return std::max(apart, parts_bytes(p, parts_on_units(v.physical, v.query, p, way)));
  }
  return Wide::bytes(v) + parts_bytes(p, parts_in_f32(v.physical, v.query, p, way));
}

const char* fused_refusal(const NodeView& v) {
  const auto& t = v.attributes<FusedMatMulAttributes>();
  const MatrixProduct p = matrix_product_of(v.query);
  if (t.sum_a() || t.sum_b() || (t.addend() && t.gelu_grad())) {
    return "No kernel adds these to a product.";
  }
  const bool quantized = !v.query.inputs[1].encoding.is_plain();
  const auto is_other = [&](const device::Operand& o) {
    return o.dtype != v.query.type && !(quantized && &o == &v.query.inputs[1]);
  };
  if (std::ranges::any_of(v.query.inputs, is_other) ||
      std::ranges::any_of(v.query.outputs, is_other)) {
    return "The operands have several dtypes.";
  }
  if (has_few_rows(v.physical, p.m, v.query.type, quantized)) {
    return t.transpose_a() || t.gelu_grad() || p.k == 0 ? "The product is not one of decoding."
                                                        : refusal(v);
  }
  return !v.physical.prefers_lanes() ? refusal(v)
         : p.m <= 1                  ? "Plain products of one row in f32 are faster without fusion."
                                     : "Products of many rows are faster without fusion.";
}

// Kernels for few rows and those of software devices add to no gradient. A gradient needs the step
// buffer, and devices without addresses can bind few buffers.
uint32_t accumulates(const NodeView& v) {
  MatrixProduct p = matrix_product_of(v.query);
  p.join_rows();
  return !p.is_empty() && v.physical.has_buffer_addresses && !v.physical.prefers_lanes() &&
         !has_few_rows(v.physical, v.query, p);
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(mat_mul, .launch = product, .workspace = workspace,
                          .candidates = candidates, .refusal = refusal, .accumulates = accumulates,
                          .encoded = 0b11);
BOWLINE_KERNELS_OF_FLOATS(fused_mat_mul, .launch = product, .workspace = workspace,
                          .candidates = fused_candidates, .refusal = fused_refusal,
                          .encoded = 0b10);
BOWLINE_KERNELS_OF_FLOATS(linear, .launch = product, .workspace = workspace,
                          .candidates = candidates, .refusal = refusal, .encoded = 0b10);

}  // namespace bowline::detail::vulkan::matmul_kernels
