// Gradients that a kernel writes without AccumulateGrad (device::Record::accumulate). Include it
// after step.glsl.

// False: the contribution overwrites the gradient. `is_first` is 1 for the first contribution of a
// submission.
bool adds_to_gradient(Step step, uint is_first) { return is_first == 0 || step.accumulate != 0; }
