// The sample trains alike on every device, and when it moves between all of them.
//
// The reference is the CPU: the base model of the sample, batches of 1 x 64 bytes of its text,
// AdamW. Rounding errors grow during training on any device. Their growth is measured: for each
// step, band.txt has the largest distance so far from the reference over 8 CPU runs. The weights of
// these runs start with a change of one unit in the last place. A device must stay within 3 times
// this band. In the first 20 steps the band is a few units in the last place of a loss. There the
// limit is the tolerance of CrossEntropy for a loss of equal logits.
//
// BOWLINE_AGREEMENT_STEPS  steps per device (default 20; the band has 200)
// BOWLINE_MAKE_BAND=1      writes band.txt instead
#include <cmath>
#include <fstream>
#include <sstream>

#include "api/internals.h"
#include "base/random.h"
#include "ties/test_devices.h"
#include "train/tiny_lm.h"

namespace bowline::test {
namespace {

constexpr int kBandSteps = 200;
constexpr int kCloseSteps = 20;
constexpr int kSeq = 64;
constexpr int kVocabulary = 256;
constexpr int kRuns = 8;
constexpr int kMoveEvery = 15;

int steps_asked() {
  const char* text = std::getenv("BOWLINE_AGREEMENT_STEPS");
  return std::min(text == nullptr ? kCloseSteps : std::atoi(text), kBandSteps);
}

std::string text_of(const char* path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// Changes each weight by one unit in the last place up, down or not at all, depending on the run.
void nudge(Model& model, uint32_t run) {
  const auto& storages = Internals::state(model)->table.storages;
  for (uint32_t tie = 0; tie < storages.size(); ++tie) {
    std::vector<std::byte> bytes = must(params::read_bytes(storages[tie]));
    for (uint32_t i = 0; i < bytes.size() / 4; ++i) {
      float w = 0;
      std::memcpy(&w, bytes.data() + 4 * i, 4);
      const uint32_t way = philox({i, tie, run, 0}, {11, 13})[0] % 3;
      w = way == 0 ? w : std::nextafter(w, way == 1 ? INFINITY : -INFINITY);
      std::memcpy(bytes.data() + 4 * i, &w, 4);
    }
    const params::Home& home = storages[tie].home;
    ASSERT_OK(home.block->write(0, bytes));
  }
}

class Training {
 public:
  explicit Training(Model model) : model_(std::move(model)), text_(text_of(BOWLINE_TEXT)) {}

  Model& model() { return model_; }

  // Trains `steps` more steps on `device` and appends their losses.
  void train(const Device& device, int steps, std::vector<double>& losses) {
    ASSERT_OK(model_.to(device));
    if (!trainer_) {
      TrainOptions o;
      o.dims = {{"batch", 1}, {"seq", kSeq}};
      o.schedule.learning_rate = 1e-3f;
      o.clip_norm = 1;
      trainer_.emplace(must(Trainer::create(model_, device, o)));
    }
    const Dims shape = {1, kSeq};
    for (int i = 0; i < steps; ++i) {
      const size_t begin = losses.size() * 997 % (text_.size() - kSeq - 1);
      std::vector<int32_t> tokens(kSeq);
      std::vector<int32_t> labels(kSeq);
      for (size_t k = 0; k < kSeq; ++k) {
        tokens[k] = static_cast<uint8_t>(text_[begin + k]);
        labels[k] = static_cast<uint8_t>(text_[begin + k + 1]);
      }
      const Tensor batch[] = {tensor("tokens", shape, tokens), tensor("labels", shape, labels)};
      const std::span<const Tensor> batches[] = {batch};
      losses.push_back(static_cast<double>(must(trainer_->step(batches)).loss));
    }
  }

 private:
  Model model_;
  std::string text_;
  std::optional<Trainer> trainer_;
};

Device open_real(const std::string& name) { return open_test_device(name, 2); }

// The largest distance from `wanted` up to each step, over runs 1..kRuns of `losses_of(run)`.
template <class LossesOf>
std::vector<double> band_around(const std::vector<double>& wanted, const LossesOf& losses_of) {
  std::vector<double> out(wanted.size(), 0);
  for (uint32_t run = 1; run <= kRuns; ++run) {
    const std::vector<double> losses = losses_of(run);
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = std::max({out[i], std::abs(losses[i] - wanted[i]), i == 0 ? 0 : out[i - 1]});
    }
  }
  return out;
}

std::vector<double> losses_on(const std::string& device, int steps, uint32_t nudged = 0) {
  Training run(must(Model::open(BOWLINE_BASE)));
  std::vector<double> losses;
  EXPECT_OK(run.model().to(open_real("cpu")));
  if (nudged != 0) {
    nudge(run.model(), nudged);
  }
  run.train(open_real(device), steps, losses);
  return losses;
}

const std::vector<double>& reference() {
  static const std::vector<double> losses = losses_on("cpu", steps_asked());
  return losses;
}

std::vector<double> band() {
  std::ifstream in(BOWLINE_BAND);
  std::vector<double> out;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line[0] != '#') {
      out.push_back(std::stod(line));
    }
  }
  return out;
}

// The tolerance of CrossEntropy for the loss of a batch.
double promised(double loss) {
  const OracleContext::Array inputs[] = {{Shape{1, kSeq, kVocabulary}, {}}, {Shape{1, kSeq}, {}}};
  const Attributes attributes = Attributes::of(CrossEntropyAttributesT{});
  ToleranceContext context(attributes, inputs);
  return std::ldexp(op_def(Op::CrossEntropy).tolerance(context).roundings * loss, -24);
}

void expect_agreement(const std::vector<double>& losses) {
  const std::vector<double>& wanted = reference();
  const std::vector<double> limits = band();
  ASSERT_EQ(losses.size(), wanted.size());
  ASSERT_EQ(limits.size(), static_cast<size_t>(kBandSteps));
  for (size_t i = 0; i < losses.size(); ++i) {
    const double limit =
        std::max(3 * limits[i], i < static_cast<size_t>(kCloseSteps) ? promised(wanted[i]) : 0);
    ASSERT_GT(losses[i], 0.1);
    ASSERT_LE(std::abs(losses[i] - wanted[i]), limit) << "at step " << i + 1;
  }
}

std::vector<double> nudged_band(int steps) {
  return band_around(steps == steps_asked() ? reference() : losses_on("cpu", steps),
                     [&](uint32_t run) { return losses_on("cpu", steps, run); });
}

void write_band() {
  std::ofstream out(BOWLINE_BAND);
  out << "# Largest distance of a loss from the reference up to each step, over 8 CPU runs whose "
         "weights began one unit\n"
         "# in the last place away. Made by agreement_test with BOWLINE_MAKE_BAND=1.\n";
  for (const double limit : nudged_band(kBandSteps)) {
    out << format("{}\n", limit);
  }
}

// Repeats the 8 runs on this CPU. Their band equals that of the file, up to the factor for devices.
TEST(Agreement, TheBandIsThatOfEightNudgedRuns) {
  if (std::getenv("BOWLINE_MAKE_BAND") != nullptr) {
    write_band();
  }
  const std::vector<double> limits = band();
  ASSERT_EQ(limits.size(), static_cast<size_t>(kBandSteps));
  EXPECT_TRUE(std::ranges::is_sorted(limits));
  const std::vector<double> measured = nudged_band(steps_asked());
  const size_t last = measured.size() - 1;
  EXPECT_LE(measured[last], 3 * limits[last]);
  EXPECT_GE(measured[last], limits[last] / 3);
}

using OnEveryDevice = OnDevice;
BOWLINE_ON_ALL_DEVICES(OnEveryDevice);

TEST_P(OnEveryDevice, TheSampleTrainsAlike) {
  if (GetParam() == "cpu") {
    expect_agreement(losses_on("cpu", steps_asked()));
    EXPECT_EQ(losses_on("cpu", steps_asked()), reference());
    return;
  }
  expect_agreement(losses_on(GetParam(), steps_asked()));
}

// All devices in turn, and back to the first.
std::vector<std::string> walk() {
  std::vector<std::string> out;
  for (const std::string& name : usable_device_names()) {
    if (name != "opaque" && name != "moving") {
      out.push_back(name);
    }
  }
  return out;
}

TEST(Agreement, AWalkOverAllDevicesStaysOnTheCurve) {
  const std::vector<std::string> names = walk();
  Training run(must(Model::open(BOWLINE_BASE)));
  const std::string ties = run.model().ties();
  std::vector<double> losses;
  for (size_t leg = 0; losses.size() < reference().size(); ++leg) {
    const int left = static_cast<int>(reference().size() - losses.size());
    run.train(open_real(names[leg % names.size()]), std::min(kMoveEvery, left), losses);
  }
  expect_agreement(losses);
  EXPECT_EQ(run.model().ties(), ties);
}

// Dropout masks depend only on the seed and a counter, so they are the same on every device.
// Another mask changes the loss much more than rounding does: the walk stays in the band, a run
// with another seed does not.
TEST(Agreement, AWalkKeepsTheRandomCounter) {
  const auto losses_of = [](const std::vector<std::string>& names, uint64_t seed, uint32_t nudged) {
    TinyLm lm = tiny_lm(2, 0.3f);
    TrainOptions o;
    o.dims = lm.dims();
    o.schedule.learning_rate = 1e-3f;
    o.seed = seed;
    std::vector<double> losses;
    std::optional<Trainer> trainer;
    for (uint32_t i = 0; i < 12; ++i) {
      const Device device = open_real(names[i / 3 % names.size()]);
      EXPECT_OK(lm.model.to(device));
      if (i == 0 && nudged != 0) {
        nudge(lm.model, nudged);
      }
      if (!trainer) {
        trainer.emplace(must(Trainer::create(lm.model, device, o)));
      }
      const std::vector<Tensor> batch = lm.data(i);
      const std::span<const Tensor> batches[] = {batch};
      losses.push_back(static_cast<double>(must(trainer->step(batches)).loss));
    }
    return losses;
  };
  const std::vector<double> still = losses_of({"cpu"}, 0, 0);
  const std::vector<double> limits =
      band_around(still, [&](uint32_t run) { return losses_of({"cpu"}, 0, run); });
  const std::vector<double> moving = losses_of(walk(), 0, 0);
  const std::vector<double> other = losses_of({"cpu"}, 1, 0);
  for (size_t i = 0; i < still.size(); ++i) {
    EXPECT_GT(still[i], 0.1);
    EXPECT_LE(std::abs(moving[i] - still[i]), 3 * limits.back()) << "at step " << i + 1;
    EXPECT_GT(std::abs(other[i] - still[i]), 30 * limits.back()) << "at step " << i + 1;
  }
}

// At most 45 launches per layer plus 16, without fusion. The listing shows the number.
TEST(Launches, AStepOfTheSampleStaysInItsBudget) {
  constexpr uint64_t kLayers = 5;
  BOWLINE_NEED(why_missing("cuda-emu:0"));
  Model model = must(Model::open(BOWLINE_BASE));
  const Device device = must(Device::open("cuda-emu:0"));
  ASSERT_OK(model.to(device));
  TrainOptions o;
  o.dims = {{"batch", 1}, {"seq", kSeq}};
  const Trainer trainer = must(Trainer::create(model, device, o));
  const uint64_t launches = trainer.counters().launches;
  EXPECT_GT(launches, 14 * kLayers);
  EXPECT_LE(launches, 45 * kLayers + 16);
  const std::string listing = must(trainer.listing("build", true));
  uint64_t listed = 0;
  for (size_t at = 0; (at = listing.find("segment ", at)) != std::string::npos; ++at) {
    const std::string line = listing.substr(at, listing.find('\n', at) - at);
    listed += std::stoull(line.substr(line.rfind(", ") + 2));
  }
  EXPECT_EQ(listed, launches) << listing;
  EXPECT_EQ(must(trainer.listing("build", false)).find("launches"), std::string::npos);
}

}  // namespace
}  // namespace bowline::test
