//! ops(f32, f16, bf16) Attention AttentionGrad PackedAttention PackedAttentionGrad
// Attention with memory linear in the length, and its gradient without atomics. On software
// devices, subgroups have rows in registers; on GPUs, workgroups have tiles in shared memory.
#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <utility>

#include "convert.h"
#include "index.h"

namespace bowline::detail::vulkan::attention_kernels {
namespace {

// The loops over the head are unrolled. With a larger head, the compiled kernels would be too
// large.
constexpr int64_t kMaxHeadDim = 256;
// Above this head size, the lanes of a subgroup share a row, because of the compile time of the
// driver: 12 s for the gradient with 256 elements.
constexpr uint32_t kMostInLane = 128;

const char* refusal(const NodeView& node) {
  return node.in(0)[3] > kMaxHeadDim ? "Attention takes heads of up to 256 elements." : nullptr;
}

// Offsets in quantized operands have 32 bits.
const char* forward_refusal(const NodeView& node) {
  const device::Operand& k = node.query.inputs[1];
  const device::Operand& v = node.query.inputs[2];
  if (k.encoding.is_plain() != v.encoding.is_plain()) {
    return "Only one of keys and values is quantized.";
  }
  return !k.encoding.is_plain() && std::max(k.bytes(), v.bytes()) > UINT32_MAX
             ? "The quantized keys or values have more than 2^32 bytes."
             : refusal(node);
}

// The attributes of the operators.
struct Form {
  explicit Form(const AttentionAttributes& t)
      : causal(t.causal()),
        scale(t.scale()),
        softcap(t.softcap()),
        window(t.window()),
        mask(t.mask()) {}
  explicit Form(const PackedAttentionAttributes& t)
      : causal(t.causal()),
        scale(t.scale()),
        softcap(t.softcap()),
        window(t.window()),
        packed(static_cast<uint32_t>(t.heads() + 2 * t.kv_heads())) {}
  bool causal;
  float scale, softcap;
  uint32_t window;
  file::AttentionMask mask = file::AttentionMask::none;
  uint32_t packed = 0;  // heads of a row of qkv; 0: q, k and v are apart
};

bool is_packed(Op op) { return op == Op::PackedAttention || op == Op::PackedAttentionGrad; }

Form form_of(const Launch& l) {
  return is_packed(l.op()) ? Form(l.attributes<PackedAttentionAttributes>())
                           : Form(l.attributes<AttentionAttributes>());
}

bool has_codes(const Launch& l) { return !is_packed(l.op()) && l.is_encoded(1); }

struct Operands {
  VkDeviceAddress q = 0, k = 0, v = 0, mask = 0;
  VkDeviceAddress o = 0, lse = 0;
  VkDeviceAddress d_o = 0, d_q = 0, d_k = 0, d_v = 0;
  VkDeviceAddress delta = 0;
};

struct Sizes {
  uint64_t batch, queries, heads, dim, keys, kv_heads;
};

// Of device::Record and device::NodeQuery.
template <class Node>
Sizes sizes_of(const Node& node) {
  const auto at = [](const Shape& s, int axis) { return static_cast<uint64_t>(s[axis]); };
  const Shape& q = node.inputs[0].shape;
  if (is_packed(node.op)) {
    const auto& t = node.attributes.template as<PackedAttentionAttributes>();
    const auto heads = static_cast<uint64_t>(t.heads());
    const auto kv_heads = static_cast<uint64_t>(t.kv_heads());
    return {at(q, 0), at(q, 1), heads, at(q, 2) / (heads + 2 * kv_heads), at(q, 1), kv_heads};
  }
  const Shape& k = node.inputs[1].shape;
  return {at(q, 0), at(q, 1), at(q, 2), at(q, 3), at(k, 1), at(k, 2)};
}

// The keys in parts, each of `keys` keys. keys = 0: undivided.
struct KeyParts {
  uint64_t keys = 0;
  uint64_t count = 1;
};

// The table that the shaders call `details`.
std::vector<uint32_t> details_of(const Launch& l, const Operands& o, size_t mask,
                                 const KeyParts& parts) {
  const Form form = form_of(l);
  const bool packed = form.packed != 0;
  Strides steps{};
  if (form.mask == file::AttentionMask::additive) {
    const Shape& q = l.in_shape(0);
    steps = broadcast_strides(l.in_shape(mask), Shape{q[0], q[2], q[1], l.in_shape(1)[1]});
  }
  std::vector<uint32_t> words = {packed ? 0 : l.count_word(0, 1), packed ? 0 : l.count_word(1, 1),
                                 l.node(), static_cast<uint32_t>(o.mask % 4)};
  for (size_t a = 0; a < 4; ++a) {
    words.push_back(static_cast<uint32_t>(steps[a]));
  }
  words.push_back(form.causal);
  words.push_back(static_cast<uint32_t>(parts.keys));
  words.push_back(static_cast<uint32_t>(parts.count));
  return words;
}

// `counters` are those of the workgroups of attention_few.comp (Launch::counters).
Push push_of(Launch& l, const Operands& o, const Sizes& s, size_t mask, const KeyParts& parts,
             std::optional<uint32_t> counters = {}) {
  const double scale = form_of(l).scale;
  Push push;
  push.add(o.q);
  for (const size_t i : {1, 2}) {
    has_codes(l) ? push.table(l.table(l.code_words(i))) : push.add(i == 1 ? o.k : o.v);
  }
  push.add(o.o, o.lse, o.d_o, o.d_q, o.d_k, o.d_v);
  counters ? push.table(*counters) : push.add(o.delta);
  push.add(l.step(), o.mask / 4 * 4)
      .table(l.table(details_of(l, o, mask, parts)))
      .u32(s.batch, s.heads, s.kv_heads, s.queries, s.keys);
  push.f32(scale == 0 ? 1 / std::sqrt(static_cast<double>(s.dim)) : scale);
  return push;
}

// The forms of a kernel: one row per lane, one row per subgroup with a part in each lane, and a
// tile of rows per workgroup.
struct Forms {
  uint32_t lane;
  uint32_t part;
  uint32_t tile;
  uint32_t results;  // of a tile, in registers; 2 of kQueries: it has two kinds of scores
  double products;   // matrix products of the kernel
};
constexpr Forms kForward{shader::attention_lane_plain, shader::attention_part_plain,
                         shader::attention_tile_plain, 1, 2};
constexpr Forms kForwardCodes{shader::attention_lane_codes, shader::attention_part_codes,
                              shader::attention_tile_codes, 1, 2};
constexpr Forms kQueries{shader::attention_grad_queries_lane, shader::attention_grad_queries_part,
                         shader::attention_grad_tile_queries, 2, 3};
constexpr Forms kKeys{shader::attention_grad_keys_lane, shader::attention_grad_keys_part,
                      shader::attention_grad_tile_keys, 2, 4};

// A window that hides no key is ignored. Other windows fit into the integers of the shaders.
uint32_t window_of(const Form& form, const Sizes& s) {
  return form.window < s.keys ? form.window : 0;
}

constexpr uint64_t kTileThreads = 128;
constexpr uint64_t kTileLanes = 8;  // invocations along the rows of a tile

// With more rows, AMD's compiler spills registers.
constexpr uint64_t kMostTileRows = 32;

// The rows of a tile: at most `rows`, and as many as registers hold.
uint64_t tile_rows(const PhysicalDevice& physical, uint64_t dim, uint64_t rows, uint32_t results) {
  const uint64_t registers = physical.has_many_registers() ? 64 : 32;
  uint64_t tile = kTileLanes;
  while (tile < kMostTileRows && tile < rows &&
         2 * tile / kTileLanes * ((dim + 63) / 64) * 4 * results <= registers) {
    tile *= 2;
  }
  return tile;
}

// Enough workgroups for a GPU. With fewer, the keys are divided: decoding has one query.
constexpr uint64_t kManyGroups = 128;
constexpr uint64_t kLeastPartKeys = 128;

uint64_t rows_of(const Sizes& s) { return s.queries * (s.heads / s.kv_heads); }

uint64_t groups_of(const Sizes& s, uint64_t tile) {
  return (rows_of(s) + tile - 1) / tile * s.kv_heads * s.batch;
}

// Parts of at least `least` keys.
KeyParts parts_of(const Sizes& s, uint64_t wanted, uint64_t least) {
  const uint64_t keys = std::max((s.keys + wanted - 1) / wanted, least);
  return {keys, (s.keys + keys - 1) / keys};
}

// How a GPU computes Attention. Its gradient divides no keys.
struct Way {
  uint64_t rows = 0;  // of a tile
  KeyParts parts;
};

Way default_way(const PhysicalDevice& physical, const Sizes& s) {
  const uint64_t tile = tile_rows(physical, s.dim, rows_of(s), kForward.results);
  const uint64_t groups = groups_of(s, tile);
  if (physical.uses_cpu_kernels() || groups == 0 || groups >= kManyGroups ||
      s.keys <= kLeastPartKeys) {
    return {tile, {}};
  }
  return {tile, parts_of(s, (kManyGroups + groups - 1) / groups, kLeastPartKeys)};
}

// The candidates of Attention: tiles that are at most half empty, and keys in up to 32 parts, while
// the parts give work to a GPU.
std::vector<Way> ways_of(const PhysicalDevice& physical, const Sizes& s) {
  constexpr uint64_t kMostParts = 32, kLeastKeys = 32;
  std::vector<Way> ways;
  if (physical.uses_cpu_kernels() || groups_of(s, 1) == 0) {
    return ways;
  }
  for (uint64_t tile = kTileLanes; tile <= kMostTileRows; tile *= 2) {
    if (tile > kTileLanes && tile >= 2 * rows_of(s)) {
      break;
    }
    ways.push_back({tile, {}});
    for (uint64_t parts = 2; parts <= kMostParts && s.keys >= parts * kLeastKeys &&
                             groups_of(s, tile) * parts < 8 * kManyGroups;
         parts *= 2) {
      ways.push_back({tile, parts_of(s, parts, kLeastKeys)});
    }
  }
  return ways;
}

// The way of a candidate.
Way way_of(const PhysicalDevice& physical, const Sizes& s, uint32_t candidate) {
  if (candidate != device::kNoCandidate) {
    const std::vector<Way> ways = ways_of(physical, s);
    if (candidate < ways.size()) {
      return ways[candidate];
    }
  }
  return default_way(physical, s);
}

// True if attention_few.comp computes the node: few queries on a GPU, without a mask. It reads keys
// and values in their dtype.
template <class Node>
bool has_few_queries(const PhysicalDevice& physical, const Node& node, const Sizes& s) {
  constexpr uint64_t kMostRows = 8;
  const auto is_own = [&](const device::Operand& o) {
    return o.dtype == node.type || !o.encoding.is_plain();
  };
  return !physical.uses_cpu_kernels() && node.inputs.size() == 3 && rows_of(s) <= kMostRows &&
         std::ranges::all_of(node.inputs, is_own) && node.outputs[0].dtype == node.type &&
         node.outputs[1].dtype == DType::f32;
}

// Workspace of the parts: results, and a maximum and a sum per row.
uint64_t part_bytes(const Sizes& s, const KeyParts& parts) {
  return parts.keys == 0 ? 0 : 4 * s.batch * s.heads * s.queries * parts.count * (s.dim + 2);
}

bool has_vectors(const Operands& o, const Sizes& s) {
  const VkDeviceAddress any = o.q | o.k | o.v | o.o | o.d_o;
  return any % 16 == 0 && s.dim % 4 == 0;
}

// The mask is input `mask`, if given. On a GPU, a workgroup has a tile of `tile` rows.
void launch(Launch& l, const Forms& forms, const Operands& o, const Sizes& s, size_t mask,
            bool rows_are_keys, uint64_t tile, const KeyParts& parts = {}) {
  const auto dim = static_cast<uint32_t>(s.dim);
  const Form form = form_of(l);
  const double half = form.causal ? 0.5 : 1;
  const double pairs = static_cast<double>(s.batch * s.heads) * static_cast<double>(s.queries) *
                       static_cast<double>(s.keys);
  const Work work{pairs * half * (2 * forms.products * static_cast<double>(s.dim) + 40), 0};
  const auto kind = static_cast<uint32_t>(form.mask);
  const auto softcap = std::bit_cast<uint32_t>(form.softcap);
  const uint32_t format = has_codes(l) ? l.code_format(1, 2) : 0;
  const Push push = push_of(l, o, s, mask, parts);
  Grid grid;
  if (!l.physical().uses_cpu_kernels()) {
    const uint64_t rows = rows_are_keys ? s.keys : rows_of(s);
    grid.local = kTileThreads;
    grid.groups = (rows + tile - 1) / tile * s.kv_heads * s.batch * parts.count;
    l.dispatch(forms.tile,
               {dim, static_cast<uint32_t>(tile), has_vectors(o, s), kind, window_of(form, s),
                softcap, format, form.packed},
               push, grid, work);
    return;
  }
  const uint64_t rows = rows_are_keys ? s.keys : s.queries;
  const uint32_t lane_parts = (dim + l.lanes() - 1) / l.lanes();
  const bool in_parts = dim > kMostInLane;
  const uint64_t rows_each = in_parts ? 1 : l.lanes();
  grid.local = l.lanes();
  grid.groups =
      (rows + rows_each - 1) / rows_each * (rows_are_keys ? s.kv_heads : s.heads) * s.batch;
  // Number of rows that keeps the unrolled loop near 512 products, or near 64 if lanes share a row.
  const uint32_t block =
      in_parts ? std::clamp(32 / lane_parts, 1u, 8u) : std::clamp(256 / dim, 1u, 8u);
  l.dispatch(in_parts ? forms.part : forms.lane,
             {dim, lane_parts, block, kind, window_of(form, s), softcap, format, form.packed}, push,
             grid, work);
}

const char* packed_refusal(const NodeView& node) {
  return std::cmp_greater(sizes_of(node.query).dim, kMaxHeadDim)
             ? "Attention takes heads of up to 256 elements."
             : nullptr;
}

uint64_t workspace(const NodeView& node) {
  const Sizes s = sizes_of(node.query);
  const bool is_few = has_few_queries(node.physical, node.query, s);
  return (is_few ? 0 : Wide::bytes(node)) +
         part_bytes(s, way_of(node.physical, s, node.query.candidate).parts);
}

uint32_t candidates(const NodeView& node) {
  return static_cast<uint32_t>(ways_of(node.physical, sizes_of(node.query)).size());
}

void attention_few(Launch& l, const Sizes& s, const KeyParts& parts) {
  constexpr uint32_t kMostRows = 4;  // of a workgroup; with more, it needs many registers
  Operands o;
  o.q = l.in(0);
  o.k = l.in(1);
  o.v = l.in(2);
  o.o = l.out(0);
  o.lse = l.out(1);
  o.d_q = l.workspace();
  o.d_k = o.d_q + 4 * s.batch * s.heads * s.queries * parts.count * s.dim;
  const Form form = form_of(l);
  const bool encoded = has_codes(l);
  const auto rows = static_cast<uint32_t>(std::clamp<uint64_t>(rows_of(s), 1, kMostRows));
  const uint64_t blocks = groups_of(s, rows);
  const VkDeviceAddress read = encoded ? 0 : o.k | o.v;
  Grid grid;
  grid.local = kTileThreads;
  grid.groups = blocks * parts.count;
  const double products = static_cast<double>(s.batch * s.heads * s.queries * s.keys * s.dim);
  l.dispatch(
      encoded ? shader::attention_few_codes : shader::attention_few_plain,
      {static_cast<uint32_t>(s.dim), rows, s.dim % 8 == 0 && read % 16 == 0, 0, window_of(form, s),
       std::bit_cast<uint32_t>(form.softcap), encoded ? l.code_format(1, 2) : 0},
      push_of(l, o, s, 3, parts, l.counters(static_cast<uint32_t>(blocks))), grid,
      {4 * products, 0});
}

// The places of k and v behind the place of q in a row, in f32.
void take_apart(VkDeviceAddress q, const Sizes& s, VkDeviceAddress* k, VkDeviceAddress* v) {
  *k = q + sizeof(float) * s.heads * s.dim;
  *v = *k + sizeof(float) * s.kv_heads * s.dim;
}

void attention(Launch& l) {
  constexpr size_t kMask = 3;
  const Sizes s = sizes_of(l.record());
  const auto [tile, parts] = way_of(l.physical(), s, l.candidate());
  if (has_few_queries(l.physical(), l.record(), s)) {
    return attention_few(l, s, parts);
  }
  Wide wide(l);
  Operands o;
  o.q = wide.in(0);
  if (is_packed(l.op())) {
    take_apart(o.q, s, &o.k, &o.v);
  } else {
    o.k = wide.in(1);
    o.v = wide.in(2);
  }
  o.mask = l.inputs() > kMask ? wide.in(kMask) : 0;
  o.o = wide.out(0);
  o.lse = wide.out(1);
  if (parts.keys != 0) {
    o.d_q = wide.workspace();
    o.d_k = o.d_q + 4 * s.batch * s.heads * s.queries * parts.count * s.dim;
  }
  launch(l, has_codes(l) ? kForwardCodes : kForward, o, s, kMask, false, tile, parts);
  if (parts.keys != 0) {
    l.barrier();
    const uint64_t rows = s.batch * s.heads * s.queries;
    l.dispatch(shader::attention_combine, {static_cast<uint32_t>(s.dim)},
               push_of(l, o, s, kMask, parts), l.over_rows(rows),
               l.each(rows * parts.count * s.dim, 4, 2));
  }
  wide.finish();
}

// The candidates of AttentionGrad: the rows of the tiles, 8, 16 and 32.
uint32_t grad_candidates(const NodeView& node) {
  const Sizes s = sizes_of(node.query);
  const bool has_tiles = !node.physical.uses_cpu_kernels() && groups_of(s, 1) * s.keys != 0;
  return has_tiles ? 1 + static_cast<uint32_t>(std::countr_zero(kMostTileRows / kTileLanes)) : 0;
}

// The rows of a tile of queries or keys.
uint64_t grad_tile(const Launch& l, const Sizes& s, uint64_t rows, const Forms& forms) {
  const uint64_t tile = kTileLanes << std::min(l.candidate(), 31u);
  return tile <= kMostTileRows ? tile : tile_rows(l.physical(), s.dim, rows, forms.results);
}

uint64_t grad_workspace(const NodeView& node) {
  // delta has the size of lse
  const size_t lse = is_packed(node.query.op) ? 2 : 4;
  return Wide::bytes(node) + static_cast<uint64_t>(node.in(lse).elements()) * 4;
}

void attention_grad(Launch& l) {
  constexpr size_t kMask = 6;
  Wide wide(l);
  Operands o;
  const Sizes s = sizes_of(l.record());
  const size_t results = is_packed(l.op()) ? 1 : 3;  // the first input behind q, k and v
  o.q = wide.in(0);
  o.o = wide.in(results);
  o.lse = wide.in(results + 1);
  o.d_o = wide.in(results + 2);
  o.mask = l.inputs() > kMask ? wide.in(kMask) : 0;
  o.d_q = wide.out(0);
  if (is_packed(l.op())) {
    take_apart(o.q, s, &o.k, &o.v);
    take_apart(o.d_q, s, &o.d_k, &o.d_v);
  } else {
    o.k = wide.in(1);
    o.v = wide.in(2);
    o.d_k = wide.out(1);
    o.d_v = wide.out(2);
  }
  o.delta = wide.workspace();
  launch(l, kQueries, o, s, kMask, false, grad_tile(l, s, rows_of(s), kQueries));
  l.barrier();
  launch(l, kKeys, o, s, kMask, true, grad_tile(l, s, s.keys, kKeys));
  wide.finish();
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(attention, .launch = attention, .workspace = workspace,
                          .candidates = candidates, .refusal = forward_refusal, .encoded = 0b110);
BOWLINE_KERNELS_OF_FLOATS(packed_attention, .launch = attention, .workspace = workspace,
                          .candidates = candidates, .refusal = packed_refusal);
BOWLINE_KERNELS_OF_FLOATS(packed_attention_grad, .launch = attention_grad,
                          .workspace = grad_workspace, .candidates = grad_candidates,
                          .refusal = packed_refusal);
BOWLINE_KERNELS_OF_FLOATS(attention_grad, .launch = attention_grad, .workspace = grad_workspace,
                          .candidates = grad_candidates, .refusal = refusal);

}  // namespace bowline::detail::vulkan::attention_kernels
