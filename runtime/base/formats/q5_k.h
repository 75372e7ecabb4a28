// Q5_K of ggml: 8 groups of 32 values of 5 bits. Each group has a scale and a minimum of 6 bits.
//
//   d, dmin (f16), 12 bytes of scales and minimums, 32 bytes with the high bits, 128 bytes with the
//   low bits as in Q4_K. Bit g of byte i of the high bits is that of value i of group g.
//   x = d scale value - dmin minimum
//! gguf 13 Q5_K file 16
//! block 256 values 176 bytes groups of 32
//! steps 15.5 error 1
//! halves 0 2
SCALES(q5_k) {
  scale = half_at(b, 0) * float(scale_of_6_bits(b, 4, g));
  least = half_at(b, 2) * float(minimum_of_6_bits(b, 4, g));
}
CODE(q5_k) { return nibble_of_pair(b, 48, g, i) | (byte_at(b, 16 + i) >> g & 1) << 4; }
