// Q4_1 of ggml: 32 values of 4 bits, their scale and their minimum.
//
//   d, m (f16), 16 bytes: byte i has value i (low bits) and value i + 16: x = d value + m
//! gguf 3 Q4_1 file 3
//! block 32 values 20 bytes groups of 32
//! steps 7.5 error 1
//! halves 0 2
SCALES(q4_1) {
  scale = half_at(b, 0);
  least = -half_at(b, 2);
}
CODE(q4_1) { return nibble_of_halves(b, 4, i); }
