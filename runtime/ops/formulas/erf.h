FORWARD(erf) { return erf_of(x); }
GRADIENT(erf) { return dy * (1.12837917f * exp_of(-(x * x))); }
