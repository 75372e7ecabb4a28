//! constants alpha
FORWARD(elu) { return select(negative(x), p * expm1_of(x), x); }
GRADIENT(elu) { return select(positive(x), dy, dy * (p * exp_of(x))); }
