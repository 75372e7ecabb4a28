#include "exec/profile.h"

namespace bowline::detail::exec {
namespace {

// Returns, for each record, how often one submission runs it: the counts of its Repeats.
std::vector<uint64_t> executions(const device::Program& program) {
  std::vector<uint64_t> out(program.records.size());
  uint64_t count = 1;
  for (size_t i = 0; i < out.size(); ++i) {
    const device::Record& r = program.records[i];
    if (r.kind == device::Record::Kind::repeat_begin) {
      count = r.count;
    } else if (r.kind == device::Record::Kind::repeat_end) {
      count = 1;
    } else {
      out[i] = count;
    }
  }
  return out;
}

}  // namespace

Result<Clock> Clock::start(std::shared_ptr<device::OpenDevice> device) {
  Clock clock;
  clock.times_ = std::make_unique<std::vector<device::RecordingTimes>>();
  BOWLINE_REQUIRE(device->start_clock(clock.times_.get()), "Another profile runs on device {}.",
                  device->info().name);
  clock.device_ = std::move(device);
  return clock;
}

Clock::~Clock() {
  if (device_ != nullptr) {
    device_->stop_clock();
  }
}

void Clock::add(const Segment& segment, std::vector<NodeTime>& out) const {
  for (const Segment::Copy& copy : segment.copies()) {
    if (copy.residency->refresh() != nullptr) {
      add(copy.refresh, copy.residency->refresh(), out);
    }
  }
  add(segment.plan(), segment.recording(), out);
}

void Clock::add(const plan::Plan& plan, const device::Recording* recording,
                std::vector<NodeTime>& out) const {
  const std::vector<device::Record>& records = plan.program.records;
  const std::vector<uint64_t> counts = executions(plan.program);
  std::vector<double> ns(records.size());
  bool submitted = false;
  for (const device::RecordingTimes& t : *times_) {
    if (t.recording == recording) {
      submitted = true;
      for (const device::RecordTime& time : t.times) {
        ns[time.record] += time.ns;
      }
    }
  }
  for (size_t i = 0; i < records.size() && submitted; ++i) {
    if (counts[i] != 0) {
      out.push_back(
          {plan.name, plan.nodes[records[i].node], format("{}", records[i].op), counts[i], ns[i]});
      if (const auto found = plan.tunable.find(records[i].node); found != plan.tunable.end()) {
        out.back().tuning_key = found->second.key;
        out.back().candidates = found->second.candidates;
      }
    }
  }
}

}  // namespace bowline::detail::exec
