//! variants T=f32,f16,bf16
// Writes rows as write_rows.comp does, quantized to 8 bits: one subgroup per block of a row of the
// last axis.
#define BYTES_1
#include "common.glsl"
#include "cells.glsl"
#define FORMAT 0
#include "codes.glsl"
#include "row_codes.glsl"
#include "step_write_rows.glsl"
#include "bad_index.glsl"
#include "count.glsl"

layout(push_constant, scalar) uniform Push {
  Elements rows;
  Cells codes;
  CodeTable table;
  STEP_WORDS
  uint at_count;
  uint n;  // blocks of all rows
  uint most;  // maximum number of rows
  uint size;  // rows of the state
  uint inner;  // quantized rows per row of the state
  uint columns;  // elements per quantized row
  uint node;
} p;

void main() {
  const uint count = extent(p.step, p.at_count, p.most);
  const uint position = step_position;
  if (position > p.size - count) {
    if (subgroup_index() == 0 && subgroupElect()) {
      const uint behind = max(count, 1u) - 1;
      bad_index(p.step, p.node, int(min(position, 0x7FFFFFFFu - behind) + behind));
    }
    return;
  }
  if (subgroup_index() >= p.n) {
    return;
  }
  const uint block = p.table.block;
  const uint in_a_row = (p.columns + block - 1) / block;
  const uint from = subgroup_index() / in_a_row;
  const uint number = subgroup_index() - from * in_a_row;
  const uint row = from / p.inner;
  if (row % p.most >= count) {
    return;
  }
  const uint first = number * block;
  const uint end = min(first + block, p.columns);
  uint most = 0;
  for (uint c = first + gl_SubgroupInvocationID; c < end; c += gl_SubgroupSize) {
    most = max(most, bits_of_magnitude(read(p.rows, from * p.columns + c)));
  }
  const float scale = scale_of(most);
  const uint to = (row / p.most * p.size + position + row % p.most) * p.inner + from % p.inner;
  const uint begin = to * p.table.row_bytes + number * p.table.block_bytes;
  for (uint c = first + gl_SubgroupInvocationID; c < end; c += gl_SubgroupSize) {
    p.codes.v[begin + c - first] = uint8_t(code_of(read(p.rows, from * p.columns + c), scale));
  }
  if (subgroupElect()) {
    const uint at = p.table.scales_at + to * p.table.scale_row + number * p.table.scale_block;
    p.table.scales.v[at / 4] = floatBitsToUint(scale);
  }
}
