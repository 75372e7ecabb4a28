// Changes the tables of a model file by their schema, so that what comes out is again a FlatBuffer
// of this schema whose checksums fit. Nothing here names a field but those of a range: a new field
// is mutated by itself.
#pragma once

#include <random>

#include "core/status.h"
#include "fuzz/frame.h"

namespace bowline::test {

// Changes `frame` a little. Tables that are no FlatBuffer of the schema become those of
// make_sample() first.
void mutate(Frame& frame, std::mt19937& random);

// The same with an input of libFuzzer, of at most `most` bytes. Returns its size; what does not fit
// stays as it was.
size_t mutate(uint8_t* data, size_t size, size_t most, unsigned seed);

// Whether it is no refusal. A refusal is no fault of the library, unless it says so itself
// (Code::internal): that is a crash.
bool succeeded(const Status& status);

}  // namespace bowline::test
