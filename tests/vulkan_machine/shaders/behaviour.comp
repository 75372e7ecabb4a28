// What machine_test.cpp runs: one right kernel, and kernels with one fault each.
#version 450
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint CASE = 0;

layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Words { uint v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Pairs { uvec2 v[]; };
layout(push_constant, scalar) uniform Push {
  Words out_;
  Pairs pairs;
  uint n;
} p;

shared uint cells[128];

void main() {
  const uint lane = gl_LocalInvocationID.x;
  const uint last = gl_WorkGroupSize.x - 1;
  uint result = 0;
  switch (CASE) {
    case 0:  // reverses through shared memory
      cells[lane] = lane;
      barrier();
      result = cells[last - lane];
      break;
    case 1:  // a read without a barrier
      cells[lane] = lane;
      result = cells[last - lane];
      break;
    case 2:  // a write without a barrier after the read of another lane
      cells[lane] = lane;
      barrier();
      result = cells[min(lane + 1, last)];
      cells[lane] = 0;
      break;
    case 3:  // a barrier of subgroups, for the lanes of a subgroup
      cells[lane] = lane;
      subgroupBarrier();
      result = cells[lane ^ 1];
      break;
    case 4:  // a barrier of subgroups, for the lanes of several
      cells[lane] = lane;
      subgroupBarrier();
      result = cells[last - lane];
      break;
    case 5:  // nobody wrote it
      result = cells[lane];
      break;
    case 6:  // half of the lanes miss the barrier
      if (lane < 32) {
        barrier();
      }
      break;
    case 7:  // past the end of an array
      cells[lane + p.n] = 1;
      break;
    case 8:  // past the end of a buffer
      result = p.out_.v[lane + p.n];
      break;
    case 9:  // 8 bytes at an address that is a multiple of 4
      const uvec2 both = p.pairs.v[0];
      result = both.x + both.y;
      break;
    case 10:  // no end
      while (p.n > 0) {
        result ^= lane;
      }
      break;
    case 11:  // only the lanes of the branch take part
      if (lane % 4 == 0) {
        result = subgroupAdd(1u);
      }
      break;
    case 12:  // from a lane that is not in the branch
      if (lane % 4 == 0) {
        result = subgroupShuffle(lane, 1);
      }
      break;
    case 13:  // lanes leave a loop at different times, and meet after it
      for (uint i = 0; i < lane; ++i) {
        result += i;
      }
      result = subgroupAdd(1u);
      break;
    case 14: {  // neither is true of NaN, and n is the bits of NaN
      const float x = uintBitsToFloat(p.n);
      result = (x < 0 ? 1 : 0) + (x >= 0 ? 2 : 0);
      break;
    }
    case 15:
      result = gl_SubgroupSize * 1000 + gl_SubgroupInvocationID;
      break;
  }
  p.out_.v[lane] = result;
}
