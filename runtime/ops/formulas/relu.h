FORWARD(relu) { return select(negative(x), 0.0f, x); }
GRADIENT(relu) { return select(positive(x), dy, 0.0f); }
