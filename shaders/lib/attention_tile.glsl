// Attention for GPUs. A workgroup of 128 invocations keeps a tile of rows (queries or keys of one
// key head) and iterates over tiles of columns, the other side. A scalar loop over the head would
// need the head in registers. Here the head passes through shared memory in chunks, so neither
// registers nor shared memory grow with it, except for the results: 4 * THREAD_ROWS * GROUPS
// registers each.
//
// The invocation (y, x) of 8 x 16 owns the scores of rows y + 8 i and columns x + 16 j, and of the
// results the rows y + 8 i and elements 64 g + 4 x to 64 g + 4 x + 3.
//
// The query heads that share a key head are rows, too: row r is query r / sharing of the
// (r % sharing)-th of these heads.
#include "attention.glsl"

layout(constant_id = 2) const uint ROWS = 32;  // rows of a tile, a multiple of 8
layout(constant_id = 3) const uint VECTORS = 0;  // 1: rows of operands are aligned to 16 bytes

const uint COLUMNS = 32;
const uint THREAD_ROWS = ROWS / 8;
const uint THREAD_COLUMNS = COLUMNS / 16;
const uint GROUPS = (D + 63) / 64;  // groups of 64 elements of the head
const uint CHUNK = 8;  // vectors of 4 elements of the head that are in shared memory at once
// A stride of an odd number of vectors: neighbouring rows are in different banks.
const uint STRIDE = CHUNK + 1;
const uint WIDE = 16;  // vectors of a row of 64 elements

layout(buffer_reference, scalar, buffer_reference_align = 16) readonly buffer Vectors { vec4 v[]; };

const uint FOR_SCORES = (ROWS + COLUMNS) * STRIDE;
const uint FOR_RESULTS = COLUMNS * WIDE;

shared vec4 staged[FOR_SCORES > FOR_RESULTS ? FOR_SCORES : FOR_RESULTS];
shared vec4 weights[ROWS * (COLUMNS / 4 + 1)];
shared uint row_at[ROWS];  // where the rows and the columns begin
shared uint column_at[COLUMNS];
shared A partial[ROWS][16];  // a value per row and invocation of it

#define Y (gl_LocalInvocationID.x / 16)
#define X (gl_LocalInvocationID.x % 16)
#define FOR_ROWS(i) [[unroll]] for (uint i = 0; i < THREAD_ROWS; ++i)
#define FOR_COLUMNS(j) [[unroll]] for (uint j = 0; j < THREAD_COLUMNS; ++j)
#define FOR_GROUPS(g) [[unroll]] for (uint g = 0; g < GROUPS; ++g)
#define ROW(i) (Y + 8 * (i))
#define COLUMN(j) (X + 16 * (j))

// Elements d to d + 3 of the row that begins at `start`; 0 past the end of the row.
vec4 load_4(Floats from, uint start, uint d) {
  if (VECTORS != 0) {
    return d < D ? Vectors(from).v[(start + d) / 4] : vec4(0);
  }
  vec4 out_4 = vec4(0);
  [[unroll]] for (uint c = 0; c < 4; ++c) {
    out_4[c] = d + c < D ? from.v[start + d + c] : 0;
  }
  return out_4;
}

void store_4(Floats to, uint start, uint d, vec4 value) {
  [[unroll]] for (uint c = 0; c < 4; ++c) {
    if (d + c < D) {
      to.v[start + d + c] = value[c];
    }
  }
}

// Copies `count` rows of 4 * `width` elements from element d0 on to staged[at], `step` vectors
// apart. LOAD(row, d) loads four elements.
#define STAGE(at, count, width, step, d0, LOAD)                                          \
  for (uint e = gl_LocalInvocationID.x; e < (count) * (width); e += gl_WorkGroupSize.x) { \
    staged[(at) + e / (width) * (step) + e % (width)] = LOAD(e / (width), (d0) + 4 * (e % (width))); \
  }

// scores += rows times columns over the whole head, by chunks of it.
#define ADD_SCORES(scores, LOAD_ROW, LOAD_COLUMN)                              \
  for (uint d0 = 0; d0 < D; d0 += 4 * CHUNK) {                                 \
    barrier();                                                                 \
    STAGE(0, ROWS, CHUNK, STRIDE, d0, LOAD_ROW)                                \
    STAGE(ROWS * STRIDE, COLUMNS, CHUNK, STRIDE, d0, LOAD_COLUMN)              \
    barrier();                                                                 \
    [[dont_unroll]] for (uint c = 0; c < CHUNK; ++c) {                        \
      vec4 column[THREAD_COLUMNS];                                             \
      FOR_COLUMNS(j) { column[j] = staged[(ROWS + COLUMN(j)) * STRIDE + c]; }  \
      FOR_ROWS(i) {                                                            \
        const vec4 row = staged[ROW(i) * STRIDE + c];                          \
        FOR_COLUMNS(j) { scores[i][j] += dot(row, column[j]); }                \
      }                                                                        \
    }                                                                          \
  }

// Makes the weights of all invocations visible to all.
#define SHARE_WEIGHTS(w)                                                                \
  barrier();                                                                            \
  FOR_ROWS(i) {                                                                         \
    FOR_COLUMNS(j) { weights[ROW(i) * (COLUMNS / 4 + 1) + COLUMN(j) / 4][X % 4] = w[i][j]; } \
  }

// The sum over the invocations of a row of `value`.
#define SUM_OF_ROWS(total, value)                                               \
  barrier();                                                                    \
  FOR_ROWS(i) { partial[ROW(i)][X] = value; }                                   \
  barrier();                                                                    \
  A total[THREAD_ROWS];                                                         \
  FOR_ROWS(i) {                                                                 \
    total[i] = 0;                                                               \
    [[unroll]] for (uint k = 0; k < 16; ++k) { total[i] += partial[ROW(i)][k]; } \
  }

// weight * value. With a mask, a weight of 0 gives 0, whatever the value is.
vec4 weighed_4(A weight, vec4 value) {
  return MASK != 0 && is_zero(weight) ? vec4(0) : weight * value;
}

// results += weights times columns, for one of at most four groups.
#define ADD_GROUP(g, results, LOAD_COLUMN)                                      \
  if ((g) < GROUPS) {                                                           \
    barrier();                                                                  \
    STAGE(0, COLUMNS, WIDE, WIDE, 64 * (g), LOAD_COLUMN)                        \
    barrier();                                                                  \
    [[dont_unroll]] for (uint c = 0; c < COLUMNS / 4; ++c) {                  \
      vec4 weight[THREAD_ROWS];                                                 \
      FOR_ROWS(i) { weight[i] = weights[ROW(i) * (COLUMNS / 4 + 1) + c]; }      \
      [[unroll]] for (uint k = 0; k < 4; ++k) {                                 \
        const vec4 value = staged[(4 * c + k) * WIDE + X];                      \
        FOR_ROWS(i) {                                                           \
          results[i * GROUPS + min((g), GROUPS - 1)] += weighed_4(weight[i][k], value); \
        }                                                                       \
      }                                                                         \
    }                                                                           \
  }

// Drivers do not unroll a loop over groups, because it would have a loop inside. With a variable
// group, results would not stay in registers.
#define ADD_RESULTS(results, LOAD_COLUMN) \
  ADD_GROUP(0, results, LOAD_COLUMN)      \
  ADD_GROUP(1, results, LOAD_COLUMN)      \
  ADD_GROUP(2, results, LOAD_COLUMN)      \
  ADD_GROUP(3, results, LOAD_COLUMN)
