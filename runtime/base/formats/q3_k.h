// Q3_K of ggml: 16 groups of 16 values of 3 bits. Each group has a scale of 6 bits.
//
//   32 bytes with the high bits, 64 bytes with the low 2 bits as in Q2_K, 12 bytes of scales, d
//   (f16). Bit k of byte i of the high bits is that of value i of run k of 32. x = d (scale - 32)
//   (value - 4)
//! gguf 11 Q3_K file 12
//! block 256 values 110 bytes groups of 16
//! steps 4 error 1
//! halves 108
SCALES(q3_k) {
  int low = byte_at(b, 96 + g % 8) >> (g / 8 * 4) & 15;
  int high = byte_at(b, 104 + g % 4) >> (g / 4 * 2) & 3;
  scale = half_at(b, 108) * float((low | high << 4) - 32);
}
CODE(q3_k) {
  Value high = byte_at(b, g % 2 * 16 + i) >> (g / 2) & 1;
  return (crumb_of_runs(b, 32, g, i) | high << 2) - 4;
}
