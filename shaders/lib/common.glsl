// Included by all shaders. Operands are device addresses; there are no descriptor sets.
//
// T is the storage type, A the arithmetic type. In variants with T=f16 or bf16, operands are
// Elements, which read() and write() convert from and to f32. Constant 0 is the x size of the
// workgroup.
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require

#define T float
#define A float

layout(local_size_x_id = 0) in;

layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Floats { T v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Ints { int v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Words { uint v[]; };

#if defined(T_f16) || defined(T_bf16)
#extension GL_EXT_shader_16bit_storage : require
#include "half.glsl"
layout(buffer_reference, scalar, buffer_reference_align = 2) buffer Elements { uint16_t v[]; };
#if defined(T_f16)
A read(Elements x, uint i) { return half_to_float(uint(x.v[i])); }
void write(Elements y, uint i, A value) { y.v[i] = uint16_t(float_to_half(value)); }
#else
A read(Elements x, uint i) { return bhalf_to_float(uint(x.v[i])); }
void write(Elements y, uint i, A value) { y.v[i] = uint16_t(float_to_bhalf(value)); }
#endif
#else
#define Elements Floats
A read(Floats x, uint i) { return x.v[i]; }
void write(Floats y, uint i, A value) { y.v[i] = value; }
#endif

// These tests look at bits, because a driver may assume that no value is NaN or infinite.
bool is_nan(float x) { return (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u; }
bool is_infinite(float x) { return (floatBitsToUint(x) & 0x7fffffffu) == 0x7f800000u; }
bool is_minus_infinity(float x) { return floatBitsToUint(x) == 0xff800000u; }
bool is_zero(float x) { return (floatBitsToUint(x) & 0x7fffffffu) == 0; }
bool is_finite(float x) { return (floatBitsToUint(x) & 0x7fffffffu) < 0x7f800000u; }

// Workgroups are numbered over x, then y. A long dispatch runs in several parts of whole rows of x,
// so nothing may depend on the number of rows. Numbers past the end of the work do nothing.
uint group_index() { return gl_WorkGroupID.x + gl_NumWorkGroups.x * gl_WorkGroupID.y; }

// The loop of an invocation over its elements of the n elements of a dispatch: every
// gl_WorkGroupSize.x-th of the p.per_group elements of its workgroup.
#define FOR_ELEMENTS(i, n)                                                      \
  for (uint i = group_index() * p.per_group + gl_LocalInvocationID.x,           \
            end_of_##i = min((group_index() + 1) * p.per_group, n);             \
       i < end_of_##i; i += gl_WorkGroupSize.x)

// A software driver may execute a load with a uniform address even if the surrounding condition is
// false. The address must therefore always be valid: clamp indices, do not only check them.
uint clamp_index(uint i, uint count) { return min(i, max(count, 1u) - 1); }

// Row kernels give each subgroup one row, so they need no barrier at any subgroup size.
uint subgroup_index() { return group_index() * gl_NumSubgroups + gl_SubgroupID; }
// Declares the row of the subgroup, and ends the invocations of subgroups without one.
#define ROW_OF_SUBGROUP(row, rows)                                              \
  const uint row = clamp_index(subgroup_index(), rows);                         \
  if (subgroup_index() >= rows) {                                               \
    return;                                                                     \
  }
