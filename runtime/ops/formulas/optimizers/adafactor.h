// Adafactor: steps relative to second moments, which matrices keep as their rows and columns alone,
// and to the size of the weight. It has no formula here, as it sums over rows, columns and whole
// weights: runtime/ops/adafactor.cpp has what it computes.
//! decay decoupled = 0
//! number beta2_decay = -0.8 in (-inf, 0]: decay schedule exponent
//! number eps = 0 in [0, inf): epsilon
//! number eps2 = 1e-3 in [0, inf): minimum RMS of a weight
//! number update_clip = 1 in (0, inf): maximum RMS of an update
//! state v of squares factored
//! step update: u32 = 1
