// What the suites share.
#pragma once

#include <functional>

#include "conformance/bench.h"
#include "conformance/conformance.h"
#include "conformance/gaps.h"
#include "core/pattern.h"

namespace bowline::conformance {

// As run() on a device, of one that is opened inside.
Result<Report> run(std::string_view suite, const std::shared_ptr<device::OpenDevice>& device,
                   const Options& options);

// The gaps of the backend of a device ("vulkan:0").
const Gaps& gaps_of(std::string_view device);

// The text of tests/ops/<stem>.cases by operator; embedded by the build.
struct CaseText {
  const char* file;
  const char* text;
};
extern const CaseText kCaseTexts[kOps];

// Cases of one operator in the order of the file. With `quick`, about `most` of them, spread over
// the file. Always among them: the first of every dtype and small line, lines with expected
// numbers, and rules of inference.
Result<std::vector<Case>> cases_of(Op op, const Options& options, size_t most);

// One run of a suite.
struct Run {
  std::shared_ptr<device::OpenDevice> device;
  const Gaps& gaps;
  const Options& options;
  Report& report;

  void fail(std::string where, std::string what) {
    report.failures.push_back({std::move(where), std::move(what)});
  }
  void note_error(double units, const std::string& where);
  // Runs one case unless it is a gap. `check` returns what is wrong, or nothing.
  void one(std::string_view op, const std::string& where,
           const std::function<std::string()>& check);
  // Whether the device keeps the graph of which a rewrite would make the operator of these cases
  // (OpDef::is_fused). Then they count as gaps for ever.
  bool keeps_unfused(std::span<const Case> cases);
};

// How far the outputs are from the oracle, in units of the tolerance, and what is wrong, if
// anything.
struct Verdict {
  double units = 0;
  std::string problem;
};
// `flushed` is what the oracle gives where the device may take denormal inputs for zero, or null:
// each element may be either.
Verdict compare(const Case& c, const Expected& expected, const Expected* flushed,
                const Observed& observed);
Verdict compare_output(const Expected& expected, const Expected* flushed, size_t output,
                       std::span<const double> got);

// A bound on |got - expected| in units of the tolerance; infinite if one is NaN or infinite and the
// other not the same. Of a float that is smaller than f32: infinite unless `got` is what rounding
// some number within the tolerance of f32 gives. Integers are equal.
double error_units(const Tolerance& tolerance, double magnitude, double expected, double got,
                   DType dtype = DType::f32);

// A rule: the inference refuses what the line says, with the sentence that it says. What is wrong,
// or nothing.
std::string check_refused(const Case& c);

Status run_ops(Run& run);
Status run_gradients(Run& run);
Status run_optimizers(Run& run);
Status run_trajectories(Run& run);
Status run_ties(Run& run);
Status run_determinism(Run& run);
Status run_random(Run& run);

}  // namespace bowline::conformance
