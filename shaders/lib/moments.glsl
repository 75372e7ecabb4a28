// The statistics of the n elements of a subgroup from `start` on: their mean, which is 0 for rms,
// and r = 1 / sqrt(mean of (x - mean)^2 + eps).
#if defined(KIND_rms)
const bool CENTRED = false;
#else
const bool CENTRED = true;
#endif

void moments(Elements x, uint start, uint n, float eps, out A mean, out A r) {
  mean = 0;
  if (CENTRED) {
    for (uint i = gl_SubgroupInvocationID; i < n; i += gl_SubgroupSize) {
      mean += read(x, start + i);
    }
    mean = subgroupAdd(mean) / A(n);
  }
  A squares = 0;
  for (uint i = gl_SubgroupInvocationID; i < n; i += gl_SubgroupSize) {
    const A d = read(x, start + i) - mean;
    squares += d * d;
  }
  r = 1 / sqrt(subgroupAdd(squares) / A(n) + eps);
}
