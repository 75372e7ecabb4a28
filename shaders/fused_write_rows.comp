//! variants T=f32,f16,bf16 STATE=plain,codes
// Writes rows of keys and values into their states, as write_rows.comp and write_codes.comp do, and
// rotates keys and queries as rope.comp does. A subgroup has one head of a row. If a row would be
// behind the end of a state, nothing is written into the states and an out-of-range index is
// reported.
#if defined(STATE_codes)
#define BYTES_1
#endif
#include "common.glsl"
#include "rope.glsl"
#if defined(STATE_codes)
#include "cells.glsl"
#define FORMAT 0
#include "codes.glsl"
#include "row_codes.glsl"
#define State Cells
#else
#define State Elements
#endif
#include "step_fused_write_rows.glsl"
#include "bad_index.glsl"
#include "count.glsl"

// 1: pairs (2i, 2i + 1), 0: pairs (i, i + rotary_dims / 2)
layout(constant_id = 1) const uint INTERLEAVED = 0;

layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Details {
  uint at_count[2];  // of keys and values, as the arrays below
  uint size[2];      // rows of the state
  uint heads[3];     // keys, values, queries
  uint columns[3];   // elements of a head
  uint rows;         // maximum number of rows
  uint half_dims;    // rotated pairs of a head of keys and queries
  uvec2 offset;      // added to the positions
  uint inverse;
  uint node;
  uvec2 frequencies[];  // [half_dims]: turns per position, low and high word
};

layout(push_constant, scalar) uniform Push {
  Elements x[3];  // keys, values, queries
  State state[2];
  Elements rotated;  // queries
  Ints positions;
  Details details;
#if defined(STATE_codes)
  CodeTable table[2];
#endif
  STEP_WORDS
} p;

const uint kValues = 1;
const uint kQueries = 2;

// Element c of a head that begins at `start`, after the rotation.
A element(uint kind, uint row, uint start, uint c) {
  const uint half_dims = p.details.half_dims;
  if (kind == kValues || c >= 2 * half_dims) {
    return read(p.x[kind], start + c);
  }
  const uint j = INTERLEAVED != 0 ? c / 2 : c % half_dims;
  const bool is_second = (INTERLEAVED != 0 ? c % 2 : c / half_dims) != 0;
  const vec2 cs = rotation(p.positions.v[row], p.details.offset, p.details.frequencies[j],
                           p.details.inverse != 0);
  const A a = read(p.x[kind], start + (INTERLEAVED != 0 ? 2 * j : j));
  const A b = read(p.x[kind], start + (INTERLEAVED != 0 ? 2 * j + 1 : j + half_dims));
  return is_second ? a * cs.y + b * cs.x : a * cs.x - b * cs.y;
}

#if defined(STATE_codes)
// Writes a head into row `to` of the heads of a state.
void write_head(uint kind, uint row, uint start, uint to) {
  CodeTable table = p.table[kind];
  const uint columns = p.details.columns[kind];
  uint number = 0;
  for (uint first = 0; first < columns; first += table.block) {
    const uint end = min(first + table.block, columns);
    uint most = 0;
    for (uint c = first + gl_SubgroupInvocationID; c < end; c += gl_SubgroupSize) {
      most = max(most, bits_of_magnitude(element(kind, row, start, c)));
    }
    const float scale = scale_of(most);
    const uint begin = to * table.row_bytes + number * table.block_bytes;
    for (uint c = first + gl_SubgroupInvocationID; c < end; c += gl_SubgroupSize) {
      p.state[kind].v[begin + c - first] = uint8_t(code_of(element(kind, row, start, c), scale));
    }
    if (subgroupElect()) {
      const uint at = table.scales_at + to * table.scale_row + number * table.scale_block;
      table.scales.v[at / 4] = floatBitsToUint(scale);
    }
    ++number;
  }
}
#else
void write_head(uint kind, uint row, uint start, uint to) {
  const uint columns = p.details.columns[kind];
  for (uint c = gl_SubgroupInvocationID; c < columns; c += gl_SubgroupSize) {
    write(p.state[kind], to * columns + c, element(kind, row, start, c));
  }
}
#endif

void main() {
  const uint rows = p.details.rows;
  const uint position = step_position;
  uint count[2];
  bool fits = true;
  [[unroll]] for (uint i = 0; i < 2; ++i) {
    count[i] = extent(p.step, p.details.at_count[i], rows);
    const bool does = count[i] <= p.details.size[i] && position <= p.details.size[i] - count[i];
    if (fits && !does && subgroup_index() == 0 && subgroupElect()) {
      const uint behind = max(count[i], 1u) - 1;
      bad_index(p.step, p.details.node, int(min(position, 0x7FFFFFFFu - behind) + behind));
    }
    fits = fits && does;
  }
  const uint heads = p.details.heads[0] + p.details.heads[1] + p.details.heads[2];
  if (subgroup_index() >= rows * heads) {
    return;
  }
  const uint row = subgroup_index() / heads;
  uint head = subgroup_index() % heads;
  uint kind = 0;
  [[unroll]] for (uint i = 0; i < 2; ++i) {
    if (kind == i && head >= p.details.heads[i]) {
      head -= p.details.heads[i];
      kind = i + 1;
    }
  }
  const uint columns = p.details.columns[kind];
  const uint start = (row * p.details.heads[kind] + head) * columns;
  if (kind == kQueries) {
    for (uint c = gl_SubgroupInvocationID; c < columns; c += gl_SubgroupSize) {
      write(p.rotated, start + c, element(kind, row, start, c));
    }
  } else if (fits && row < count[kind]) {
    write_head(kind, row, start, (position + row) * p.details.heads[kind] + head);
  }
}
