FORWARD(exp) { return exp_of(x); }
