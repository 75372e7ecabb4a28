// Eight neighbours, as f32. load_vectors() takes them from an address that is a multiple of 16
// bytes, in 16-byte accesses.
struct Eight {
  vec4 low;
  vec4 high;
};
Eight eight_of(A x[8]) { return Eight(vec4(x[0], x[1], x[2], x[3]), vec4(x[4], x[5], x[6], x[7])); }

#if defined(T_f32)
layout(buffer_reference, scalar, buffer_reference_align = 16) readonly buffer Vectors { vec4 v[]; };
Eight load_vectors(Elements from, uint at) {
  return Eight(Vectors(from).v[at / 4], Vectors(from).v[at / 4 + 1]);
}
#else
layout(buffer_reference, scalar, buffer_reference_align = 16) readonly buffer Vectors { uvec4 v[]; };
#if defined(T_f16)
#define WIDEN half_to_float
#else
#define WIDEN bhalf_to_float
#endif
Eight load_vectors(Elements from, uint at) {
  const uvec4 pairs = Vectors(from).v[at / 8];
  const uvec4 even = pairs & 65535u;
  const uvec4 odd = pairs >> 16;
  return Eight(vec4(WIDEN(even.x), WIDEN(odd.x), WIDEN(even.y), WIDEN(odd.y)),
               vec4(WIDEN(even.z), WIDEN(odd.z), WIDEN(even.w), WIDEN(odd.w)));
}
#endif
