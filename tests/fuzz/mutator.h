// Changes the tables of a model file by their schema, so that what comes out is again a FlatBuffer of this schema whose
// checksums fit. Nothing here names a field but those of a range: a new field is mutated by itself.
#pragma once

#include <random>

#include "fuzz/frame.h"

namespace bowline::test {

// Changes `frame` a little. Tables that are no FlatBuffer of the schema become those of make_sample() first.
void mutate(Frame& frame, std::mt19937& random);

}  // namespace bowline::test
