// The results of elementwise functions: elements of the input type, or bool.
#if defined(OUT_truth)
layout(buffer_reference, scalar, buffer_reference_align = 1) buffer Results { uint8_t v[]; };
void store(Results y, uint i, A x) { y.v[i] = uint8_t(x != 0 ? 1 : 0); }
#else
#define Results Elements
#define store(y, i, x) write(y, i, x)
#endif
