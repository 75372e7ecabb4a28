FORWARD(sqrt) { return sqrt_of(x); }
GRADIENT(sqrt) { return dy / (2.0f * sqrt_of(x)); }
