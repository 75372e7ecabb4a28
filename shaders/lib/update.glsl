// The main function of generated/update_<stem>.comp, the update of an optimizer with a formula. One
// dispatch updates all storages, with one workgroup per chunk of a storage. Weights of 16 bits are
// rounded from the updated masters. After an error or a non-finite gradient, weights and states do
// not change.
void main() {
  const uint number = group_index();
  if (number >= p.count || p.step.error != 0 || step_non_finite != 0) {
    return;
  }
  Chunk chunk = p.chunks.v[clamp_index(number, p.count)];
  const A scale = p.scale.v[0];
  read_numbers();
  for (uint i = gl_LocalInvocationID.x; i < chunk.count; i += gl_WorkGroupSize.x) {
    w = chunk.w.v[i];
    g = chunk.g.v[i] * scale;
    load_states(chunk, i);
    apply();
    store_states(chunk, i);
    chunk.w.v[i] = w;
#if !defined(T_f32)
    write(chunk.rounded, i, w);
#endif
    if (!is_finite(w)) {
      set_step_weights_non_finite(1);
    }
  }
}
