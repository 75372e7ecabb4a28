// Q4_0 of ggml: 32 values of 4 bits and their scale.
//
//   scale d (f16), 16 bytes: byte i has value i (low bits) and value i + 16: x = d (value - 8)
//! gguf 2 Q4_0 file 2
//! block 32 values 18 bytes groups of 32
//! steps 8 error 1
//! halves 0
//! strided 4 bits at 2 in halves of 16 zero 8
SCALES(q4_0) { scale = half_at(b, 0); }
CODE(q4_0) { return nibble_of_halves(b, 2, i) - 8; }
