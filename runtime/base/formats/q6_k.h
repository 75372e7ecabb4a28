// Q6_K of ggml: 16 groups of 16 values of 6 bits. Each group has a scale of 8 bits.
//
//   128 bytes with the low 4 bits of the values, 64 bytes with the high 2 bits, 16 scales (i8),
//   d (f16). Both parts of the bits have two halves, for 128 values each: see CODE.
//   x = d scale (value - 32)
//! gguf 14 Q6_K file 18
//! block 256 values 210 bytes groups of 16
//! steps 32 error 1
//! halves 208
SCALES(q6_k) { scale = half_at(b, 208) * float(signed_at(b, 192 + g)); }
CODE(q6_k) {
  Index at = g % 2 * 16 + i;  // within 32 values
  Value low = byte_at(b, g / 8 * 64 + g % 4 / 2 * 32 + at) >> (g % 8 / 4 * 4) & 15;
  Value high = byte_at(b, 128 + g / 8 * 32 + at) >> (g % 8 / 2 * 2) & 3;
  return (low | high << 4) - 32;
}
