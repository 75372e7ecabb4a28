// Include it after index.glsl: the offset of element i of a loop with RANK merged axes in one
// operand.
#define DEFINE_OFFSET(name, rank)                                                              \
  uint name(uint n, uint dim[rank], uint magic[rank], uint shift[rank], uint stride[rank]) {   \
    uint at = 0;                                                                               \
    [[unroll]] for (uint r = 0; r < rank; ++r) {                                               \
      const uint axis = rank - 1 - r;                                                          \
      const uint upper = r + 1 == rank ? 0 : divide(n, magic[axis], shift[axis]);              \
      at += (n - upper * dim[axis]) * stride[axis];                                            \
      n = upper;                                                                               \
    }                                                                                          \
    return at;                                                                                 \
  }
