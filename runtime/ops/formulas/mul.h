BINARY(mul) { return a * b; }
