// The conformance runner as bowline-conform sees it: every suite on a device, compared with the
// oracles. The inside of the library stays behind this header, which includes bowline.h alone.
#pragma once

#include "bowline.h"

namespace bowline::conformance {

struct Options {
  std::string filter = "*";  // of operator names, or of the names of tests
  uint64_t seed = 0;
  bool quick = false;     // every operator, fewer cases: at most 60 s per device
  uint64_t models = 200;  // of suite random
  bool oracles = false;   // the device runs the oracles, in more dtypes than any case asks for
};

struct Failure {
  std::string where;  // the case: file, line, variables
  std::string what;
};

struct Report {
  std::string suite;
  std::string device;
  uint64_t cases = 0;  // run
  uint64_t passed = 0;
  uint64_t never = 0;    // not run: a gap for ever
  uint64_t not_yet = 0;  // run and failed, as stated
  double worst = 0;      // error in units of the tolerance
  std::string worst_where;
  std::vector<Failure> failures;
  double seconds = 0;

  bool ok() const { return failures.empty(); }
};

// "ops", "gradients", ...
std::vector<std::string_view> suites();
// True if the suite asks the oracles alone, so that one run serves all devices.
bool needs_no_device(std::string_view suite);

// Errors  bad_argument: no such suite; a case file that cannot be read. Failures of cases are in
// the report.
Result<Report> run(std::string_view suite, const Device& device, const Options& options);

}  // namespace bowline::conformance
