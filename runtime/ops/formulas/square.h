//! of floats integers
FORWARD(square) { return x * x; }
GRADIENT(square) { return (x + x) * dy; }
