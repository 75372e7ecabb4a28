// Sums over a workgroup. Include it after common.glsl.
const uint MOST_SUBGROUPS = 64;  // of 256 invocations

shared A of_subgroups[MOST_SUBGROUPS];

void wait_for_workgroup() {
  if (gl_NumSubgroups > 1) {
    barrier();
  } else {
    subgroupBarrier();  // software devices need no coroutine for it
  }
}

A sum_of_workgroup(A x) {
  x = subgroupAdd(x);
  if (gl_SubgroupInvocationID == 0) {
    of_subgroups[gl_SubgroupID] = x;
  }
  wait_for_workgroup();
  A sum = 0;
  for (uint s = 0; s < gl_NumSubgroups; ++s) {
    sum += of_subgroups[s];
  }
  wait_for_workgroup();
  return sum;
}
