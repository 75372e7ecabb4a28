// Mutates the tables of a model file by their schema. The result is a FlatBuffer of the schema with
// valid checksums. The code names only the fields of a range, so new fields are mutated
// automatically.
#pragma once

#include <random>

#include "base/status.h"
#include "bowline.h"
#include "fuzz/frame.h"

namespace bowline::test {

// Makes a small change to `frame`. Invalid tables are first replaced by those of make_sample().
void mutate(Frame& frame, std::mt19937& random);

// Mutates an input of libFuzzer in a buffer of `most` bytes. Returns its new size. If the result
// does not fit, the input stays unchanged.
size_t mutate(uint8_t* data, size_t size, size_t most, unsigned seed);

// True if the status is ok. A rejected input is not a fault of the library, except with
// Code::internal, which aborts.
bool succeeded(const Status& status);

}  // namespace bowline::test
