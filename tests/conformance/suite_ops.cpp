// Suite ops: compares every case of every operator on the device with its oracle.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "conformance/elements.h"
#include "conformance/suite.h"

namespace bowline::conformance {
namespace {

constexpr size_t kQuickCases = 50;  // per operator
constexpr uint32_t kRepeatCount = 3;

// Compares the expected values of the file with the oracle.
std::string check_given_numbers(const Case& c, const Expected& e) {
  for (size_t i = 0; i < c.expected.size(); ++i) {
    if (!c.expected[i]) {
      continue;
    }
    const std::vector<double>& given = *c.expected[i];
    if (i >= e.outputs.size() || given.size() != e.outputs[i].values.size()) {
      return format("{} numbers are expected of output {}", given.size(), i);
    }
    for (size_t k = 0; k < given.size(); ++k) {
      const double got = round_to(e.outputs[i].dtype, e.outputs[i].values[k]);
      const bool same = std::isnan(given[k]) ? std::isnan(got)
                        : std::isinf(given[k])
                            ? got == given[k]
                            : std::abs(got - given[k]) <= 2e-6 * std::max(1.0, std::abs(given[k]));
      if (!same) {
        return format("the oracle gives {} for element {} of output {}, the file says {}", got, k,
                      i, given[k]);
      }
    }
  }
  return "";
}

// Returns true if inputs of zeros are an error, such as a quotient by 0. The other iterations of a
// Repeat have such inputs.
bool refuses_zeros(const Case& c, std::span<const Array> inputs) {
  std::vector<Array> zeros(inputs.begin(), inputs.end());
  for (Array& a : zeros) {
    std::ranges::fill(a.values, 0.0);
  }
  const Result<Expected> e = run_oracle(op_def(c.op).oracle, c.op, c.attributes, zeros, c.step);
  return e.ok() && !e.value().outcome.bad_indices.empty();
}

MatmulPrecision precision_of(const Run& run) { return run.device->capabilities().matmul_precision; }

std::vector<Placement> placements(const Case& c, std::span<const Array> inputs, const Expected& e,
                                  size_t number) {
  std::vector<Placement> out(1);
  for (const InPlace& p : op_def(c.op).in_place) {
    if (p.output >= 0 && static_cast<size_t>(p.input) < inputs.size() &&
        inputs[static_cast<size_t>(p.input)].shape.elements() ==
            e.outputs[static_cast<size_t>(p.output)].shape.elements()) {
      out.emplace_back().in_place = p;
    }
  }
  // Every fourth case also runs inside a Repeat, every second of these backwards.
  if (number % 4 == 0 && !op_def(c.op).takes_lists && e.outcome.bad_indices.empty() &&
      !inputs.empty() && !refuses_zeros(c, inputs)) {
    Placement& p = out.emplace_back();
    p.repeat = kRepeatCount;
    p.reverse = number % 8 == 4;
  }
  // Every fourth case also runs with the weights as views of rows.
  if (number % 4 == 2) {
    out.emplace_back().rows = true;
  }
  return out;
}

std::string name_of(const Placement& p) {
  return p.in_place      ? format(", output {} on input {}", p.in_place->output, p.in_place->input)
         : p.reverse     ? ", in a Repeat that runs backwards"
         : p.repeat != 0 ? ", in a Repeat"
         : p.rows        ? ", with storages at odd elements"
                         : "";
}

// Returns the inputs with denormals replaced by zeros of the same sign, or std::nullopt if there
// are none.
std::optional<std::vector<Array>> without_denormals(std::span<const Array> inputs) {
  std::vector<Array> out(inputs.begin(), inputs.end());
  bool found = false;
  for (Array& a : out) {
    for (double& v : a.values) {
      if (v != 0 && std::abs(v) < static_cast<double>(std::numeric_limits<float>::min())) {
        v = std::copysign(0.0, v);
        found = true;
      }
    }
  }
  return found ? std::optional(std::move(out)) : std::nullopt;
}

// Checks output 0 as a gradient: overwritten or added, as the entry and the step require.
std::string check_gradient(Run& run, Bench& bench, const Case& c, std::span<const Array> inputs,
                           const Expected& expected) {
  const std::vector<double>& values = expected.outputs[0].values;
  for (const bool first : {true, false}) {
    for (const bool accumulate : {true, false}) {
      Case gradient_case = c;
      gradient_case.step.facts.first_contribution = first;
      gradient_case.step.facts.accumulate = accumulate;
      Placement p;
      p.gradient = draw(Values::normal, values.size(), hash_of(c.text), 99);
      Expected wanted = expected;
      wanted.outputs[0].dtype = DType::f32;  // also of a node that computes in 16 bits
      ++wanted.tolerance.roundings;
      std::vector<double>& magnitude = wanted.magnitude[0];
      if (magnitude.empty()) {
        std::ranges::transform(values, std::back_inserter(magnitude),
                               [](double v) { return std::abs(v); });
      }
      for (size_t i = 0; i < values.size() && (!first || accumulate); ++i) {
        magnitude[i] += std::abs((*p.gradient)[i]);
        wanted.outputs[0].values[i] += (*p.gradient)[i];
      }
      const Result<Observed> observed = bench.run(gradient_case, inputs, wanted, p);
      if (!observed.ok()) {
        return observed.status().message() + ", into a gradient";
      }
      const Verdict verdict = compare(gradient_case, wanted, nullptr, observed.value());
      run.note_error(verdict.units, c.text);
      if (!verdict.problem.empty()) {
        return verdict.problem + ", into a gradient";
      }
    }
  }
  return "";
}

// TF32 rounds the smallest denormals to zero.
bool keeps_denormals(const Run& run) {
  return run.device->capabilities().denormals && precision_of(run) == MatmulPrecision::f32;
}

std::string check_placements(Run& run, Bench& bench, const Case& c, std::span<const Array> inputs,
                             const Expected& expected, size_t number) {
  const std::optional<std::vector<Array>> flushed_inputs =
      keeps_denormals(run) ? std::nullopt : without_denormals(inputs);
  for (const Placement& p : placements(c, inputs, expected, number)) {
    Step step = c.step;
    if (p.repeat != 0) {
      step.facts.iteration = p.reverse ? 0 : p.repeat - 1;
    }
    const auto expect = [&](std::span<const Array> given) {
      return run_oracle(op_def(c.op).oracle, c.op, c.attributes, given, step, precision_of(run))
          .value();
    };
    const Expected wanted = p.repeat == 0 ? expected : expect(inputs);
    const std::optional<Expected> flushed =
        flushed_inputs ? std::optional(expect(*flushed_inputs)) : std::nullopt;
    const Result<Observed> observed = bench.run(c, inputs, wanted, p);
    if (!observed.ok()) {
      return observed.status().message() + name_of(p);
    }
    const Verdict verdict = compare(c, wanted, flushed ? &*flushed : nullptr, observed.value());
    run.note_error(verdict.units, c.text);
    if (!verdict.problem.empty()) {
      return verdict.problem + name_of(p);
    }
  }
  return "";
}

// Calls `check` with the choice of the device and, with Options::candidates, with each candidate.
template <class Check>
std::string with_candidates(Run& run, uint32_t candidates, const Check& check) {
  std::string problem = check();
  for (uint32_t c = 0; run.options.candidates && problem.empty() && c < candidates; ++c) {
    run.device->force_candidate(c);
    problem = check();
    run.device->force_candidate({});
    problem += problem.empty() ? "" : format(", with candidate {}", c);
  }
  return problem;
}

std::string check_on_device(Run& run, Bench& bench, const Case& c, size_t number) {
  const OpDef& def = op_def(c.op);
  Result<std::vector<Array>> inputs = draw_inputs(c, run.options.seed);
  if (!inputs.ok()) {
    return inputs.status().message();
  }
  Result<Expected> expected =
      run_oracle(def.oracle, c.op, c.attributes, inputs.value(), c.step, precision_of(run));
  if (!expected.ok()) {
    return expected.status().message();
  }
  if (std::string problem = check_given_numbers(c, expected.value()); !problem.empty()) {
    return problem;
  }
  if (def.is_view) {
    return "";
  }
  const device::NodeAnswer answer = bench.query(c, inputs.value(), expected.value());
  if (!answer.reason.empty()) {
    return format("the device cannot run it: {}", answer.reason);
  }
  return with_candidates(run, answer.candidates, [&] {
    std::string problem = check_placements(run, bench, c, inputs.value(), expected.value(), number);
    return problem.empty() && (answer.accumulates & 1) != 0
               ? check_gradient(run, bench, c, inputs.value(), expected.value())
               : problem;
  });
}

// Checks that the device supports a dtype exactly where the cases use it, and otherwise refuses it
// by name.
std::string check_dtype(Run& run, Bench& bench, std::span<const Case> cases, const Case& like,
                        DType dtype) {
  Case c = like;
  c.dtype = dtype;
  const Result<std::vector<Array>> inputs = draw_inputs(c, run.options.seed);
  if (!inputs.ok()) {
    return inputs.status().message();
  }
  const Result<Expected> expected =
      run_oracle(op_def(c.op).oracle, c.op, c.attributes, inputs.value(), c.step);
  if (!expected.ok()) {
    return expected.status().message();
  }
  const std::string reason = bench.query(c, inputs.value(), expected.value()).reason;
  if (reason.empty()) {
    const bool fixed = like.inputs[0].is_index || dtype == DType::f32 || run.options.oracles;
    const bool asked = fixed || std::ranges::any_of(
                                    cases, [&](const Case& other) { return other.dtype == dtype; });
    return asked ? "" : "the device has a kernel, but no case asks for it";
  }
  return reason.find(bowline::name_of(dtype)) != reason.npos
             ? ""
             : format("the refusal does not name the dtype: {}", reason);
}

}  // namespace

std::string check_refused(const Case& c) {
  std::vector<Shape> shapes;
  std::vector<DType> dtypes;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    shapes.push_back(c.inputs[i].shape);
    dtypes.push_back(dtype_of_input(c, i));
  }
  Status refused = c.attributes_refused;
  if (refused.ok()) {
    refused = infer(c.op, c.attributes, shapes, dtypes).status();
  }
  if (refused.ok()) {
    return "inference accepts what it should refuse";
  }
  const std::string& message = refused.message();
  return message == c.refusal + "."
             ? ""
             : format("the refusal is not \"{}.\" but \"{}\"", c.refusal, message);
}

Status run_ops(Run& run) {
  Bench bench(run.device);
  for (int i = 0; i < kOps; ++i) {
    const Op op = op_at(i);
    const std::string_view name = bowline::name_of(op);
    if (!selects(run.options, name)) {
      continue;
    }
    BOWLINE_TRY_ASSIGN(std::vector<Case> cases, cases_of(op, run.options, kQuickCases));
    run.drop_unfused(cases);
    const auto runnable = std::ranges::find(cases, false, &Case::refused);
    if (runnable != cases.end() && !op_def(op).is_view) {
      const std::span<const DType> types =
          op_def(op).inputs > 0 ? types_of_input(op_def(op).types, 0) : std::span<const DType>();
      for (const DType dtype : types) {
        const auto typed = std::ranges::find_if(
            cases, [&](const Case& c) { return !c.refused && c.dtype == dtype; });
        const Case& like = typed == cases.end() ? *runnable : *typed;
        run.one(name, format("{}, all operands {}", like.where, dtype),
                [&] { return check_dtype(run, bench, cases, like, dtype); });
      }
    }
    for (size_t k = 0; k < cases.size(); k += run.options.every) {
      const Case& c = cases[k];
      run.one(name, c.text,
              [&] { return c.refused ? check_refused(c) : check_on_device(run, bench, c, k); });
    }
  }
  return {};
}

}  // namespace bowline::conformance
