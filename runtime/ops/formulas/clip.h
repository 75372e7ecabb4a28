//! constants min max
FORWARD(clip) { return select(less(x, p), p, select(less(q, x), q, x)); }
GRADIENT(clip) { return select(less(x, p) || less(q, x) || is_nan(x), 0.0f, dy); }
