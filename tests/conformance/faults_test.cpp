// Runs every operator with injected faults. The cases must detect each fault, and must report no
// correct result.
#include <gtest/gtest.h>

#include <algorithm>

#include "conformance/oracle_device.h"
#include "conformance/suite.h"
#include "core/optimizers.h"

namespace bowline {

// Prints the parameter of a test for gtest.
static void PrintTo(Op op, std::ostream* out) { *out << name_of(op); }

}  // namespace bowline

namespace bowline::conformance {
namespace {

// Faults that do not change a promised result, with the reason.
struct Harmless {
  Op op;
  const char* fault;
};
constexpr Harmless kHarmless[] = {
    {Op::Abs, "sign of input 0"},          // the function is symmetric
    {Op::Cos, "sign of input 0"},          // the function is symmetric
    {Op::Square, "sign of input 0"},       // the function is symmetric
    {Op::ErfGrad, "sign of input 0"},      // the function is symmetric
    {Op::SinGrad, "sign of input 0"},      // the function is symmetric
    {Op::SigmoidGrad, "sign of input 0"},  // the function is symmetric
    {Op::DivGradA, "sign of input 0"},     // its values do not matter
    {Op::DivGradA, "no term of input 0"},  // its values do not matter
    {Op::DivGradA, "last element missing of input 0"},
    {Op::DivGradB, "sign of input 1"},            // the operator squares it
    {Op::ClipByGlobalNorm, "sign of input 0"},    // the operator squares it
    {Op::ClipByGlobalNorm, "sign of input 1"},    // the operator only tests whether it is finite
    {Op::ClipByGlobalNorm, "shift of output 0"},  // one element
    {Op::CrossEntropy, "shift of output 0"},      // one element
    {Op::Fill, "shift of output 0"},              // all elements are equal
    {Op::LossScale, "shift of output 0"},         // one element
    {Op::NegativeLogLikelihoodGrad, "sign of input 0"},     // its values do not matter
    {Op::NegativeLogLikelihoodGrad, "no term of input 0"},  // its values do not matter
    {Op::NegativeLogLikelihoodGrad, "last element missing of input 0"},
    {Op::FusedConv, "step word training taken as 0"},  // the operator does not read it, because the
                                                       // planner guarantees that it is 0
    {Op::FusedConv, "step word training taken as 1"},
    {Op::BatchNormGrad, "attributes ignored"},   // the operand `inverse` contains their effect
    {Op::Softmax, "attributes ignored"},         // only the last axis exists
    {Op::SoftmaxGrad, "attributes ignored"},     // only the last axis exists
    {Op::LogSoftmax, "attributes ignored"},      // only the last axis exists
    {Op::LogSoftmaxGrad, "attributes ignored"},  // only the last axis exists
};

bool is_harmless(Op op, const std::string& fault) {
  return std::ranges::any_of(kHarmless,
                             [&](const Harmless& h) { return h.op == op && h.fault == fault; });
}

Fault on_input(std::string name, size_t i, const std::function<double(double)>& change) {
  Fault f;
  f.name = format("{} of input {}", name, i);
  f.before = [i, change](OracleCall& c) {
    if (i < c.inputs.size()) {
      for (double& v : c.inputs[i].values) {
        v = change(v);
      }
    }
  };
  return f;
}

// A loop that ends one element too early.
Fault without_last_element(size_t i) {
  Fault f;
  f.name = format("last element missing of input {}", i);
  f.before = [i](OracleCall& c) {
    if (i < c.inputs.size() && !c.inputs[i].values.empty()) {
      c.inputs[i].values.back() = 0;
    }
  };
  return f;
}

Fault on_output(std::string name, size_t i,
                const std::function<void(std::vector<double>&)>& change) {
  Fault f;
  f.name = format("{} of output {}", name, i);
  f.after = [i, change](OracleCall& c) {
    if (i < c.result.outputs.size()) {
      change(c.result.outputs[i].values);
    }
  };
  return f;
}

Fault on_fact(std::string name, const std::function<void(OracleContext::Facts&)>& change) {
  Fault f;
  f.name = std::move(name);
  f.before = [change](OracleCall& c) { change(c.step.facts); };
  return f;
}

// The kernel uses a fixed value instead of the per-step scalar.
Fault on_word(const StepWordInfo& word, uint64_t bits) {
  Fault f;
  const double number = word.type == StepType::f32 ? static_cast<double>(step_number<float>(bits))
                                                   : static_cast<double>(bits);
  f.name = format("step word {} taken as {}", word.name, number);
  f.before = [&word, number](OracleCall& c) {
    for (StepScalar& value : c.step.words) {
      value = value.name == word.name ? StepScalar(word.name, number) : value;
    }
  };
  return f;
}

Fault without_word(const StepWordInfo& word, size_t i) {
  Fault f;
  f.name = format("step word {} not written", word.name);
  f.after = [i](OracleCall& c) { c.result.outcome.words[i].reset(); };
  return f;
}

void add_input_faults(Op op, std::vector<Fault>& out) {
  const OpDef& def = op_def(op);
  // Testing one optional input is sufficient.
  const int inputs = def.inputs + (def.optional_inputs > 0 ? 1 : 0);
  for (int i = 0; i < inputs; ++i) {
    const auto input = static_cast<size_t>(i);
    if (!is_float(types_of_input(def.types, input).front())) {
      out.push_back(on_input("off by one", input, [](double v) { return v - 1; }));
    } else {
      out.push_back(on_input("sign", input, [](double v) { return -v; }));
      out.push_back(on_input("no term", input, [](double) { return 0; }));
      out.push_back(without_last_element(input));
    }
  }
}

void add_output_faults(Op op, std::vector<Fault>& out) {
  for (int i = 0; i < op_def(op).outputs + op_def(op).optional_outputs; ++i) {
    const auto output = static_cast<size_t>(i);
    const std::optional<DType> type = output_type(op_def(op).types, i, {});
    const bool is_truth = type == DType::boolean || std::string_view(op_def(op).types) == "T -> T";
    const bool is_whole = type && !is_float(*type);  // rounding removes such a factor
    out.push_back(on_output("sign", output, [is_truth](std::vector<double>& v) {
      for (double& x : v) {
        x = is_truth ? 1 - x : -x;
      }
    }));
    out.push_back(on_output("last element", output, [](std::vector<double>& v) {
      if (!v.empty()) {
        v.back() = 12345;
      }
    }));
    out.push_back(on_output("shift", output, [](std::vector<double>& v) {
      if (v.size() > 1) {
        std::rotate(v.begin(), v.begin() + 1, v.end());
      }
    }));
    if (!is_truth && !is_whole) {
      out.push_back(on_output("a factor of 1.0001", output, [](std::vector<double>& v) {
        for (double& x : v) {
          x *= 1.0001;
        }
      }));
    }
  }
}

// A kernel that ignores a per-step scalar could use its default or any other value.
void add_step_faults(Op op, std::vector<Fault>& out) {
  const std::span<const StepWordInfo> words = step_words(op);
  for (size_t i = 0; i < words.size(); ++i) {
    const uint64_t one = words[i].type == StepType::f32 ? step_bits<float>(1) : 1;
    if (words[i].written) {
      out.push_back(without_word(words[i], i));
      continue;
    }
    out.push_back(on_word(words[i], one));
    if (words[i].default_bits.value_or(one) != one) {
      out.push_back(on_word(words[i], *words[i].default_bits));
    }
  }
  if (op == Op::Dropout) {
    out.push_back(on_fact("iteration ignored", [](OracleContext::Facts& f) { f.iteration = 0; }));
  }
  if (op == Op::ZeroGrad || op == Op::AccumulateGrad) {
    out.push_back(
        on_fact("accumulate ignored", [](OracleContext::Facts& f) { f.accumulate = false; }));
  }
  if (op == Op::AccumulateGrad) {
    out.push_back(
        on_fact("first ignored", [](OracleContext::Facts& f) { f.first_contribution = false; }));
  }
  if (optimizer_of(op) != nullptr) {
    out.push_back(on_fact("error ignored", [](OracleContext::Facts& f) { f.error = false; }));
  }
}

std::vector<Fault> faults_of(Op op) {
  std::vector<Fault> out;
  add_input_faults(op, out);
  add_output_faults(op, out);
  add_step_faults(op, out);
  const Attributes defaults = attributes_from(op, {}).value();
  if (!attributes_text(op, defaults).empty()) {
    Fault f;
    f.name = "attributes ignored";
    f.before = [op, defaults](OracleCall& c) {
      if (c.op == op) {
        c.attributes = defaults;
      }
    };
    // Without attributes the shapes differ. Elements that were not computed are zero.
    f.after = [](OracleCall& c) {
      for (Array& a : c.result.outputs) {
        a.values.resize(1 << 20);
      }
    };
    out.push_back(std::move(f));
  }
  Fault overrun;
  overrun.name = "one element too far";
  overrun.overruns = true;
  out.push_back(overrun);
  std::erase_if(out, [&](const Fault& f) { return is_harmless(op, f.name); });
  return out;
}

std::vector<Op> runnable() {
  std::vector<Op> out;
  for (int i = 0; i < kOps; ++i) {
    const OpDef& def = op_def(op_at(i));
    if (def.oracle != nullptr && !def.is_view) {
      out.push_back(op_at(i));
    }
  }
  return out;
}

Report run_with(Op op, Fault fault) {
  Options options;
  options.stop_at_failure = true;
  options.filter = name_of(op);
  options.quick = true;
  options.oracles = true;
  return run("ops", open_oracle_device(std::move(fault)), options).value();
}

class Faults : public testing::TestWithParam<Op> {};

TEST_P(Faults, OraclesThemselvesPass) {
  const Report r = run_with(GetParam(), {});
  EXPECT_TRUE(r.ok() && r.cases > 0)
      << (r.failures.empty() ? "" : r.failures[0].where + ": " + r.failures[0].what);
}

TEST_P(Faults, EachIsCaught) {
  for (Fault& f : faults_of(GetParam())) {
    const std::string name = f.name;
    EXPECT_FALSE(run_with(GetParam(), std::move(f)).failures.empty()) << "not caught: " << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Faults, testing::ValuesIn(runnable()),
                         [](const auto& p) { return std::string(name_of(p.param)); });

}  // namespace
}  // namespace bowline::conformance
