// Q4_K of ggml: 8 groups of 32 values of 4 bits. Each group has a scale and a minimum of 6 bits.
//
//   d, dmin (f16), 12 bytes of scales and minimums, 128 bytes of values. Byte i of a pair of groups
//   has value i of the first group (low bits) and of the second.
//   x = d scale value - dmin minimum
//! gguf 12 Q4_K file 14
//! block 256 values 144 bytes groups of 32
//! steps 7.5 error 1
//! halves 0 2
SCALES(q4_k) {
  scale = half_at(b, 0) * float(scale_of_6_bits(b, 4, g));
  least = half_at(b, 2) * float(minimum_of_6_bits(b, 4, g));
}
CODE(q4_k) { return nibble_of_pair(b, 16, g, i); }
