// The conformance runner for bowline-conform: runs a suite on a device and compares it with the
// oracles. This header includes only bowline.h and hides the internals of the library.
#pragma once

#include <map>

#include "bowline.h"

namespace bowline::conformance {

struct Options {
  std::string filter = "*";  // of operator names or test names
  uint64_t seed = 0;
  bool quick = false;            // every operator with fewer cases: at most 60 s per device
  uint64_t every = 1;            // suite ops: the first case of an operator, and each `every`-th
  uint64_t models = 200;         // for suite random
  bool stop_at_failure = false;  // the first failure ends the suite
  bool candidates = false;       // suite ops also compares every candidate (NodeAnswer::candidates)
  bool oracles = false;  // the device runs the oracles and supports more dtypes than the cases need
};

struct Failure {
  std::string where;  // the case: file, line, variables
  std::string what;
};

struct Report {
  std::string suite;
  std::string device;
  uint64_t cases = 0;  // number of cases
  uint64_t passed = 0;
  uint64_t never = 0;                       // not run because of a permanent gap
  std::map<std::string, uint64_t> refused;  // of `never`: cases that the device refuses, by reason
  uint64_t not_yet = 0;                     // run and failed as declared
  double worst = 0;                         // error in units of the tolerance
  std::string worst_where;
  std::vector<Failure> failures;
  double seconds = 0;

  bool ok() const { return failures.empty(); }
};

// Returns "ops", "gradients", ...
std::vector<std::string_view> suites();
// Returns true if the suite uses only the oracles. One run then covers all devices.
bool needs_no_device(std::string_view suite);

// Errors  bad_argument: the suite does not exist, or a case file cannot be read. The report
//         contains the failures of cases.
Result<Report> run(std::string_view suite, const Device& device, const Options& options);

}  // namespace bowline::conformance
