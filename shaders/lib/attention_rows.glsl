// Attention for devices whose lanes are elements of a CPU vector. A subgroup keeps rows of one head
// (queries or keys) in registers and iterates over the rows of the other side; every lane loads a
// part of each of these rows. With short heads (OWN_lane), each lane owns a row, and shuffles with
// constant indices distribute the loaded parts. With long heads (OWN_part), the subgroup has one
// row, and each lane owns a part of it. A whole row per lane would need too many registers, and
// minutes to compile. There is no shared memory and no barrier, and memory is linear in the length.
#include "attention.glsl"

layout(constant_id = 2) const uint PARTS = 4;  // ceil(D / S)
layout(constant_id = 3) const uint BLOCK = 8;  // rows of the other side per iteration

const uint S = gl_WorkGroupSize.x;  // the workgroup is one subgroup

// Loads part i of a row for this lane. Lanes past the end of the row hold zero.
#define LOAD_PARTS(parts, floats, start)                                        \
  [[unroll]] for (uint part = 0; part < PARTS; ++part) {                        \
    const uint at = part * S + gl_SubgroupInvocationID;                         \
    parts[part] = at < D ? floats.v[(start) + at] : 0;                          \
  }

#if defined(OWN_lane)
#define ROWS S  // of the subgroup
#define HELD D  // elements of the row per lane
#define OWN_ROW gl_SubgroupInvocationID  // of ROWS
#define AT(i) (i)  // index in the row of held element i
#define PASSING(parts, i) subgroupShuffle(parts[(i) / S], (i) % S)
#define TOTAL(x) (x)  // sum over the row of a value per lane
#define KEEPS_ROW true  // this lane writes results that exist once per row
#else
#define ROWS 1
#define HELD PARTS
#define OWN_ROW 0
#define AT(i) ((i) * S + gl_SubgroupInvocationID)
#define PASSING(parts, i) parts[i]
#define TOTAL(x) subgroupAdd(x)
#define KEEPS_ROW (gl_SubgroupInvocationID == 0)
#endif

#define LOAD_HELD(held, floats, start, factor)                                  \
  [[unroll]] for (uint i = 0; i < HELD; ++i) {                                  \
    held[i] = AT(i) < D ? floats.v[(start) + AT(i)] * (factor) : 0;             \
  }
#define STORE_HELD(held, floats, start, factor)                                 \
  [[unroll]] for (uint i = 0; i < HELD; ++i) {                                  \
    if (AT(i) < D) {                                                            \
      floats.v[(start) + AT(i)] = held[i] * (factor);                           \
    }                                                                           \
  }
