// Adafactor: steps relative to second moments, which matrices keep as their rows and columns alone,
// and to the size of the weight. It has no formula here, as it sums over rows, columns and whole
// weights: runtime/ops/adafactor.cpp has what it computes.
//! decay decoupled = 0
//! number beta2_decay = -0.8 in (-inf, 0]: power of the step
//! number eps = 0 in [0, inf): keeps the root of the squares above 0
//! number eps2 = 1e-3 in [0, inf): least scale of a weight
//! number update_clip = 1 in (0, inf): largest RMS of an update
//! state v of squares factored
//! step update: u32 = 1
