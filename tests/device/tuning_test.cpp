// The choice between the candidates of a node: measured, stored, and read again.
#include "device/tuning.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "api/internals.h"
#include "bowline/tune.h"
#include "faults/wrapped_device.h"
#include "ties/seed_models.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

using device::Choice;
using device::Choices;
using device::kNoCandidate;

// A CPU that pretends to run products in three ways. They differ in workspace and in the times that
// it reports: for Linear, candidate 1 is the fastest; for MatMul, the gain is below 3 percent. The
// first plan with MatMul's candidate 2 seems to be fast, as if the others were disturbed.
class WaysDevice : public WrappedDevice {
 public:
  static constexpr uint32_t kWays = 3;

  explicit WaysDevice(std::unique_ptr<device::Device> inner) : WrappedDevice(std::move(inner)) {
    capabilities_ = WrappedDevice::capabilities();
    capabilities_.tuning = {"a device", "driver 1"};
  }
  const device::Capabilities& capabilities() const override { return capabilities_; }
  device::NodeAnswer query(const device::NodeQuery& node) const override {
    device::NodeAnswer answer = WrappedDevice::query(node);
    if (node.op == Op::Linear || node.op == Op::MatMul) {
      answer.candidates = kWays;
      answer.workspace_bytes = node.candidate < kWays ? workspace_of[node.candidate] : 64;
    }
    return answer;
  }
  Result<std::unique_ptr<device::Recording>> record(
      const device::Program& program, std::span<const device::Buffer> buffers) override {
    auto recording = WrappedDevice::record(program, buffers);
    if (recording.ok()) {
      records_[recording.value().get()] = program.records;
      for (const device::Record& r : program.records) {
        plans_with_2_ += r.op == Op::MatMul && r.candidate == 2 ? 1 : 0;
      }
    }
    recorded = program.records;
    return recording;
  }
  Result<std::vector<device::RecordTime>> timestamps(device::Recording& recording) override {
    BOWLINE_TRY_ASSIGN(auto times, WrappedDevice::timestamps(recording));
    for (device::RecordTime& t : times) {
      const device::Record& r = records_.at(&recording)[t.record];
      const size_t way = r.candidate < kWays ? r.candidate + 1 : 0;
      const double disturbed = plans_with_2_ == 1 ? 50 : 97.5;
      const double linear[] = {100, 120, 60, 150}, mat_mul[] = {100, 98, 100, disturbed};
      t.ns = r.op == Op::Linear ? linear[way] : r.op == Op::MatMul ? mat_mul[way] : 10;
    }
    return times;
  }

  std::vector<uint64_t> workspace_of = {128, 192, 256};
  std::vector<device::Record> recorded;  // of the last program

 private:
  device::Capabilities capabilities_;
  int plans_with_2_ = 0;
  std::map<const device::Recording*, std::vector<device::Record>> records_;
};

const device::Record& record_of(const WaysDevice& ways, Op op) {
  return *std::ranges::find(ways.recorded, op, &device::Record::op);
}

// y = MatMul(Linear(x, w), v)
Model two_products() {
  Model m;
  const Dims w_shape = {16, 8}, v_shape = {16, 16};
  const Parameter w = must(m.parameter("w", w_shape, Init::normal(1)));
  const Parameter v = must(m.parameter("v", v_shape, Init::normal(1)));
  GraphBuilder g(m, "forward");
  const Value x = g.input("x", DType::f32, {4, 8});
  const Value h = g.op("Linear", {x, g.parameter(w)});
  g.output("y", g.op("MatMul", {h, g.parameter(v)}));
  EXPECT_OK(g.finish());
  EXPECT_OK(m.materialize(1));
  return m;
}

class Tuning : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = format("{}bowline_tuning_{}", testing::TempDir(), getpid());
    std::filesystem::remove_all(folder_);
    auto own = std::make_unique<WaysDevice>(open_cpu());
    ways_ = own.get();
    device_ = wrap("ways:0", std::move(own), 1 << 30);
    path_ = device::tuning_path(folder_, key_);
    Internals::open(device_)->set_tuning_path(path_);
    model_ = two_products();
    ASSERT_OK(model_.to(device_));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Result<ProfiledRun> make() {
    ++made_;
    BOWLINE_TRY_ASSIGN(Session made, Session::create(model_, device_, "forward", {}));
    const auto session = std::make_shared<Session>(std::move(made));
    return ProfiledRun([=, this] { return session->profile(inputs()); });
  }
  std::vector<Tensor> inputs() { return {{"x", DType::f32, {4, 8}, x_.data()}}; }
  Result<TuneReport> tune_it(const TuneOptions& options = {}) {
    return tune(
        device_, [this] { return make(); }, options);
  }
  Choices stored() { return must(device::read_tuning(path_, key_)); }

  const device::TuningKey key_ = {"a device", "driver 1"};
  std::string folder_, path_;
  WaysDevice* ways_ = nullptr;
  Device device_ = Internals::device(nullptr);
  Model model_;
  Floats x_ = Floats(32, 0.5f);
  int made_ = 0;
};

const Choice& choice_of(const Choices& choices, std::string_view op) {
  return std::ranges::find_if(choices, [&](const auto& c) { return c.first.starts_with(op); })
      ->second;
}

TEST_F(Tuning, TheFastestCandidateIsStoredAndChosen) {
  const TuneReport report = must(tune_it());
  EXPECT_EQ(report.path, path_);
  ASSERT_EQ(report.nodes.size(), 2u);
  EXPECT_EQ(report.default_ns, 200);
  EXPECT_EQ(report.ns, 160);
  const auto& linear = *std::ranges::find(report.nodes, "Linear", &TunedNodes::op);
  EXPECT_EQ(linear.candidate, 1);
  EXPECT_EQ(linear.candidates, 3u);
  EXPECT_EQ(linear.default_ns, 100);
  EXPECT_EQ(linear.ns, 60);
  EXPECT_EQ(linear.count, 1u);
  const Choices choices = stored();
  ASSERT_EQ(choices.size(), 2u);
  EXPECT_EQ(choice_of(choices, "Linear"), (Choice{1, 3, 60, 100}));
  EXPECT_EQ(choice_of(choices, "MatMul"), (Choice{kNoCandidate, 3, 100, 100}));
  ASSERT_OK(make());
  EXPECT_EQ(record_of(*ways_, Op::Linear).candidate, 1u);
  EXPECT_EQ(record_of(*ways_, Op::Linear).workspace.bytes(), 192u);
  EXPECT_EQ(record_of(*ways_, Op::MatMul).candidate, kNoCandidate);
  EXPECT_EQ(record_of(*ways_, Op::MatMul).workspace.bytes(), 64u);
}

TEST_F(Tuning, ResultsForOtherNodesStay) {
  const Choices earlier = {{"Linear of another shape", {2, 3, 5, 9}}};
  ASSERT_OK(device::write_tuning(path_, key_, earlier));
  ASSERT_OK(tune_it());
  EXPECT_EQ(stored().size(), 3u);
  EXPECT_EQ(stored().at("Linear of another shape"), (Choice{2, 3, 5, 9}));
  EXPECT_EQ(must(stored_tuning(device_)).nodes.size(), 3u);
  EXPECT_EQ(must(reset_tuning(device_)), path_);
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_EQ(must(reset_tuning(device_)), "");
  ASSERT_OK(make());
  EXPECT_EQ(record_of(*ways_, Op::Linear).candidate, kNoCandidate);
}

TEST_F(Tuning, ACandidateThatTheDeviceLacksIsNotChosen) {
  ASSERT_OK(tune_it());
  Choices choices = stored();
  for (auto& [key, choice] : choices) {
    choice.candidate = 3;
    choice.candidates = 4;  // of another build
  }
  Internals::open(device_)->set_choices(choices);
  ASSERT_OK(make());
  EXPECT_EQ(record_of(*ways_, Op::Linear).candidate, kNoCandidate);
}

TEST_F(Tuning, AStoppedMeasurementKeepsItsResults) {
  for (const uint32_t most : {1u, 2u}) {
    std::filesystem::remove_all(folder_);
    TuneOptions options;
    options.progress = [=](const TuneProgress& p) { return p.done <= most; };
    const TuneReport report = must(tune_it(options));
    EXPECT_TRUE(report.stopped);
    EXPECT_EQ(choice_of(stored(), "Linear").candidate, most == 1 ? kNoCandidate : 1u);
  }
  ASSERT_OK(device::write_tuning(path_, key_, {}));
  TuneOptions options;
  options.progress = [](const TuneProgress&) { return false; };
  EXPECT_EQ(tune_it(options).status().code(), Code::cancelled);
  EXPECT_EQ(stored().size(), 0u);
}

TEST_F(Tuning, ACandidateWithoutRoomIsNotMeasured) {
  ways_->workspace_of[1] = 2u << 30;  // above the memory budget
  const TuneReport report = must(tune_it());
  EXPECT_EQ(report.not_measured, 1u);
  EXPECT_EQ(choice_of(stored(), "Linear").candidate, kNoCandidate);
  EXPECT_FALSE(report.stopped);
}

TEST_F(Tuning, WhatCannotBeTunedIsRefused) {
  const Device cpu = wrap("cpu", open_cpu());
  EXPECT_EQ(tune(cpu, [this] { return make(); }).status().code(), Code::unsupported);
  EXPECT_EQ(stored_tuning(cpu).status().code(), Code::unsupported);
  Internals::open(device_)->set_tuning_path("");
  EXPECT_EQ(tune_it().status().code(), Code::bad_argument);
  EXPECT_EQ(reset_tuning(device_).status().code(), Code::bad_argument);
  Internals::open(device_)->set_tuning_path("/proc/no folder/tuning.txt");
  EXPECT_EQ(tune_it().status().code(), Code::io_error);
  EXPECT_EQ(made_, 0);  // nothing was measured in vain
}

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

void write_text(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::trunc) << text;
}

// Ends the text with the right checksum.
std::string with_checksum(std::string_view text) {
  char line[32];
  std::snprintf(line, sizeof(line), "checksum %016llx\n",
                static_cast<unsigned long long>(XXH3_64bits(text.data(), text.size())));
  return std::string(text) + line;
}

TEST_F(Tuning, AFileOfAnotherDeviceDriverOrVersionIsRefused) {
  const Choices choices = {{"Linear", {1, 3, 60, 100}}};
  ASSERT_OK(device::write_tuning(path_, key_, choices));
  EXPECT_EQ(stored(), choices);
  for (const device::TuningKey& other :
       {device::TuningKey{"another device", "driver 1"}, {"a device", "driver 2"}}) {
    const Status status = device::read_tuning(path_, other).status();
    EXPECT_EQ(status.code(), Code::bad_file);
    const bool is_driver = other.driver != key_.driver;
    EXPECT_NE(status.message().find(is_driver ? "has \"driver driver 1\", but this is \"driver "
                                                "driver 2\"."
                                              : "has \"device a device\", but this is \"device "
                                                "another device\"."),
              std::string::npos)
        << status.message();
  }
  std::string text = text_of(path_);
  text.resize(text.rfind("checksum"));
  text.replace(text.find("version 0"), 9, "version 9");
  write_text(path_, with_checksum(text));
  const Status status = device::read_tuning(path_, key_).status();
  EXPECT_EQ(status.code(), Code::bad_file);
  EXPECT_NE(status.message().find("has \"version 9"), std::string::npos) << status.message();
}

// Whatever the bytes are, the file is refused, or its candidates are in range.
TEST_F(Tuning, ADamagedFileIsRefused) {
  const Choices choices = {{"Linear f32 (f32[4,8])", {1, 3, 60.5, 100}},
                           {"MatMul f32 (f32[4,8])", {kNoCandidate, 3, 7, 7}}};
  ASSERT_OK(device::write_tuning(path_, key_, choices));
  const std::string text = text_of(path_);
  const std::string body = text.substr(0, text.rfind("checksum"));
  ASSERT_EQ(with_checksum(body), text);
  for (size_t i = 0; i < text.size(); ++i) {
    for (const char c : {'\0', '9', ' ', '\n'}) {
      std::string bad = text;
      if (bad[i] == c) {
        continue;
      }
      bad[i] = c;
      write_text(path_, bad);
      ASSERT_EQ(device::read_tuning(path_, key_).status().code(), Code::bad_file) << bad;
      if (i >= body.size()) {
        continue;
      }
      write_text(path_, with_checksum(bad.substr(0, body.size())));
      const Result<Choices> read = device::read_tuning(path_, key_);
      if (!read.ok()) {
        ASSERT_EQ(read.status().code(), Code::bad_file) << bad;
        continue;
      }
      for (const auto& [key, choice] : read.value()) {
        ASSERT_TRUE(choice.candidate == kNoCandidate || choice.candidate < choice.candidates)
            << bad;
        ASSERT_TRUE(std::isfinite(choice.ns) && choice.ns >= 0) << bad;
      }
    }
  }
  for (size_t size = 0; size < text.size(); ++size) {
    write_text(path_, text.substr(0, size));
    ASSERT_EQ(device::read_tuning(path_, key_).status().code(), Code::bad_file) << size;
  }
  const std::string head = body.substr(0, body.find("choice"));
  for (const std::string_view line :
       {"choice 3 3 60 100 Linear", "choice 1 3 nan 100 Linear", "choice 1 3 60 inf Linear",
        "choice 1 3 -1 100 Linear", "choice 4294967295 4294967296 1 1 Linear",
        "choice 4294967295 1 1 1 Linear", "choice 1 3 60 100 ", "choice 1 3 60 100", "choice", "",
        "choice 1 3 60 100 Linear\nchoice 2 3 60 100 Linear"}) {
    write_text(path_, with_checksum(format("{}{}\n", head, line)));
    EXPECT_EQ(device::read_tuning(path_, key_).status().code(), Code::bad_file) << line;
  }
  std::filesystem::remove(path_);
  std::filesystem::create_directory(path_);
  EXPECT_EQ(device::read_tuning(path_, key_).status().code(), Code::io_error);
}

// Runs a model on a Vulkan device with the kernels of GPUs.
class VulkanTuning : public testing::Test {
 protected:
  void SetUp() override {
    BOWLINE_NEED(why_missing("vulkan:0"));
    setenv("BOWLINE_VULKAN_VARIANT", "gpu", 1);
    options_.cache_folder = format("{}bowline_vulkan_tuning_{}", testing::TempDir(), getpid());
    std::filesystem::remove_all(options_.cache_folder);
  }
  void TearDown() override {
    unsetenv("BOWLINE_VULKAN_VARIANT");
    std::filesystem::remove_all(options_.cache_folder);
  }
  // The result of a run on a device that is opened now.
  Floats run() {
    const Device device = must(Device::open("vulkan:0", options_));
    EXPECT_EQ(device.info().notice, "");
    Model model;
    const Dims shape = {24, 264};
    const Parameter w = must(model.parameter("w", shape, Init::normal(1)));
    GraphBuilder g(model, "forward");
    g.output("y", g.op("Linear", {g.input("x", DType::f32, {3, 264}), g.parameter(w)}));
    EXPECT_OK(g.finish());
    EXPECT_OK(model.materialize(1));
    EXPECT_OK(model.to(device));
    Session session = must(Session::create(model, device, "forward", {}));
    Floats x(size_t{3} * 264), y(size_t{3} * 24);
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = static_cast<float>(std::sin(static_cast<double>(i)));
    }
    const Tensor inputs[] = {tensor("x", {{3, 264}}, x)};
    const Tensor outputs[] = {tensor("y", {{3, 24}}, y)};
    key_ = Internals::open(device)->capabilities().tuning;
    path_ = Internals::open(device)->tuning_path();
    times_ = must(session.profile(inputs));
    EXPECT_OK(session.run(inputs, outputs));
    return y;
  }

  DeviceOptions options_;
  device::TuningKey key_;
  std::string path_;
  std::vector<NodeTime> times_;
};

// Each candidate has bits of its own here, so the file decides, and decides alone.
TEST_F(VulkanTuning, TheSameFileGivesTheSameBits) {
  const Floats by_table = run();
  ASSERT_EQ(times_.size(), 1u);
  ASSERT_GE(times_[0].candidates, 5u);  // columns of matvec, tiles
  bool differs = false;
  for (uint32_t c = 0; c < times_[0].candidates; ++c) {
    const Choices choices = {{times_[0].tuning_key, {c, times_[0].candidates, 1, 2}}};
    ASSERT_OK(device::write_tuning(path_, key_, choices));
    const Floats once = run();
    EXPECT_EQ(once, run()) << c;
    differs = differs || once != by_table;
    for (size_t i = 0; i < once.size(); ++i) {
      EXPECT_NEAR(once[i], by_table[i], 1e-4) << c;
    }
  }
  EXPECT_TRUE(differs);
  std::filesystem::remove(path_);
  EXPECT_EQ(run(), by_table);
}

TEST_F(VulkanTuning, AFileThatIsIgnoredIsNamed) {
  const Floats by_table = run();
  const Choices choices = {{times_[0].tuning_key, {0, times_[0].candidates, 1, 2}}};
  ASSERT_OK(device::write_tuning(path_, {key_.model, "an older driver"}, choices));
  const Device device = must(Device::open("vulkan:0", options_));
  EXPECT_NE(device.info().notice.find("an older driver"), std::string::npos);
  EXPECT_NE(device.info().notice.find("It is ignored."), std::string::npos);
  EXPECT_TRUE(Internals::open(device)->choices().empty());
}

}  // namespace
}  // namespace bowline::test
