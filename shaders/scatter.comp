//! variants BYTES=1,2,4,8
// y[.., indices[.., i, ..], ..] = updates[.., i, ..]; the last of equal indices wins. Moves bits of
// any dtype.
#include "common.glsl"
#include "cells.glsl"
#include "index.glsl"
#include "step.glsl"

#define Data Cells
#define Updates Cells
void join(Data y, uint at, Updates updates, uint from) { y.v[at] = updates.v[from]; }
#include "scatter.glsl"
