BINARY(add) { return a + b; }
