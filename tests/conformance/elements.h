// Elements of every dtype as doubles, which hold all but the largest i64 exactly.
#pragma once

#include <span>
#include <vector>

#include "core/dtype.h"

namespace bowline::conformance {

// The nearest number that an element of this dtype can hold: to nearest even, a float that is too
// large becomes infinite. Of integers x is one, in their range.
double round_to(DType dtype, double x);

// Unit roundoff of a float dtype; 0 of others.
double unit_roundoff(DType dtype);
// Half of its smallest number.
double half_of_smallest(DType dtype);

void store(std::span<const double> values, DType dtype, std::byte* to);
std::vector<double> load(const std::byte* from, size_t elements, DType dtype);

}  // namespace bowline::conformance
