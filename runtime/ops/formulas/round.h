FORWARD(round) { return round_of(x); }
