// The dialect that all shaders share: operands by device address, no descriptor sets.
//
// T is the storage type, A the arithmetic type. Constant 0 is the workgroup's size in x.
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

// Workgroups are numbered over x, then y. A long dispatch runs in pieces of whole rows of x, so nothing may
// depend on the number of rows; numbers past the end of the work do nothing.
uint group_index() { return gl_WorkGroupID.x + gl_NumWorkGroups.x * gl_WorkGroupID.y; }

// A software driver may run a load with one address for all lanes even where the condition around it is false, so such
// an address must be valid always: indices are clamped, not only checked.
uint clamp_index(uint i, uint count) { return min(i, max(count, 1u) - 1); }

// Row kernels give each subgroup one row, so no barrier is needed at any subgroup size.
uint subgroup_index() { return group_index() * gl_NumSubgroups + gl_SubgroupID; }
