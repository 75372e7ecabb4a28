#include "conformance/suite.h"

#include <chrono>
#include <cmath>
#include <functional>
#include <numeric>

#include "api/internals.h"
#include "generated/gaps.h"

namespace bowline::conformance {
namespace {

struct Suite {
  std::string_view name;
  Status (*run)(Run& run);
  bool oracles_alone;
};

constexpr Suite kSuites[] = {
    {"ops", run_ops, false},
    {"gradients", run_gradients, true},
    {"optimizers", run_optimizers, false},
    {"trajectories", run_trajectories, false},
    {"ties", run_ties, false},
    {"determinism", run_determinism, false},
    {"random", run_random, false},
};

const Suite* find_suite(std::string_view name) {
  const auto it = std::ranges::find(kSuites, name, &Suite::name);
  return it == std::end(kSuites) ? nullptr : it;
}

const Gap* find_gap(std::span<const Gap> gaps, std::string_view suite, std::string_view op,
                    std::string_view text) {
  for (const Gap& g : gaps) {
    if (matches(g.suite, suite) && matches(g.op, op) && text.find(g.detail) != text.npos) {
      return &g;
    }
  }
  return nullptr;
}

}  // namespace

std::vector<std::string_view> suites() {
  std::vector<std::string_view> out;
  for (const Suite& s : kSuites) {
    out.push_back(s.name);
  }
  return out;
}

bool needs_no_device(std::string_view suite) {
  const Suite* s = find_suite(suite);
  return s != nullptr && s->oracles_alone;
}

bool selects(const Options& options, std::string_view name) {
  const Result<std::vector<std::string>> all = alternatives(options.filter);
  return all.ok() && matches_any(all.value(), name);
}

const Gaps& gaps_of(std::string_view device) {
  static constexpr Gaps kNone;
  const std::string_view backend = device.substr(0, device.find(':'));
  for (const BackendGaps& b : kBackendGaps) {
    if (b.backend == backend) {
      return b.gaps();
    }
  }
  return kNone;
}

void Run::note_error(double units, const std::string& where) {
  if (std::isfinite(units) && units > report.worst) {
    report.worst = units;
    report.worst_where = where;
  }
}

void Run::one(std::string_view op, const std::string& where,
              const std::function<std::string()>& check) {
  if (options.stop_at_failure && !report.ok()) {
    return;
  }
  const Gap* const never = find_gap(gaps.never, report.suite, op, where);
  if (never != nullptr && never->refusal == nullptr) {
    ++report.never;
    return;
  }
  const Gap* gap = find_gap(gaps.not_yet, report.suite, op, where);
  // The error of a case that is known to fail must not count.
  const double worst = report.worst;
  std::string worst_where = report.worst_where;
  ++report.cases;
  std::string problem = check();
  if (never != nullptr && problem.find(never->refusal) != problem.npos) {
    --report.cases;
    ++report.never;
    ++report.refused[never->reason];
    return;
  }
  if (gap != nullptr) {
    report.worst = worst;
    report.worst_where = std::move(worst_where);
    --report.cases;
    ++report.not_yet;
    if (problem.empty()) {
      fail(where, format("passes, though it is a gap ({})", gap->reason));
    }
    return;
  }
  if (problem.empty()) {
    ++report.passed;
  } else {
    fail(where, std::move(problem));
  }
}

void Run::drop_unfused(std::vector<Case>& cases) {
  Bench bench(device);
  report.never += std::erase_if(cases, [&](const Case& c) {
    if (c.refused || !op_def(c.op).is_fused) {
      return false;
    }
    const Result<std::vector<Array>> inputs = draw_inputs(c, options.seed);
    if (!inputs.ok()) {
      return false;
    }
    const Result<Expected> expected =
        run_oracle(op_def(c.op).oracle, c.op, c.attributes, inputs.value(), c.step);
    return expected.ok() && !bench.query(c, inputs.value(), expected.value()).reason.empty();
  });
}

namespace {

constexpr int64_t kQuickElements = 1 << 14;

int64_t elements_of(const Case& c) {
  return std::transform_reduce(c.inputs.begin(), c.inputs.end(), int64_t{0}, std::plus(),
                               [](const Input& i) { return i.shape.elements(); });
}

}  // namespace

Result<std::vector<Case>> cases_of(Op op, const Options& options, size_t most) {
  const CaseText& t = kCaseTexts[index_of(op)];
  BOWLINE_TRY_ASSIGN(std::vector<Case> all, parse_cases(op, t.file, t.text));
  if (!options.quick || all.size() <= most) {
    return all;
  }
  std::vector<Case> out;
  // Always takes cases with refusals or expected values, the first case of every dtype, and the
  // first case of every line that is cheap for the oracle.
  std::vector<bool> fixed(all.size());
  uint32_t dtypes = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const uint32_t dtype = 1u << static_cast<unsigned>(all[i].dtype);
    const bool begins_line = i == 0 || all[i].where != all[i - 1].where;
    fixed[i] = all[i].refused || !all[i].expected.empty() || (dtypes & dtype) == 0 ||
               (begins_line && elements_of(all[i]) <= kQuickElements);
    dtypes |= dtype;
  }
  const auto taken_always = static_cast<size_t>(std::ranges::count(fixed, true));
  const size_t others = std::max<size_t>(1, all.size() - taken_always);
  const size_t wanted = most > taken_always ? most - taken_always : 1;
  size_t seen = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const bool always = fixed[i];
    // Spreads the rest evenly: takes the k-th case if k * wanted / others increases.
    const bool taken = always || (seen + 1) * wanted / others > seen * wanted / others;
    seen += always ? 0 : 1;
    if (taken) {
      out.push_back(std::move(all[i]));
    }
  }
  return out;
}

Result<Report> run(std::string_view suite, const std::shared_ptr<device::OpenDevice>& device,
                   const Options& options) {
  const Suite* s = find_suite(suite);
  BOWLINE_REQUIRE(s != nullptr, "There is no suite \"{}\".", suite);
  Report report;
  report.suite = suite;
  report.device = s->oracles_alone ? "oracles" : device->info().name;
  Run context{device, gaps_of(report.device), options, report};
  const auto start = std::chrono::steady_clock::now();
  BOWLINE_TRY(s->run(context));
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

Result<Report> run(std::string_view suite, const Device& device, const Options& options) {
  return run(suite, Internals::open(device), options);
}

}  // namespace bowline::conformance
