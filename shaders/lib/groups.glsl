// The elements of each result of a reduction: offsets over the kept axes, then over the reduced
// axes. The host merges both lists of axes into one table, the reduced axes last (see index.glsl).
#include "offsets.glsl"

layout(constant_id = 1) const uint KEPT = 1;
layout(constant_id = 2) const uint GONE = 1;

DEFINE_OFFSET(offset_in_kept, KEPT)
DEFINE_OFFSET(offset_in_gone, GONE)

#define LOAD_GROUPS(dims)                        \
  LOAD_TABLE(dims, 0, KEPT, kept)                \
  LOAD_STRIDES(dims, 0, KEPT, 0, kept_stride)    \
  LOAD_TABLE(dims, 4 * KEPT, GONE, gone)         \
  LOAD_STRIDES(dims, 4 * KEPT, GONE, 0, gone_stride)
#define KEPT_OFFSET(o) offset_in_kept(o, kept_dim, kept_magic, kept_shift, kept_stride)
#define GONE_OFFSET(i) offset_in_gone(i, gone_dim, gone_magic, gone_shift, gone_stride)
