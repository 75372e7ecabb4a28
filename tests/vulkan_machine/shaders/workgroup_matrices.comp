// A product of matrices of a workgroup, and faults of such products, for machine_test.cpp. CASE
// selects one. A is [4, 8], B is [8, 16]; C is stored through shared memory.
#pragma use_vulkan_memory_model
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_NV_cooperative_matrix : require

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint CASE = 0;
layout(constant_id = 2) const uint M = 4;
layout(constant_id = 3) const uint N = 16;
layout(constant_id = 4) const uint K = 8;

layout(buffer_reference, scalar, buffer_reference_align = 16) buffer Vectors { uvec4 v[]; };
layout(push_constant, scalar) uniform Push {
  Vectors a;
  Vectors b;
  Vectors c;
} p;

shared uvec4 results[M * N / 4];

void main() {
  const uint lane = gl_LocalInvocationID.x;
  fcoopmatNV<32, gl_ScopeWorkgroup, M, N> c = fcoopmatNV<32, gl_ScopeWorkgroup, M, N>(0.0);
  fcoopmatNV<16, gl_ScopeWorkgroup, M, K> a;
  fcoopmatNV<16, gl_ScopeWorkgroup, K, N> b;
  coopMatLoadNV(a, p.a.v, CASE == 1 ? lane / 64 : 0, 1, false);
  if (CASE != 2) {
    coopMatLoadNV(b, p.b.v, 0, N / 8, false);
  }
  if (CASE != 3 || lane < 64) {
    c = coopMatMulAddNV(a, b, c);
  }
  coopMatStoreNV(c, results, 0, N / 4, false);
  if (CASE == 4) {
    subgroupBarrier();
  } else {
    barrier();
  }
  if (lane < M * N / 4) {
    p.c.v[lane] = results[lane];
  }
}
