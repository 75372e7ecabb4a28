// Computes the expected result of training a recipe: the oracles in double precision, doubles
// between the operators, and gradients by a reverse walk over straight-line code that are summed
// per storage. The code shares no graph, plan or order with the library.
//
// The allowed difference of a device: operators promise bounds for their own rounding errors
// (ops/op.h). For the same inputs, operator n equals its oracle up to b_n. To first order, a final
// value is then off by D = sum over n of J_n e_n. J_n is the derivative of the value by the result
// of n, and |e_n| <= b_n. For independent rounding errors
//   P(|D| > t s) <= 2 exp(-t^2 / 2)  with  s^2 = sum over n of (J_n b_n)^2  (Hoeffding, 1963).
// The code does not compute J_n and s. Instead it repeats the whole run kLanes times, and adds to
// every result its bound b_n times a normal random number. A lane is then off by a normal number
// with standard deviation s. For the mean square s'^2 of the lanes, kLanes s'^2 / s^2 is
// chi-squared with kLanes degrees of freedom. Over this distribution
//   P(|D| > t s') <= 2 (1 + t^2 / kLanes)^(-kLanes / 2).
// kReach is the t for a probability of 1e-9. 20,000 models compare about 10^7 values, and the
// bounds b_n are several times larger than real rounding errors. If no lane moves a value, the
// value is exact, and the device must return the same bits.
//
// A model is not used if first order is not sufficient: if an operator is within reach of a kink or
// jump of its result, if values are huge or not finite, or if the loss is not known to one percent.
#pragma once

#include "conformance/random/tape.h"

namespace bowline::conformance::random {

constexpr int kLanes = 8;
constexpr double kReach = 41;  // 2 (1 + 41^2 / 8)^-4 = 1e-9

struct Expectation {
  Observation exact;
  std::vector<std::vector<double>> bound;  // by series and element
  bool has_one_weight = true;  // one weight fits all means in the loss, also with micro-batches
};

// Errors  unsupported: the model is not usable; the message says why.
Result<Expectation> expect(const Recipe& recipe, bool as_repeat);

// The loss of batch 0 at the initial weights, and its gradients by storage. A storage without
// gradient has an empty entry.
struct Slopes {
  double loss = 0;
  std::vector<std::vector<double>> gradients;
};
Result<Slopes> slopes_at(const Recipe& recipe, const std::vector<std::vector<double>>& weights);

// Returns the difference in units of the bound.
double units_off(double exact, double bound, double got);

}  // namespace bowline::conformance::random
