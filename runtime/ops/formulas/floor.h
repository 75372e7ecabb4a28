FORWARD(floor) { return floor_of(x); }
