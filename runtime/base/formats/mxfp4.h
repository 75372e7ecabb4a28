// MXFP4: 32 floats of 4 bits (E2M1) and their exponent.
//
//   exponent e (u8), 16 bytes: byte i has float i (low bits) and float i + 16.
//   x = 2^(e - 127) float. The table has the floats times 2.
// Source  OCP Microscaling Formats (MX) specification 1.0
//! gguf 39 MXFP4 file 38
//! block 32 values 17 bytes groups of 32
//! steps 3 error 1
TABLE(twice_e2m1, 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
SCALES(mxfp4) {
  int e = byte_at(b, 0);
  scale = float_of_bits(e < 2 ? 0x00200000 << e : (e - 1) << 23);
}
CODE(mxfp4) { return twice_e2m1(nibble_of_halves(b, 1, i)); }
