BINARY(div) { return a / b; }
GRADIENT_A(div) { return dy / b; }
GRADIENT_B(div) { return (-dy * (a / b)) / b; }
