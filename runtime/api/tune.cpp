#include "bowline/tune.h"

#include <map>

#include "api/internals.h"
#include "base/atomic_file.h"
#include "base/boundary.h"
#include "device/device.h"

namespace bowline {
namespace {

using device::Choice;
using device::Choices;
using device::kNoCandidate;

constexpr uint64_t kRoomForFile = 1 << 20;

// Restores the choices of a device when it is destroyed.
class Forcing {
 public:
  explicit Forcing(device::OpenDevice& device) : device_(device), before_(device.choices()) {}
  ~Forcing() {
    device_.force_candidate({});
    device_.set_choices(std::move(before_));
  }
  Forcing(const Forcing&) = delete;
  Forcing& operator=(const Forcing&) = delete;
  void force(uint32_t candidate) { device_.force_candidate(candidate); }
  void use(const Choices& choices) {
    device_.force_candidate({});
    device_.set_choices(choices);
  }

 private:
  device::OpenDevice& device_;
  Choices before_;
};

// All nodes with one key.
struct Measured {
  std::string op;
  uint64_t count = 0;
  uint32_t candidates = 0;
  double sum_ns = 0;
  double each_ns() const { return sum_ns / static_cast<double>(count); }
};

struct MeasuredWork {
  double other_ns = 0;                    // nodes without candidates
  std::map<std::string, Measured> nodes;  // the others, by key
};

// The fastest of several runs, for each node.
Result<MeasuredWork> measure(const std::function<Result<ProfiledRun>()>& make, int rounds) {
  BOWLINE_TRY_ASSIGN(const ProfiledRun run, make());
  std::vector<NodeTime> fastest;
  for (int round = -1; round < rounds; ++round) {
    BOWLINE_TRY_ASSIGN(std::vector<NodeTime> times, run());
    if (round < 0) {
      continue;  // it makes copies of weights and warms up
    }
    if (times.size() != fastest.size()) {
      fastest = std::move(times);
      continue;
    }
    for (size_t i = 0; i < times.size(); ++i) {
      fastest[i].ns = std::min(fastest[i].ns, times[i].ns);
    }
  }
  MeasuredWork work;
  for (const NodeTime& node : fastest) {
    if (node.candidates == 0) {
      work.other_ns += node.ns;
      continue;
    }
    Measured& m = work.nodes[node.tuning_key];
    m.op = node.op;
    m.count += node.count;
    m.candidates = node.candidates;
    m.sum_ns += node.ns;
  }
  return work;
}

// The device behind a public object, if it can be tuned.
Result<std::shared_ptr<device::OpenDevice>> tunable(const Device& device) {
  const auto& open = Internals::open(device);
  BOWLINE_REQUIRE(open != nullptr, "The device is empty: it was moved from.");
  BOWLINE_REQUIRE_CODE(!open->capabilities().tuning.model.empty(), Code::unsupported,
                       "Device {} has one way to run each operator, so there is nothing to tune.",
                       open->info().name);
  BOWLINE_REQUIRE(!open->tuning_path().empty(),
                  "Device {} was opened without a cache folder, where the tuning file would be.",
                  open->info().name);
  return open;
}

TunedNodes tuned_nodes(const std::string& key, const std::string& op, uint64_t count,
                       const Choice& c) {
  const int candidate = c.candidate == kNoCandidate ? -1 : static_cast<int>(c.candidate);
  return {key, op, count, c.candidates, candidate, c.default_ns, c.ns};
}

class Tuning {
 public:
  Tuning(device::OpenDevice& device, const std::function<Result<ProfiledRun>()>& make,
         const TuneOptions& options)
      : device_(device), make_(make), options_(options) {}

  Result<TuneReport> run() {
    BOWLINE_TRY(check_file());
    BOWLINE_TRY(measure_candidates());
    report_.path = device_.tuning_path();
    report_.default_ns = report_.ns = base_.other_ns;
    for (const auto& [key, m] : base_.nodes) {
      const Choice& fastest = fastest_.at(key);
      report_.nodes.push_back(tuned_nodes(key, m.op, m.count, fastest));
      report_.default_ns += static_cast<double>(m.count) * fastest.default_ns;
      report_.ns += static_cast<double>(m.count) * fastest.ns;
    }
    BOWLINE_TRY(store());
    return std::move(report_);
  }

 private:
  Status check_file() const {
    make_folders(folder_of(device_.tuning_path()), real_file_system());
    return probe_file(device_.tuning_path(), kRoomForFile);
  }

  // Returns false if the caller stops the measurement.
  bool proceed(uint32_t done, uint32_t total) {
    report_.stopped = options_.progress && !options_.progress({done, total});
    return !report_.stopped;
  }

  Status measure_candidates() {
    Forcing forcing(device_);
    forcing.force(kNoCandidate);
    BOWLINE_REQUIRE_CODE(proceed(0, 0), Code::cancelled, "Tuning was stopped.");
    BOWLINE_TRY_ASSIGN(base_, measure(make_, options_.rounds));
    uint32_t most = 0;
    for (const auto& [key, m] : base_.nodes) {
      fastest_[key] = {kNoCandidate, m.candidates, m.each_ns(), m.each_ns()};
      most = std::max(most, m.candidates);
    }
    const uint32_t total = most + 2;
    for (uint32_t c = 0; c < most && proceed(c + 1, total); ++c) {
      forcing.force(c);
      BOWLINE_TRY(measure_again([c](Choice& fastest, const Measured& m) {
        if (c < m.candidates && m.each_ns() < fastest.ns) {
          fastest.candidate = c;
          fastest.ns = m.each_ns();
        }
      }));
    }
    drop_small_gains();
    return most == 0 || report_.stopped || !proceed(most + 1, total) ? Status() : confirm(forcing);
  }

  // Measures the fastest candidates and the choices of the device once more. The speed of a device
  // varies, so one measurement may favour the wrong candidate.
  Status confirm(Forcing& forcing) {
    forcing.use(fastest_);
    BOWLINE_TRY(measure_again([](Choice& fastest, const Measured& m) {
      fastest.ns = std::max(fastest.ns, m.each_ns());
    }));
    forcing.force(kNoCandidate);
    BOWLINE_TRY(measure_again([](Choice& fastest, const Measured& m) {
      fastest.default_ns = std::min(fastest.default_ns, m.each_ns());
    }));
    drop_small_gains();
    return {};
  }

  void drop_small_gains() {
    for (auto& [key, c] : fastest_) {
      if (c.ns >= (1 - options_.least_gain) * c.default_ns) {
        c.candidate = kNoCandidate;
        c.ns = c.default_ns;
      }
    }
  }

  // Measures the work, and calls `use` for each key. Without room for the work, `use` is not
  // called.
  template <class Use>
  Status measure_again(const Use& use) {
    const Result<MeasuredWork> work = measure(make_, options_.rounds);
    const Code code = work.status().code();
    if (code == Code::out_of_memory || code == Code::over_budget) {
      ++report_.not_measured;
      return {};
    }
    if (code == Code::cancelled) {
      report_.stopped = true;
      return {};
    }
    BOWLINE_TRY(Status(work.status()));
    base_.other_ns = std::min(base_.other_ns, work.value().other_ns);
    for (const auto& [key, m] : work.value().nodes) {
      if (const auto found = fastest_.find(key); found != fastest_.end()) {
        use(found->second, m);
      }
    }
    return {};
  }

  // Adds the results to the file, which another process may have changed meanwhile.
  Status store() {
    const device::TuningKey& key = device_.capabilities().tuning;
    Result<Choices> stored = device::read_tuning(device_.tuning_path(), key);
    Choices all = stored.ok() ? std::move(stored).value() : Choices();
    for (const auto& [node, choice] : fastest_) {
      all[node] = choice;
    }
    BOWLINE_TRY(device::write_tuning(device_.tuning_path(), key, all));
    device_.set_choices(std::move(all));
    return {};
  }

  device::OpenDevice& device_;
  const std::function<Result<ProfiledRun>()>& make_;
  const TuneOptions& options_;
  MeasuredWork base_;
  Choices fastest_;
  TuneReport report_;
};

}  // namespace

Result<TuneReport> tune(const Device& device, const std::function<Result<ProfiledRun>()>& make,
                        const TuneOptions& options) {
  return guarded([&]() -> Result<TuneReport> {
    BOWLINE_TRY_ASSIGN(const auto open, tunable(device));
    BOWLINE_REQUIRE(options.rounds > 0, "tune() is to measure {} rounds.", options.rounds);
    return Tuning(*open, make, options).run();
  });
}

Result<TuneReport> stored_tuning(const Device& device) {
  return guarded([&]() -> Result<TuneReport> {
    BOWLINE_TRY_ASSIGN(const auto open, tunable(device));
    BOWLINE_TRY_ASSIGN(const Choices choices,
                       device::read_tuning(open->tuning_path(), open->capabilities().tuning));
    TuneReport report;
    report.path = open->tuning_path();
    for (const auto& [key, choice] : choices) {
      report.nodes.push_back(tuned_nodes(key, key.substr(0, key.find(' ')), 0, choice));
    }
    return report;
  });
}

Result<std::string> reset_tuning(const Device& device) {
  return guarded([&]() -> Result<std::string> {
    BOWLINE_TRY_ASSIGN(const auto open, tunable(device));
    const bool removed = real_file_system().unlink(open->tuning_path().c_str()) == 0;
    BOWLINE_REQUIRE_CODE(removed || errno == ENOENT, Code::io_error,
                         "Tuning file \"{}\" cannot be removed: {}.", open->tuning_path(),
                         error_text(errno));
    open->set_choices({});
    return removed ? open->tuning_path() : std::string();
  });
}

}  // namespace bowline
