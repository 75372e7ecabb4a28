// Counted axes: how many elements of an axis are there (device::Operand::counted_axis). After
// step.glsl.
//
// `at` is the word of the step buffer that says so, counted from its begin, or 0, which is no
// count: then it is `size`. The load is valid either way, as a software driver needs.
uint extent(Step step, uint at, uint size) {
  const uint count = Words(step).v[at];
  return at == 0 ? size : min(count, size);
}
