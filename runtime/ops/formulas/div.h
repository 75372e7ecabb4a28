//! of floats integers
//! divides
BINARY(div) { return quotient_of(a, b); }
GRADIENT_A(div) { return quotient_of(dy, b); }
GRADIENT_B(div) { return quotient_of(-dy * quotient_of(a, b), b); }
