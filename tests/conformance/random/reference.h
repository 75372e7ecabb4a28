// What training a recipe must give: the oracles in double precision, with doubles between the
// operators, gradients by a reverse walk over straight-line code that adds up per storage. It
// shares no graph, plan or order with the library.
//
// How far a device may be away. The operators promise bounds for their own roundings (ops/op.h):
// operator n gives what its oracle gives for the same inputs, up to b_n. To first order a number at
// the end is then off by D = sum over n of J_n e_n, with J_n how that number follows from the
// result of n, and |e_n| <= b_n. Roundings that do not conspire have
//   P(|D| > t s) <= 2 exp(-t^2 / 2)  with  s^2 = sum over n of (J_n b_n)^2  (Hoeffding, 1963).
// J_n and s are not computed. Instead the whole run is repeated kLanes times, each time with every
// result moved by its bound b_n times a normal number: a lane is off by a normal number of
// deviation s. Of kLanes such numbers the mean square s'^2 has kLanes s'^2 / s^2 chi-squared with
// kLanes degrees of freedom, and over that distribution
//   P(|D| > t s') <= 2 (1 + t^2 / kLanes)^(-kLanes / 2).
// kReach is the t at which this is 1e-9. 20,000 models compare some 10^7 numbers, and the bounds
// b_n are several times the roundings that happen. Where no lane moves, a number is exact, and a
// device gives its very bits.
//
// Models for which first order is not enough are not used: those of which an operator is within
// reach of where its result bends or jumps, with numbers that are not finite or huge, or with a
// loss that is not known to one percent.
#pragma once

#include "conformance/random/tape.h"

namespace bowline::conformance::random {

constexpr int kLanes = 8;
constexpr double kReach = 41;  // 2 (1 + 41^2 / 8)^-4 = 1e-9

struct Expectation {
  Observation exact;
  std::vector<std::vector<double>> bound;  // by series and element
  bool has_one_weight = true;              // for all means that the loss adds, in micro-batches
};

// Errors  unsupported: the model is not used, and why.
Result<Expectation> expect(const Recipe& recipe, bool as_repeat);

// The gradients of the loss of batch 0 at the first weights, by storage; of a storage without
// gradient: empty. And the loss.
struct Slopes {
  double loss = 0;
  std::vector<std::vector<double>> gradients;
};
Result<Slopes> slopes_at(const Recipe& recipe, const std::vector<std::vector<double>>& weights);

// How far a number is away, in units of its bound.
double units_off(double exact, double bound, double got);

}  // namespace bowline::conformance::random
