//! variants WIDTH=one,eight T=f32,f16,bf16
// Sums over long columns: parts[part, o] = the sum of one part of the terms of output o, in f32.
// column_sums.comp adds the parts. One invocation per part and WIDTH neighbouring outputs, so that
// lanes read neighbours; eight outputs are read in accesses of 16 bytes.
#include "common.glsl"
#include "index.glsl"
#include "groups.glsl"

layout(push_constant, scalar) uniform Push {
  Elements x;
  Floats parts;  // [count, n]
  Words dims;    // see groups.glsl
  uint n;        // outputs
  uint terms;    // per output
  uint per_part;
  uint count;
  uint per_group;
} p;

#if defined(WIDTH_eight)
#include "eight.glsl"
layout(buffer_reference, scalar, buffer_reference_align = 16) writeonly buffer Quads { vec4 v[]; };
const uint WIDTH = 8;
const uint UNROLL = 4;
#define Terms Eight
Terms load(uint at) { return load_vectors(p.x, at); }
Terms add(Terms a, Terms b) { return Eight(a.low + b.low, a.high + b.high); }
Terms zero() { return Eight(vec4(0), vec4(0)); }
Terms select(bool use, Terms a) { return Eight(use ? a.low : vec4(0), use ? a.high : vec4(0)); }
void store(uint at, Terms sum) {
  Quads(p.parts).v[at / 4] = sum.low;
  Quads(p.parts).v[at / 4 + 1] = sum.high;
}
#else
const uint WIDTH = 1;
const uint UNROLL = 8;
#define Terms A
Terms load(uint at) { return read(p.x, at); }
Terms add(Terms a, Terms b) { return a + b; }
Terms zero() { return 0; }
Terms select(bool use, Terms a) { return use ? a : 0; }
void store(uint at, Terms sum) { p.parts.v[at] = sum; }
#endif

void main() {
  LOAD_GROUPS(p.dims)
  const uint per_row = p.n / WIDTH;
  const uint total = per_row * p.count;
  FOR_ELEMENTS(i, total) {
    const uint part = i / per_row;
    const uint o = (i - part * per_row) * WIDTH;
    const uint base = KEPT_OFFSET(o);
    const uint begin = part * p.per_part;
    const uint end = min(begin + p.per_part, p.terms);
    Terms sum = zero();
    for (uint t = begin; t < end; t += UNROLL) {
      Terms terms[UNROLL];  // independent loads
      [[unroll]] for (uint j = 0; j < UNROLL; ++j) {
        terms[j] = load(base + GONE_OFFSET(min(t + j, end - 1)));
      }
      [[unroll]] for (uint j = 1; j < UNROLL; ++j) {
        terms[j] = select(t + j < end, terms[j]);
      }
      [[unroll]] for (uint step = 1; step < UNROLL; step *= 2) {
        [[unroll]] for (uint j = 0; j < UNROLL; j += 2 * step) {
          terms[j] = add(terms[j], terms[j + step]);
        }
      }
      sum = add(sum, terms[0]);
    }
    store(part * p.n + o, sum);
  }
}
