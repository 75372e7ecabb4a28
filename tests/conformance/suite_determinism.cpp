// Suite determinism: the same inputs give the same bits, in two runs on one device, on a new
// device, and with one and two threads.
#include <cstring>

#include "conformance/suite.h"

namespace bowline::conformance {
namespace {

constexpr size_t kCases = 16;  // per operator

bool same_bits(const Observed& a, const Observed& b) {
  for (size_t i = 0; i < a.outputs.size(); ++i) {
    if (a.outputs[i].size() != b.outputs[i].size() ||
        (!a.outputs[i].empty() && std::memcmp(a.outputs[i].data(), b.outputs[i].data(),
                                              a.outputs[i].size() * sizeof(double)) != 0)) {
      return false;
    }
  }
  return a.words == b.words;
}

std::string check(Run& run, std::span<Bench> benches, const Case& c) {
  const Result<std::vector<Array>> inputs = draw_inputs(c, run.options.seed);
  if (!inputs.ok()) {
    return inputs.status().message();
  }
  const Result<Expected> e =
      run_oracle(op_def(c.op).oracle, c.op, c.attributes, inputs.value(), c.step);
  if (!e.ok()) {
    return e.status().message();
  }
  if (e.value().outcome.undefined_outputs != 0) {
    return "";
  }
  std::optional<Observed> first;
  for (Bench& bench : benches) {
    for (int again = 0; again < 2; ++again) {
      Result<Observed> got = bench.run(c, inputs.value(), e.value(), {});
      if (!got.ok()) {
        return got.status().message();
      }
      if (!first) {
        first = std::move(got).value();
      } else if (!same_bits(*first, got.value())) {
        return again == 0
                   ? "other bits on the device opened anew, or with another number of threads"
                   : "other bits in the second run";
      }
    }
  }
  return "";
}

}  // namespace

Status run_determinism(Run& run) {
  std::vector<Bench> benches = {Bench(run.device)};
  // Only the CPU has threads. On another device the third run would repeat the second.
  const bool has_threads = run.device->info().name == "cpu";
  for (const int threads : {1, 2}) {
    DeviceOptions options;
    options.threads = threads;
    options.matmul_precision = run.device->capabilities().matmul_precision;
    if (threads > 1 && !has_threads) {
      break;
    }
    // A device that the caller made, such as a mock, cannot be opened by name.
    if (auto other = device::open_device(run.device->info().name, options); other.ok()) {
      benches.emplace_back(std::move(other).value());
    }
  }
  for (int i = 0; i < kOps; ++i) {
    const Op op = op_at(i);
    const std::string_view name = bowline::name_of(op);
    const OpDef& def = op_def(op);
    if (def.oracle == nullptr || def.is_view || !selects(run.options, name)) {
      continue;
    }
    Options few = run.options;
    few.quick = true;
    BOWLINE_TRY_ASSIGN(std::vector<Case> cases, cases_of(op, few, kCases));
    run.drop_unfused(cases);
    for (const Case& c : cases) {
      if (!c.refused) {
        run.one(name, c.text, [&] { return check(run, benches, c); });
      }
    }
  }
  return {};
}

}  // namespace bowline::conformance
