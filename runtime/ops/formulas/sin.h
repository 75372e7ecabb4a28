FORWARD(sin) { return sin_of(x); }
GRADIENT(sin) { return dy * cos_of(x); }
