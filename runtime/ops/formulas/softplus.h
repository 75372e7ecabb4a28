FORWARD(softplus) { return max_of(x, 0.0f) + log1p_of(exp_of(-abs_of(x))); }
GRADIENT(softplus) { return times_sigmoid(dy, x); }
