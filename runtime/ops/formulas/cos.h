FORWARD(cos) { return cos_of(x); }
GRADIENT(cos) { return -dy * sin_of(x); }
