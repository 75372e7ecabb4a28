FORWARD(rsqrt) { return 1.0f / sqrt_of(x); }
GRADIENT(rsqrt) { return dy * (-0.5f / (x * sqrt_of(x))); }
