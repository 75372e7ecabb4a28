// IQ4_NL of ggml: 32 values from a table of 16 and their scale.
//
//   d (f16), 16 bytes: byte i has the index of value i (low bits) and of value i + 16: x = d table
//! gguf 20 IQ4_NL file 25
//! block 32 values 18 bytes groups of 32
//! steps 5 error 1
//! halves 0
SCALES(iq4_nl) { scale = half_at(b, 0); }
CODE(iq4_nl) { return uneven_of_4_bits(nibble_of_halves(b, 2, i)); }
