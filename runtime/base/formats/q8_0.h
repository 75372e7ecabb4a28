// Q8_0 of ggml: 32 values of 8 bits and their scale.
//
//   scale d (f16), 32 values (i8): x = d value
//! gguf 8 Q8_0 file 7
//! block 32 values 34 bytes groups of 32
//! steps 127 error 0.5
//! halves 0
//! strided 8 bits at 2
SCALES(q8_0) { scale = half_at(b, 0); }
CODE(q8_0) { return signed_at(b, 2 + i); }
