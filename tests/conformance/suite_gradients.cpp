// Suite gradients: compares the gradient of every operator with central differences. Oracles
// execute both in double precision.
#include <cmath>
#include <limits>
#include <optional>

#include "conformance/oracle_gradient.h"
#include "conformance/suite.h"

namespace bowline::conformance {
namespace {

constexpr size_t kQuickGradients = 24;
constexpr int64_t kMostElements =
    400;  // of all float inputs; each element costs several runs of the oracle

// sum of weights * output 0: the scalar whose derivatives are measured.
Result<double> weighted(const Case& c, std::span<const Array> inputs,
                        std::span<const double> weights) {
  BOWLINE_TRY_ASSIGN(const Expected e,
                     run_oracle(op_def(c.op).oracle, c.op, c.attributes, inputs, c.step));
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    sum += weights[i] * e.outputs[0].values[i];
  }
  return sum;
}

// Returns the derivative of the scalar by element k of input i, from four points. The error falls
// with the fourth power of h. Returns std::nullopt if the scalar has a kink or jump between the
// points: the slopes between neighbouring points then differ by more than those of a smooth
// function with slopes of about `size`.
Result<std::optional<double>> slope(const Case& c, std::vector<Array>& inputs,
                                    std::span<const double> weights, size_t i, size_t k,
                                    double size) {
  double& x = inputs[i].values[k];
  const double at = x;
  const double h = 3e-5 * std::max(1.0, std::abs(at));
  double points[5] = {};
  for (int p = 0; p < 5; ++p) {
    x = at + (p - 2) * h;
    BOWLINE_TRY_ASSIGN(points[p], weighted(c, inputs, weights));
  }
  x = at;
  double least = std::numeric_limits<double>::infinity();
  double most = -least;
  for (int p = 0; p < 4; ++p) {
    least = std::min(least, (points[p + 1] - points[p]) / h);
    most = std::max(most, (points[p + 1] - points[p]) / h);
  }
  if (most - least > 1e-2 * size) {
    return std::optional<double>();
  }
  return std::optional((points[0] - 8 * points[1] + 8 * points[3] - points[4]) / (12 * h));
}

// The number of compared elements, and of elements without derivative.
struct Tally {
  uint64_t compared = 0;
  uint64_t bends = 0;
};

// A state that the operator writes is never trained.
bool is_state(const OpDef& def, size_t input) {
  return std::ranges::any_of(
      def.updates, [&](const InPlace& pair) { return std::cmp_equal(pair.input, input); });
}

std::string check(Run& run, const Case& c, Tally& tally) {
  Result<std::vector<Array>> drawn = draw_inputs(c, run.options.seed);
  if (!drawn.ok()) {
    return drawn.status().message();
  }
  std::vector<Array> inputs = std::move(drawn).value();
  const Result<Expected> forward =
      run_oracle(op_def(c.op).oracle, c.op, c.attributes, inputs, c.step);
  if (!forward.ok()) {
    return forward.status().message();
  }
  if (forward.value().outcome.undefined_outputs != 0) {
    return "";  // an index is invalid, so there is no loss
  }
  const Array& y = forward.value().outputs[0];
  if (!is_float(y.dtype)) {
    return "";  // the output has no gradient
  }
  const Array dout{y.shape, draw(Values::normal, y.values.size(), hash_of(c.text), 77), y.dtype};
  const auto execute = [&](Op op, const Attributes& attributes,
                           std::span<const Array> taken) -> Result<std::vector<Array>> {
    BOWLINE_TRY_ASSIGN(Expected made, run_oracle(op_def(op).oracle, op, attributes, taken, c.step));
    return std::move(made.outputs);
  };
  OracleGradient context(c.attributes, inputs, forward.value().outputs, {dout}, execute);
  if (const Status status = op_def(c.op).gradient(context); !status.ok()) {
    return status.message();
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!context.needs(static_cast<int>(i)) || is_state(op_def(c.op), i)) {
      continue;
    }
    if (!context.gradient(i)) {
      return format("input {} gets no gradient", i);
    }
    const std::vector<double>& d = *context.gradient(i);
    double size = 1e-3;
    for (const double v : d) {
      size = std::max(size, std::abs(v));
    }
    for (size_t k = 0; k < d.size(); ++k) {
      const Result<std::optional<double>> at = slope(c, inputs, dout.values, i, k, size);
      if (!at.ok()) {
        return at.status().message();
      }
      const std::optional<double> measured = at.value();
      ++(measured ? tally.compared : tally.bends);
      if (!measured) {
        continue;
      }
      const double units = std::abs(*measured - d[k]) / (1e-6 * size);
      run.note_error(units, c.text);
      if (!(units <= 1)) {
        return format("input {}, element {}: the gradient is {}, the slope {}", i, k, d[k],
                      *measured);
      }
    }
  }
  return "";
}

bool suits(const Case& c) {
  int64_t elements = 0;
  for (const Input& in : c.inputs) {
    const Values v = in.values.value_or(c.values);
    if (!in.given.empty() || (v != Values::normal && v != Values::positive) || in.derived) {
      return false;
    }
    if (in.counted_axis >= 0) {
      return false;  // a training has no counts
    }
    const DType dtype = in.dtype.value_or(c.dtype);
    const bool whole = in.is_index || !is_float(dtype);
    elements += whole ? 0 : in.shape.elements();
    // Differences of oracles have no rounding errors, so the other dtypes would give the same
    // result.
    if (!whole && dtype != DType::f32) {
      return false;
    }
  }
  return !c.refused && elements <= kMostElements;
}

}  // namespace

Status run_gradients(Run& run) {
  for (int i = 0; i < kOps; ++i) {
    const Op op = op_at(i);
    const std::string_view name = bowline::name_of(op);
    const OpDef& def = op_def(op);
    if (def.gradient == nullptr || def.oracle == nullptr || !selects(run.options, name)) {
      continue;
    }
    BOWLINE_TRY_ASSIGN(std::vector<Case> cases, cases_of(op, {}, 0));
    std::erase_if(cases, [](const Case& c) { return !suits(c); });
    const size_t most = run.options.quick ? kQuickGradients : cases.size();
    const size_t stride =
        std::max<size_t>(1, (cases.size() + most - 1) / std::max<size_t>(1, most));
    if (cases.empty()) {
      run.fail(std::string(name), "no case of this operator suits the suite");
    }
    Tally tally;
    for (size_t k = 0; k < cases.size(); k += stride) {
      run.one(name, cases[k].text, [&] { return check(run, cases[k], tally); });
    }
    if (tally.bends * 50 > tally.compared) {
      run.fail(std::string(name), format("the oracle has no slope at {} of {} elements",
                                         tally.bends, tally.bends + tally.compared));
    }
  }
  return {};
}

}  // namespace bowline::conformance
