// IQ4_XS of ggml: 8 groups of 32 values from a table of 16. Each group has a scale of 6 bits.
//
//   d (f16), 2 bytes with the high 2 bits of the scales, 4 bytes with the low 4 bits, then 16 bytes
//   per group as in IQ4_NL.
//   x = d (scale - 32) table
//! gguf 23 IQ4_XS file 30
//! block 256 values 136 bytes groups of 32
//! steps 5 error 1
//! halves 0
SCALES(iq4_xs) {
  int low = byte_at(b, 4 + g / 2) >> (g % 2 * 4) & 15;
  int high = byte_at(b, 2 + g / 4) >> (g % 4 * 2) & 3;
  scale = half_at(b, 0) * float((low | high << 4) - 32);
}
CODE(iq4_xs) { return uneven_of_4_bits(nibble_of_halves(b, 8 + g * 16, i)); }
