FORWARD(log) { return log_of(x); }
