// Q5_0 of ggml: 32 values of 5 bits and their scale.
//
//   d (f16), 32 high bits, 16 bytes with the low bits as in Q4_0: x = d (value - 16)
//! gguf 6 Q5_0 file 8
//! block 32 values 22 bytes groups of 32
//! steps 16 error 1
//! halves 0
SCALES(q5_0) { scale = half_at(b, 0); }
CODE(q5_0) { return (nibble_of_halves(b, 6, i) | bit_at(b, 2, i) << 4) - 16; }
