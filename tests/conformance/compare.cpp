#include <cmath>
#include <limits>

#include "conformance/elements.h"
#include "conformance/suite.h"

namespace bowline::conformance {
namespace {

constexpr uint32_t kNode = 4711;  // of bench.cpp

std::string numbers_at(const Expected& e, size_t output, size_t i, double got) {
  const Shape& s = e.outputs[output].shape;
  return format("output {}{}, element {}: {} instead of {}", output, s, i, got,
                e.outputs[output].values[i]);
}

double units_at(const Expected& e, size_t output, size_t i, double got) {
  const double value = e.outputs[output].values[i];
  const std::vector<double>& magnitude = e.magnitude[output];
  return error_units(e.tolerance, magnitude.empty() ? std::abs(value) : magnitude[i], value, got,
                     e.outputs[output].dtype);
}

Verdict compare_norm(const Expected& e, const device::StepScalars& step) {
  Verdict v;
  const double units =
      error_units(e.tolerance, e.outcome.norm, e.outcome.norm, static_cast<double>(step.grad_norm));
  v.units = units;
  if (!(units <= 1)) {
    v.problem = format("grad_norm is {} instead of {}", step.grad_norm, e.outcome.norm);
  }
  const bool finite = std::isfinite(e.outcome.norm) && !e.outcome.loss_non_finite;
  if ((step.non_finite == 0) != finite) {
    v.problem = format("non_finite is {} at a norm of {} and a loss that is {}finite",
                       step.non_finite, e.outcome.norm, e.outcome.loss_non_finite ? "not " : "");
  }
  return v;
}

std::string check_error_word(const Case& c, const Expected& e, const device::StepScalars& step) {
  if (e.outcome.may_set_error) {
    return "";
  }
  if (e.outcome.bad_indices.empty()) {
    return step.error == c.step_error
               ? ""
               : format("the error word is {} though no index is bad", step.error);
  }
  if (step.error != static_cast<uint32_t>(device::StepError::index_out_of_range) ||
      step.error_node != kNode) {
    return format("an index is bad, and the error word is {}, of node {}", step.error,
                  step.error_node);
  }
  const auto& bad = e.outcome.bad_indices;
  const bool known = std::ranges::find(bad, static_cast<double>(step.error_value)) != bad.end();
  return known ? "" : format("the error value {} is none of the bad indices", step.error_value);
}

}  // namespace

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// A number that f32 arithmetic has `error` at most away from `expected`, then rounded once to a smaller float.
double units_of_narrow(DType dtype, double error, double expected, double got) {
  const double low = round_to(dtype, expected - error);
  const double high = round_to(dtype, expected + error);
  if (!(low <= got && got <= high)) {
    return kNever;
  }
  const double bound = error + unit_roundoff(dtype) * std::abs(expected) + half_of_smallest(dtype);
  return got == low && got == high ? 0 : std::min(std::abs(got - expected) / bound, 1.0);
}

}  // namespace

double error_units(const Tolerance& tolerance, double magnitude, double expected, double got,
                   DType dtype) {
  if (!is_float(dtype)) {
    return got == expected ? 0 : kNever;
  }
  const double rounded = round_to(DType::f32, expected);
  if (std::isnan(rounded) || std::isnan(got)) {
    return std::isnan(rounded) && std::isnan(got) ? 0 : kNever;
  }
  if (std::isinf(rounded) || (std::isinf(got) && dtype == DType::f32)) {
    return rounded == got ? 0 : kNever;
  }
  const double size =
      std::isfinite(magnitude) ? std::max(magnitude, std::abs(expected)) : std::abs(expected);
  const double bound = tolerance.roundings * std::ldexp(size, -24) + tolerance.absolute;
  if (dtype != DType::f32) {
    return units_of_narrow(dtype, bound, expected, got);
  }
  // An exact operator gives the rounded oracle.
  const double error = bound == 0 ? std::abs(got - rounded) : std::abs(got - expected);
  return error == 0 ? 0 : bound == 0 ? kNever : error / bound;
}

Verdict compare_output(const Expected& expected, const Expected* flushed, size_t output,
                       std::span<const double> got) {
  Verdict verdict;
  for (size_t i = 0; i < expected.outputs[output].values.size(); ++i) {
    double units = units_at(expected, output, i, got[i]);
    if (units > 1 && flushed != nullptr) {
      units = std::min(units, units_at(*flushed, output, i, got[i]));
    }
    if (units > 1 && verdict.units <= 1) {
      verdict.problem = numbers_at(expected, output, i, got[i]) +
                        format(" (at most 1 tolerance; it is {})", units);
    }
    verdict.units = std::max(verdict.units, units);
  }
  return verdict;
}

Verdict compare(const Case& c, const Expected& expected, const Expected* flushed,
                const Observed& observed) {
  Verdict all;
  const auto take = [&](Verdict v) {
    all.units = std::max(all.units, v.units);
    if (all.problem.empty()) {
      all.problem = std::move(v.problem);
    }
  };
  for (size_t i = 0; i < expected.outputs.size(); ++i) {
    if ((expected.outcome.undefined_outputs >> i & 1) == 0) {
      take(compare_output(expected, flushed, i, observed.outputs[i]));
    }
  }
  take({0, check_error_word(c, expected, observed.step)});
  if (expected.outcome.norm_known) {
    take(compare_norm(expected, observed.step));
  }
  return all;
}

}  // namespace bowline::conformance
