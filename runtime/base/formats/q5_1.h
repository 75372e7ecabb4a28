// Q5_1 of ggml: 32 values of 5 bits, their scale and their minimum.
//
//   d, m (f16), 32 high bits, 16 bytes with the low bits as in Q4_0: x = d value + m
//! gguf 7 Q5_1 file 9
//! block 32 values 24 bytes groups of 32
//! steps 15.5 error 1
//! halves 0 2
SCALES(q5_1) {
  scale = half_at(b, 0);
  least = -half_at(b, 2);
}
CODE(q5_1) { return nibble_of_halves(b, 8, i) | bit_at(b, 4, i) << 4; }
