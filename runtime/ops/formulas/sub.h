BINARY(sub) { return a - b; }
