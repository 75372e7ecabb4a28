// Dynamic dimensions: the number of valid elements along an axis (device::Operand::counted_axis).
// Include it after step.glsl.
//
// `at` is the index of the word in the step buffer, or 0 if all `size` elements are valid. The load
// is valid in both cases, as software drivers require.
uint extent(Step step, uint at, uint size) {
  const uint count = Words(step).v[at];
  return at == 0 ? size : min(count, size);
}
