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
    table##_magic[axis] = dims.v[(at) + rank + axis];                        \
    table##_shift[axis] = dims.v[(at) + 2 * rank + axis];                    \
  }
#define LOAD_STRIDES(dims, at, rank, operand, strides)                       \
  uint strides[rank];                                                        \
  [[unroll]] for (uint axis = 0; axis < rank; ++axis) {                      \
    strides[axis] = dims.v[(at) + (3 + operand) * rank + axis];              \
  }
// The offsets of element i of a loop over the axes of a table, in two operands.
#define OFFSETS_OF_TWO(i, rank, table, strides_a, strides_b, at_a, at_b)     \
  at_a = 0;                                                                  \
  at_b = 0;                                                                  \
  {                                                                          \
    uint rest = i;                                                           \
    [[unroll]] for (uint r = 0; r < rank; ++r) {                             \
      const uint axis = rank - 1 - r;                                        \
      const uint upper = r + 1 == rank ? 0 : divide(rest, table##_magic[axis], table##_shift[axis]); \
      const uint at = rest - upper * table##_dim[axis];                      \
      rest = upper;                                                          \
      at_a += at * strides_a[axis];                                          \
      at_b += at * strides_b[axis];                                          \
    }                                                                        \
  }
