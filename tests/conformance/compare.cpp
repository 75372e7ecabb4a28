#include <cmath>
#include <limits>

#include "conformance/bench.h"
#include "conformance/elements.h"
#include "conformance/suite.h"

namespace bowline::conformance {
namespace {

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

double number_of(StepType type, uint64_t bits) {
  return type == StepType::f32 ? static_cast<double>(step_number<float>(bits))
                               : static_cast<double>(bits);
}

// Compares the per-step scalars. A written f32 must be within its tolerance, a written integer must
// be exact, and all others must not change.
Verdict compare_words(const Case& c, const Expected& e, std::span<const uint64_t> got) {
  Verdict v;
  const std::vector<uint64_t> before = words_of(c.op, c.step).value();
  const std::span<const StepWordInfo> words = step_words(c.op);
  for (size_t i = 0; i < words.size(); ++i) {
    const StepType type = words[i].type;
    const std::optional<double> written = e.outcome.words[i];
    const double expected = written.value_or(number_of(type, before[i]));
    double units = 0;
    if (written && type == StepType::f32) {
      units = error_units(e.tolerance, std::abs(expected), expected, number_of(type, got[i]));
    } else if (got[i] != (written ? static_cast<uint64_t>(expected) : before[i])) {
      units = std::numeric_limits<double>::infinity();
    }
    v.units = std::max(v.units, units);
    if (!(units <= 1) && v.problem.empty()) {
      v.problem = format("step word {} is {} instead of {}", words[i].name, number_of(type, got[i]),
                         expected);
    }
  }
  return v;
}

std::string check_error_word(const Case& c, const Expected& e, const device::StepHead& head) {
  if (e.outcome.may_set_error) {
    return "";
  }
  if (e.outcome.bad_indices.empty()) {
    return (head.error != 0) == c.step.facts.error
               ? ""
               : format("the error word is {} though no index is bad", head.error);
  }
  if (head.error != static_cast<uint32_t>(device::StepError::index_out_of_range) ||
      head.error_node != kBenchNode) {
    return format("an index is bad, and the error word is {}, of node {}", head.error,
                  head.error_node);
  }
  const auto& bad = e.outcome.bad_indices;
  const bool known = std::ranges::find(bad, static_cast<double>(head.error_value)) != bad.end();
  return known ? "" : format("the error value {} is none of the bad indices", head.error_value);
}

}  // namespace

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Compares a float that is smaller than f32. An f32 result may be off by `error`, and is then
// rounded once.
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
  // An exact operator must return the rounded result of the oracle.
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

namespace {

// Compares a quantized state that takes rows. Each value must be within half a quantization step of
// its block. A block with a value that is not finite must be zeros. Rounding in f32 adds less than
// 1e-4 of a step, because the largest quantized value is 127 and a GPU division has an error of 2.5
// units.
Verdict compare_codes(const Array& expected, const Encoding& encoding,
                      std::span<const double> got) {
  constexpr double kHalf = 0.5 + 1e-4;
  const CodeLayout l = *encoding.layout(expected.shape);
  Verdict verdict;
  for (size_t row = 0; row < expected.values.size(); row += l.columns) {
    for (size_t first = 0; first < l.columns; first += l.block) {
      const size_t n = std::min<size_t>(l.block, l.columns - first);
      const std::span block = std::span(expected.values).subspan(row + first, n);
      const bool finite = std::ranges::all_of(block, [](double v) { return std::isfinite(v); });
      double most = 0;
      for (const double v : block) {
        most = std::max(most, finite ? std::abs(v) : 0);
      }
      for (size_t i = 0; i < n; ++i) {
        const double right = finite ? block[i] : 0;
        const double seen = got[row + first + i];
        const double units = std::abs(seen - right) / (kHalf * most / 127 + Tolerance::kUnderflow);
        if (!(units <= 1) && verdict.problem.empty()) {
          verdict.problem =
              format("element {} of codes is {} instead of {} (a step of its block is {})",
                     row + first + i, seen, right, most / 127);
        }
        verdict.units = std::max(verdict.units, std::isnan(units) ? kNever : units);
      }
    }
  }
  return verdict;
}

}  // namespace

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
    const int state = updated_input(op_def(c.op), i);
    if (state >= 0 && c.inputs[static_cast<size_t>(state)].codes) {
      take(compare_codes(expected.outputs[i], encoding_of_input(c, static_cast<size_t>(state)),
                         observed.outputs[i]));
    } else if ((expected.outcome.undefined_outputs >> i & 1) == 0) {
      take(compare_output(expected, flushed, i, observed.outputs[i]));
    }
  }
  take({0, check_error_word(c, expected, observed.head)});
  take(compare_words(c, expected, observed.words));
  return all;
}

}  // namespace bowline::conformance
