FORWARD(tanh) { return tanh_of(x); }
