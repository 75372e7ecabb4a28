//! of truths
FORWARD(not ) { return select(equal(x, 0.0f), 1.0f, 0.0f); }
