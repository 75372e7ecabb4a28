// Elements of every dtype as doubles. Doubles represent all elements exactly except large i64.
#pragma once

#include <span>
#include <vector>

#include "core/dtype.h"

namespace bowline::conformance {

// Returns the nearest number that an element of this dtype can represent. Ties round to even, and a
// float that is too large becomes infinite. An integer x must be in the range of the dtype.
double round_to(DType dtype, double x);

// Returns the unit roundoff of a float dtype, or 0 for other dtypes.
double unit_roundoff(DType dtype);
// Returns half of the smallest number of the dtype.
double half_of_smallest(DType dtype);

void store(std::span<const double> values, DType dtype, std::byte* to);
std::vector<double> load(const std::byte* from, size_t elements, DType dtype);

}  // namespace bowline::conformance
