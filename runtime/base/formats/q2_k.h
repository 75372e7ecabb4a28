// Q2_K of ggml: 16 groups of 16 values of 2 bits. Each group has a scale and a minimum of 4 bits.
//
//   16 bytes with a scale (low bits) and a minimum each, 64 bytes of values, d, dmin (f16). Byte i
//   of 32 has value i of four runs of 32 values. x = d scale value - dmin minimum
//! gguf 10 Q2_K file 10
//! block 256 values 84 bytes groups of 16
//! steps 1.5 error 1
//! halves 80 82
SCALES(q2_k) {
  scale = half_at(b, 80) * float(byte_at(b, g) & 15);
  least = half_at(b, 82) * float(byte_at(b, g) >> 4);
}
CODE(q2_k) { return crumb_of_runs(b, 16, g, i); }
