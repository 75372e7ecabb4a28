//! constants alpha
FORWARD(leaky_relu) { return select(negative(x), p * x, x); }
GRADIENT(leaky_relu) { return select(positive(x), dy, p * dy); }
