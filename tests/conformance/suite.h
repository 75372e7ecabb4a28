// Functions that the suites share.
#pragma once

#include <functional>

#include "base/pattern.h"
#include "bowline.h"
#include "conformance/bench.h"
#include "conformance/conformance.h"
#include "conformance/gaps.h"

namespace bowline::conformance {

// Like run() in conformance.h, for a device that is opened internally.
Result<Report> run(std::string_view suite, const std::shared_ptr<device::OpenDevice>& device,
                   const Options& options);

// True if one alternative of the filter (base/pattern.h) matches the name.
bool selects(const Options& options, std::string_view name);

// Returns the gaps of the backend of a device ("vulkan:0").
const Gaps& gaps_of(std::string_view device);

// The text of tests/ops/<stem>.cases by operator. The build embeds it.
struct CaseText {
  const char* file;
  const char* text;
};
extern const CaseText kCaseTexts[kOps];

// Returns the cases of one operator in the order of the file. With `quick`, returns about `most`
// cases, spread over the file. They always include the first case of every dtype and of every small
// line, lines with expected values, and rules of inference.
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
  // Runs one case unless it is a gap. `check` returns the problem or an empty text.
  void one(std::string_view op, const std::string& where,
           const std::function<std::string()>& check);
  // Removes the cases of a fused operator (OpDef::is_fused) for which plans of the device keep the
  // unfused graph. They count as permanent gaps.
  void drop_unfused(std::vector<Case>& cases);
};

// The difference from the oracle in units of the tolerance, and the problem if there is one.
struct Verdict {
  double units = 0;
  std::string problem;
};
// Compares outputs. If the device flushes denormal inputs to zero, `flushed` is the oracle result
// for flushed inputs, otherwise null. Each element may equal either result.
Verdict compare(const Case& c, const Expected& expected, const Expected* flushed,
                const Observed& observed);
Verdict compare_output(const Expected& expected, const Expected* flushed, size_t output,
                       std::span<const double> got);

// Returns a bound on |got - expected| in units of the tolerance. The bound is infinite if one value
// is NaN or infinite and the other is not the same. For a float that is smaller than f32, the bound
// is infinite unless `got` is the rounding of a number within the f32 tolerance. Integers must be
// equal.
double error_units(const Tolerance& tolerance, double magnitude, double expected, double got,
                   DType dtype = DType::f32);

// Checks a rule: inference must refuse the case with the sentence of the line. Returns the problem
// or an empty text.
std::string check_refused(const Case& c);

Status run_ops(Run& run);
Status run_gradients(Run& run);
Status run_optimizers(Run& run);
Status run_trajectories(Run& run);
Status run_ties(Run& run);
Status run_determinism(Run& run);
Status run_random(Run& run);

}  // namespace bowline::conformance
