//! variants T=f32,f16,bf16,i8,u8,i32,i64 LINE=lane,subgroup
// Cumulative sums along lines of `size` elements, `step` apart. Either a lane owns a line, or a
// subgroup shares a line and adds in rounds. Within a round, sums use doubling distances (Hillis
// and Steele, "Data Parallel Algorithms", 1986); totals pass from round to round.
#include "common.glsl"
#include "number.glsl"

layout(constant_id = 1) const uint EXCLUSIVE = 0;
layout(constant_id = 2) const uint REVERSE = 0;

layout(push_constant, scalar) uniform Push {
  Numbers x;
  Numbers y;
  uint lines;
  uint size;
  uint step;
} p;

uint place_of(uint line, uint k) {
  return (line / p.step * p.size + (REVERSE != 0 ? p.size - 1 - k : k)) * p.step + line % p.step;
}

#if defined(LINE_lane)
void main() {
  const uint line = group_index() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
  if (line >= p.lines) {
    return;
  }
  N sum = kZero;
  for (uint k = 0; k < p.size; ++k) {
    const uint at = place_of(line, k);
    const N next = sum_of(sum, load(p.x, at));
    store(p.y, at, EXCLUSIVE != 0 ? sum : next);
    sum = next;
  }
}
#else
// Adds the sum of the lanes `distance` before; the first lanes have no such lane.
N with_earlier(N sum, uint distance) {
  if (distance >= gl_SubgroupSize) {
    return sum;
  }
  const uint lane = gl_SubgroupInvocationID;
  const N earlier = subgroupShuffle(sum, lane < distance ? lane : lane - distance);
  return lane < distance ? sum : sum_of(earlier, sum);
}

void main() {
  const uint line = subgroup_index();
  if (line >= p.lines) {
    return;
  }
  const uint lane = gl_SubgroupInvocationID;
  N sum = kZero;  // of the previous rounds
  for (uint first = 0; first < p.size; first += gl_SubgroupSize) {
    const uint k = first + lane;
    const uint at = place_of(line, min(k, p.size - 1));
    const N own = load(p.x, at);
    N with = k < p.size ? own : kZero;
    // Unrolled, because software drivers limit the iterations of all loops (README of the backend).
    with = with_earlier(with, 1);
    with = with_earlier(with, 2);
    with = with_earlier(with, 4);
    with = with_earlier(with, 8);
    with = with_earlier(with, 16);
    with = with_earlier(with, 32);
    const N before = subgroupShuffle(with, lane == 0 ? 0 : lane - 1);
    const N upto = EXCLUSIVE == 0 ? with : lane == 0 ? kZero : before;
    if (k < p.size) {
      store(p.y, at, sum_of(sum, upto));
    }
    sum = sum_of(sum, subgroupShuffle(with, gl_SubgroupSize - 1));
  }
}
#endif
