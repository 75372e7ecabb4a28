// Compares operators and their gradients with PyTorch in double precision. The oracles agree to
// nearly all digits of the file, and the devices agree within the tolerance of the operator.
#include <cmath>
#include <set>

#include "api/internals.h"
#include "conformance/bench.h"
#include "conformance/oracle_gradient.h"
#include "conformance/suite.h"
#include "ties/test_devices.h"
#include "torch/golden.h"

namespace bowline::test {
namespace {

using conformance::Array;
using conformance::Bench;
using conformance::Case;
using conformance::Expected;

// The rounding error of the ten digits in the file, plus the rounding error of double precision.
constexpr double kDigits = 2e-9;

// Returns the value to which a rounding error is relative: the output itself, or its magnitude if
// the operator has one.
double size_of_error(const Expected& e, size_t output, size_t i) {
  const std::vector<double>& magnitude = e.magnitude[output];
  return std::max(std::abs(e.outputs[output].values[i]), magnitude.empty() ? 0 : magnitude[i]);
}

// Returns the first wrong value, or an empty text.
template <class Bound>
std::string differs(std::span<const double> got, const Numbers& wanted, Bound&& bound) {
  if (got.size() != wanted.size()) {
    return format("there are {} numbers, not {}", got.size(), wanted.size());
  }
  for (size_t i = 0; i < got.size(); ++i) {
    const bool same = std::isfinite(wanted[i]) ? std::abs(got[i] - wanted[i]) <= bound(i)
                      : std::isnan(wanted[i])  ? std::isnan(got[i])
                                               : got[i] == wanted[i];
    if (!same) {
      return format("element {} is {}, PyTorch says {}", i, got[i], wanted[i]);
    }
  }
  return "";
}

std::string check_oracle(const Case& c, const Expected& e) {
  for (size_t o = 0; o < c.expected.size(); ++o) {
    if (!c.expected[o]) {
      continue;
    }
    const std::string problem = differs(e.outputs[o].values, *c.expected[o], [&](size_t i) {
      return kDigits * std::max(size_of_error(e, o, i), 1e-9);
    });
    if (!problem.empty()) {
      return format("the oracle, output {}: {}", o, problem);
    }
  }
  return "";
}

std::string check_device(Bench& bench, const Case& c, std::span<const Array> inputs, Expected e) {
  if (op_def(c.op).is_view) {
    return "";
  }
  if (const std::string reason = bench.query(c, inputs, e).reason; !reason.empty()) {
    return "the device cannot run it: " + reason;
  }
  // Errors stay relative to the magnitude of the oracle.
  for (size_t o = 0; o < e.outputs.size(); ++o) {
    Expected whole = e;
    e.magnitude[o].resize(e.outputs[o].values.size());
    for (size_t i = 0; i < e.magnitude[o].size(); ++i) {
      e.magnitude[o][i] = size_of_error(whole, o, i);
    }
    if (o < c.expected.size() && c.expected[o]) {
      e.outputs[o].values = *c.expected[o];
    }
  }
  const auto observed = bench.run(c, inputs, e, {});
  return observed.ok() ? conformance::compare(c, e, nullptr, observed.value()).problem
                       : observed.status().message();
}

// Computes the gradient as the operator builds it. Each operator of the gradient runs on the bench,
// or as its oracle if there is no bench.
class Backward {
 public:
  Backward(Bench* bench, const Case& c) : bench_(bench), case_(c) {}

  Result<std::vector<Array>> operator()(Op op, const Attributes& attributes,
                                        std::span<const Array> inputs) {
    BOWLINE_TRY_ASSIGN(
        Expected e, conformance::run_oracle(op_def(op).oracle, op, attributes, inputs, case_.step));
    roundings_ += e.tolerance.roundings + 1;
    ++operators_;
    for (size_t o = 0; o < e.outputs.size(); ++o) {
      for (size_t i = 0; i < e.outputs[o].values.size(); ++i) {
        largest_ = std::max(largest_, size_of_error(e, o, i));
      }
    }
    if (bench_ == nullptr || op_def(op).is_view) {
      return std::move(e.outputs);
    }
    Case c = case_;
    c.op = op;
    c.attributes = attributes;
    c.inputs.clear();
    for (const Array& a : inputs) {
      conformance::Input in;
      in.shape = a.shape;
      in.dtype = a.dtype;
      c.inputs.push_back(in);
    }
    const std::string reason = bench_->query(c, inputs, e).reason;
    BOWLINE_REQUIRE(reason.empty(), "The device cannot run {}: {}", op, reason);
    BOWLINE_TRY_ASSIGN(const conformance::Observed observed, bench_->run(c, inputs, e, {}));
    for (size_t o = 0; o < e.outputs.size(); ++o) {
      e.outputs[o].values = observed.outputs[o];
    }
    return std::move(e.outputs);
  }

  // The bound is relative to the largest intermediate value and includes the rounding errors of all
  // operators. Oracles round only the attributes that a gradient creates, such as 1 / n.
  double bound() const {
    const double roundings = std::ldexp(bench_ == nullptr ? operators_ : roundings_, -24);
    return (roundings + kDigits) * std::max(largest_, 1e-9);
  }

 private:
  Bench* bench_;
  const Case& case_;
  double roundings_ = 0;
  double operators_ = 0;
  double largest_ = 0;
};

// Requests the gradients that the file contains.
class AskedGradient : public conformance::OracleGradient {
 public:
  AskedGradient(const Case& c, std::span<const Array> inputs, const Expected& e,
                std::vector<Array> douts, const NumberLists& dins, Backward& backward)
      : OracleGradient(c.attributes, inputs, e.outputs, std::move(douts), std::ref(backward)),
        dins_(dins) {}
  bool needs(int i) const override { return dins_[static_cast<size_t>(i)].has_value(); }

 private:
  const NumberLists& dins_;
};

std::string check_gradient(Bench* bench, const Case& c, const GoldenCase& golden,
                           std::span<const Array> inputs, const Expected& e) {
  std::vector<Array> douts;
  for (size_t o = 0; o < e.outputs.size(); ++o) {
    Array d{e.outputs[o].shape, {}, e.outputs[o].dtype};
    if (o < golden.douts.size() && golden.douts[o]) {
      d.values = *golden.douts[o];
    }
    douts.push_back(std::move(d));
  }
  Backward backward(bench, c);
  if (golden.dins.size() != inputs.size()) {
    return format("the file has {} gradients of {} inputs", golden.dins.size(), inputs.size());
  }
  AskedGradient gradient(c, inputs, e, std::move(douts), golden.dins, backward);
  if (const Status status = op_def(c.op).gradient(gradient); !status.ok()) {
    return status.message();
  }
  for (size_t i = 0; i < golden.dins.size(); ++i) {
    if (!golden.dins[i]) {
      continue;
    }
    if (!gradient.gradient(i)) {
      return format("input {} gets no gradient", i);
    }
    const std::string problem =
        differs(*gradient.gradient(i), *golden.dins[i], [&](size_t) { return backward.bound(); });
    if (!problem.empty()) {
      return format("{} gradient of input {}: {}", bench == nullptr ? "the oracle," : "the", i,
                    problem);
    }
  }
  return "";
}

std::string check(Bench& bench, const GoldenCase& golden) {
  const Op op = op_named(golden.op);
  const auto cases = conformance::parse_cases(op, "operators.golden", golden.line);
  if (!cases.ok()) {
    return cases.status().message();
  }
  const Case& c = cases.value().at(0);
  const auto inputs = conformance::draw_inputs(c, 0);
  if (!inputs.ok()) {
    return inputs.status().message();
  }
  const auto e =
      conformance::run_oracle(op_def(op).oracle, op, c.attributes, inputs.value(), c.step);
  if (!e.ok()) {
    return e.status().message();
  }
  std::string problem = check_oracle(c, e.value());
  if (problem.empty()) {
    problem = check_device(bench, c, inputs.value(), e.value());
  }
  for (Bench* const on : {static_cast<Bench*>(nullptr), &bench}) {
    if (problem.empty() && !golden.dins.empty()) {
      problem = check_gradient(on, c, golden, inputs.value(), e.value());
    }
  }
  return problem;
}

class TorchOperators : public OnDevice {};

constexpr const char* kFiles[] = {"operators.golden", "reductions.golden", "networks.golden"};

TEST_P(TorchOperators, ComputeWhatPyTorchDoes) {
  Bench bench(Internals::open(device_));
  for (const char* file : kFiles) {
    for (const GoldenCase& golden : golden_cases(file)) {
      const std::string problem = check(bench, golden);
      EXPECT_TRUE(problem.empty())
          << file << ":" << golden.number << " " << golden.op << ": " << problem;
    }
  }
}

// The files contain every gradient of an operator, except those that move bytes for Repeats and
// states, and those of random numbers.
TEST(TorchFiles, HoldEveryGradient) {
  std::set<std::string> there;
  for (const char* file : kFiles) {
    for (const GoldenCase& golden : golden_cases(file)) {
      if (!golden.dins.empty()) {
        there.insert(golden.op);
      }
    }
  }
  const std::set<Op> apart = {Op::Repeat, Op::Dropout, Op::WriteRows};
  for (int i = 0; i < kFileOps; ++i) {
    const Op op = op_at(i);
    const bool expected = op_def(op).gradient != nullptr && !apart.contains(op);
    EXPECT_TRUE(!expected || there.contains(std::string(bowline::name_of(op))))
        << bowline::name_of(op);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, TorchOperators, testing::ValuesIn(computing_device_names()),
                         [](const auto& p) { return test_name(p.param); });

}  // namespace
}  // namespace bowline::test
