// Elements of 1, 2, 4 or 8 bytes as bits, for shaders that only move them. CELL converts a uvec2,
// low word first.
#if defined(BYTES_1)
#extension GL_EXT_shader_8bit_storage : require
layout(buffer_reference, scalar, buffer_reference_align = 1) buffer Cells { uint8_t v[]; };
#define CELL(bits) uint8_t((bits).x & 255u)
#elif defined(BYTES_2)
#extension GL_EXT_shader_16bit_storage : require
layout(buffer_reference, scalar, buffer_reference_align = 2) buffer Cells { uint16_t v[]; };
#define CELL(bits) uint16_t((bits).x & 65535u)
#elif defined(BYTES_4)
#define Cells Words
#define CELL(bits) ((bits).x)
#else
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Cells { uvec2 v[]; };
#define CELL(bits) (bits)
#endif
