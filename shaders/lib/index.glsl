// Converts flat indices to offsets. backends/vulkan/index.cpp makes the tables: RANK sizes, RANK
// magic numbers and RANK shifts for the division by them, then RANK strides per operand. Software
// devices divide integers lane by lane, so the division is a multiplication (Granlund and
// Montgomery, "Division by Invariant Integers using Multiplication", 1994).
uint divide(uint n, uint magic, uint shift) {  // n < 2^31
  uint high;
  uint low;
  umulExtended(n, magic, high, low);
  return (high + n) >> shift;
}

// A table in registers. It is read once per invocation, because compilers do not move loads out of
// loops.
#define LOAD_TABLE(dims, at, rank, table)                                    \
  uint table##_dim[rank];                                                    \
  uint table##_magic[rank];                                                  \
  uint table##_shift[rank];                                                  \
  [[unroll]] for (uint axis = 0; axis < rank; ++axis) {                      \
    table##_dim[axis] = dims.v[(at) + axis];                                 \
    table##_magic[axis] = dims.v[(at) + rank + axis];                   \
    table##_shift[axis] = dims.v[(at) + 2 * rank + axis];                    \
  }
#define LOAD_STRIDES(dims, at, rank, operand, strides)                       \
  uint strides[rank];                                                        \
  [[unroll]] for (uint axis = 0; axis < rank; ++axis) {                      \
    strides[axis] = dims.v[(at) + (3 + operand) * rank + axis];              \
  }
// A loop over RANK axes: its table, and its strides in `operands` operands.
#define LOAD_LOOP(dims, operands)                                            \
  LOAD_TABLE(dims, 0, RANK, loop)                                            \
  uint loop_strides[(operands) * RANK];                                      \
  [[unroll]] for (uint i = 0; i < (operands) * RANK; ++i) {               \
    loop_strides[i] = dims.v[3 * RANK + i];                                \
  }
// Declares offsets[operands]: the offsets of element i of this loop.
#define LOOP_OFFSETS(i, operands, offsets)                                   \
  uint offsets[operands];                                                    \
  [[unroll]] for (uint operand = 0; operand < operands; ++operand) {         \
    offsets[operand] = 0;                                                    \
  }                                                                          \
  {                                                                          \
    uint rest = i;                                                           \
    [[unroll]] for (uint r = 0; r < RANK; ++r) {                             \
      const uint axis = RANK - 1 - r;                                        \
      const uint upper = r + 1 == RANK ? 0 : divide(rest, loop_magic[axis], loop_shift[axis]); \
      const uint position = rest - upper * loop_dim[axis];                   \
      rest = upper;                                                          \
      [[unroll]] for (uint operand = 0; operand < operands; ++operand) {     \
        offsets[operand] += position * loop_strides[operand * RANK + axis];   \
      }                                                                      \
    }                                                                        \
  }
