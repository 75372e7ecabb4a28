// bowline-conform: the conformance suites on one device or several. 'bowline conform' starts it.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/pattern.h"
#include "base/status.h"
#include "common/flag_uses.h"
#include "common/help.h"
#include "common/numbers.h"
#include "common/program.h"
#include "conformance/conformance.h"
#include "verb.h"

namespace bowline::command {
namespace {

constexpr uint64_t kQuickModels = 60;
constexpr std::string_view kOps = "ops";
constexpr std::string_view kDeterminism = "determinism";
constexpr std::string_view kRandom = "random";

struct ConformOptions {
  std::vector<std::string> suites;
  std::vector<std::string> devices;
  std::string variant;
  std::string matmul_precision = DeviceFlags().matmul_precision;
  conformance::Options run;
  std::optional<uint64_t> models;
  size_t most_failures = 20;
  std::string format = "text";
  FlagUses uses;
};

// Errors  bad_argument: a flag has no effect on the suites.
Status check_uses(const ConformOptions& o) {
  const bool random = std::ranges::find(o.suites, kRandom) != o.suites.end();
  BOWLINE_TRY(alternatives(o.run.filter).status());
  const bool ops = std::ranges::find(o.suites, kOps) != o.suites.end();
  BOWLINE_TRY(o.uses.check("--failures", o.format != "json", "-o json holds all failures"));
  BOWLINE_TRY(
      o.uses.check("--candidates", ops, "they are run by the suite ops, which does not run"));
  BOWLINE_TRY(
      o.uses.check("--every", ops, "it chooses cases of the suite ops, which does not run"));
  const auto has_bounds = [](std::string_view suite) {
    return suite == kOps || suite == kDeterminism;
  };
  BOWLINE_TRY(o.uses.check("--matmul-precision", std::ranges::all_of(o.suites, has_bounds),
                           "only the suites ops and determinism know the errors of TF32"));
  BOWLINE_TRY(o.uses.check("--models", random, "they are of the suite random, which does not run"));
  return o.uses.check("--device", !std::ranges::all_of(o.suites, conformance::needs_no_device),
                      "the suites compare references alone, and run on no device");
}

std::vector<std::string> usable_devices() {
  std::vector<std::string> out;
  for (const DeviceInfo& d : Device::list()) {
    if (d.unusable.empty() && !d.for_tests) {
      out.push_back(d.name);
    }
  }
  return out;
}

void print_report(const conformance::Report& r, size_t most_failures) {
  print(
      "{:<12} {:<10} {:>6} cases, {:>6} passed, {} failed, gaps: {} permanent, {} open, {:.1f} "
      "s\n",
      r.suite, r.device, r.cases, r.passed, r.failures.size(), r.never, r.not_yet, r.seconds);
  if (r.worst > 0) {
    print("{:<12} {:<10} worst error {:.3f} tolerances: {}\n", "", "", r.worst, r.worst_where);
  }
  for (const auto& [reason, cases] : r.refused) {
    print("  {} cases are refused: {}\n", cases, reason);
  }
  for (size_t i = 0; i < r.failures.size() && i < most_failures; ++i) {
    print("  FAIL {}\n       {}\n", r.failures[i].where, r.failures[i].what);
  }
  if (r.failures.size() > most_failures) {
    print("  ... and {} more\n", r.failures.size() - most_failures);
  }
  flush(stdout);
}

nlohmann::json json_of(const conformance::Report& r) {
  nlohmann::json failures = nlohmann::json::array();
  for (const conformance::Failure& f : r.failures) {
    failures.push_back({{"where", f.where}, {"what", f.what}});
  }
  return {{"suite", r.suite},     {"device", r.device},
          {"cases", r.cases},     {"passed", r.passed},
          {"never", r.never},     {"not_yet", r.not_yet},
          {"worst", r.worst},     {"worst_where", r.worst_where},
          {"seconds", r.seconds}, {"failures", failures}};
}

// Runs a suite on a device. Returns false if it could not run or a case failed.
bool run_one(const ConformOptions& o, std::string_view suite, const Device& device,
             nlohmann::json& rows, uint64_t& cases) {
  const Result<conformance::Report> report = conformance::run(suite, device, o.run);
  if (!report.ok()) {
    fail(report.status());
    return false;
  }
  if (o.format == "json") {
    rows.push_back(json_of(report.value()));
  } else {
    print_report(report.value(), o.most_failures);
  }
  cases += report.value().cases + report.value().never + report.value().not_yet;
  return report.value().ok();
}

Result<int> run(const ConformOptions& o) {
  BOWLINE_TRY_FLAGS(check_uses(o));
  if (!o.variant.empty()) {
    for (const char* const variable : {"BOWLINE_VULKAN_VARIANT", "BOWLINE_CUDA_VARIANT"}) {
      setenv(variable, o.variant.c_str(), 1);  // before a device is opened
    }
  }
  prepare_cache_folder();
  nlohmann::json rows = nlohmann::json::array();
  bool ok = true;
  uint64_t cases = 0;
  std::vector<Device> devices;  // opened once, so that all suites share compiled kernels
  for (const std::string& name : o.devices.empty() ? usable_devices() : o.devices) {
    // A wrong name ends the command. It is not a failure of a suite.
    BOWLINE_TRY_ASSIGN(Device device,
                       open_device({.name = name, .matmul_precision = o.matmul_precision}));
    devices.push_back(std::move(device));
  }
  for (const std::string& suite : o.suites) {
    for (const Device& device : devices) {
      ok = run_one(o, suite, device, rows, cases) && ok;
      if (conformance::needs_no_device(suite)) {
        break;
      }
    }
  }
  if (cases == 0) {
    return fail(kFailed,
                fmt::format("No case of the suites matches \"{}\" on any device.", o.run.filter));
  }
  if (o.format == "json") {
    print_json(rows);
  } else {
    print("seed {}: {}\n", o.run.seed, ok ? "everything conforms" : "not everything conforms");
  }
  return ok ? kOk : kFailed;
}

void add_flags(CLI::App& app, Context& context) {
  auto o = std::make_shared<ConformOptions>();
  std::vector<std::string> known;
  for (const std::string_view s : conformance::suites()) {
    known.emplace_back(s);
  }
  o->suites = known;
  app.add_option("--suite", o->suites, "Suites to run, separated by commas [all]")
      ->type_name("NAME")
      ->check(CLI::IsMember(known).description(""))
      ->delimiter(',');
  app.add_option("--device", o->devices, "Devices to check; repeatable [all usable ones]")
      ->type_name("NAME");
  app.add_option("--variant", o->variant, "Kernels: gpu (Vulkan), own (CUDA), ...")
      ->type_name("NAMES");
  add_matmul_precision(&app, o->matmul_precision);
  app.add_flag("--candidates", o->run.candidates,
               "Also run all kernels that 'bowline tune' measures");
  app.add_option("--filter", o->run.filter, "Operators to compare")
      ->type_name("PATTERN")
      ->capture_default_str();
  app.add_option("--seed", o->run.seed, "Seed of the random values")->capture_default_str();
  app.add_option(
      "--models", o->models,
      fmt::format("Model count of suite 'random' [{}; --quick: {}]", o->run.models, kQuickModels));
  app.add_flag("--quick", o->run.quick, "Fewer cases: at most 60 s per device");
  app.add_option("--every", o->run.every, "Run only every N-th case of an operator")
      ->check(whole_number(1, 1 << 20).description(""))
      ->capture_default_str();
  app.add_option("--failures", o->most_failures, "Maximum number of failures to print")
      ->capture_default_str();
  add_format(&app, o->format);
  o->uses = FlagUses(&app);
  on_run(&app, context, [o] {
    o->run.models = o->models.value_or(o->run.quick ? kQuickModels : o->run.models);
    return run(*o);
  });
}

int run(std::vector<std::string> words) {
  CLI::App app{"Compares devices with the reference implementations of the operators",
               "bowline conform"};
  app.formatter(std::make_shared<HelpFormatter>());
  app.footer(
      fmt::format("suites: {}\nexample: bowline conform --suite ops --quick --device cpu "
                  "--device vulkan:0",
                  fmt::join(conformance::suites(), ", ")));
  Context context;
  add_flags(app, context);
  return run_arguments(app, context, std::move(words));
}

}  // namespace
}  // namespace bowline::command

int main(int argc, char** argv) {
  return bowline::command::run_program(argc, argv, bowline::command::run);
}
