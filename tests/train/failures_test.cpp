// Lets the n-th device call fail in every call of a Trainer and a Session, n = 1, 2, ..., until the
// call succeeds. The header promises that a failed call changes nothing, or that state() says how
// to continue. The continued run has the same bits as a run without failures.
#include <unistd.h>

#include <bit>
#include <cstdio>
#include <filesystem>
#include <map>
#include <regex>

#include "faults/faulty_device.h"
#include "ties/test_devices.h"
#include "train/tiny_lm.h"

namespace bowline::test {
namespace {

TinyLm of_one_layer() { return tiny_lm(1); }

struct Setting {
  const char* name;
  bool pieces;  // submissions fail between their recordings
  uint32_t accumulation;
  Code code;
  TinyLm (*make)() = of_one_layer;
  void (*adjust)(TrainOptions& o) = [](TrainOptions&) {};
  uint64_t memory_budget = 0;
  int stride = 1;  // calls from one tried failure to the next
  friend void PrintTo(const Setting& s, std::ostream* out) { *out << s.name; }
};

// One run: a model on a faulty device, its Trainer and Session, and their results so far.
struct World {
  explicit World(const Setting& s) : setting(s) {
    auto cpu = open_cpu();
    std::unique_ptr<device::Device> faulty;
    if (s.pieces) {
      faulty = std::make_unique<PiecewiseDevice>(std::move(cpu), fault);
    } else {
      faulty = std::make_unique<FaultyDevice>(std::move(cpu), fault);
    }
    device.emplace(wrap("faulty", std::move(faulty), s.memory_budget));
    EXPECT_OK(lm.model.to(*device));
  }

  const Setting& setting;
  std::shared_ptr<Fault> fault = std::make_shared<Fault>();
  std::optional<Device> device;
  TinyLm lm = setting.make();
  std::optional<Trainer> trainer;
  std::optional<Session> session;
  uint32_t next = 0;      // index of the next batch
  uint32_t snapshot = 0;  // `next` at the time of the snapshot
  std::string path = folder() + "bowline_failures_" + std::to_string(getpid());
  std::vector<uint32_t> seen;  // bits of the loss and norm of each finished step

  TrainOptions options() const {
    TrainOptions o = adamw(lm);
    o.accumulation = setting.accumulation;
    setting.adjust(o);
    return o;
  }
  // Uses memory if possible, because the test writes thousands of checkpoints.
  static std::string folder() {
    return std::filesystem::is_directory("/dev/shm") ? "/dev/shm/" : testing::TempDir();
  }
  // Returns weights, statistics, masters and moments by tie index. Gradients have no meaning
  // between steps.
  std::map<uint32_t, std::vector<std::byte>> bytes() const {
    std::map<uint32_t, std::vector<std::byte>> out;
    for (const StorageInfo& s : must(lm.model.describe()).storages) {
      if (!s.empty && s.role != StorageRole::gradient) {
        out[s.tie] = must(lm.model.storage_bytes(s.tie));
      }
    }
    return out;
  }
  // Returns bytes() without masters that no step has written. Such a master equals its storage and
  // is made on demand.
  std::map<uint32_t, std::vector<std::byte>> held() const {
    auto out = bytes();
    for (const StorageInfo& s : must(lm.model.describe()).storages) {
      if (s.role == StorageRole::master && s.version == 0) {
        out.erase(s.tie);
      }
    }
    return out;
  }
  // Returns both tables without the versions of derived storages, which a call can make again or
  // restore: masters, statistics and copies.
  std::string listing() const {
    static const std::regex kMadeAgain(
        ", as [^\n]*|(master|running_statistic)[^\n]* version [0-9]+");
    return std::regex_replace(lm.model.storages(), kMadeAgain, "$1") + lm.model.parameters();
  }
};

using Act = Status (*)(World&);

Status create(World& w) {
  BOWLINE_TRY_ASSIGN(Trainer t, Trainer::create(w.lm.model, *w.device, w.options()));
  w.trainer.emplace(std::move(t));
  return {};
}

Status create_session(World& w) {
  BOWLINE_TRY_ASSIGN(Session s, Session::create(w.lm.model, *w.device, "loss", w.lm.dims()));
  w.session.emplace(std::move(s));
  return {};
}

Status micro_step(World& w) {
  BOWLINE_TRY_ASSIGN(const auto report, w.trainer->micro_step(w.lm.data(w.next)));
  ++w.next;
  if (report) {
    w.seen.resize(std::max<size_t>(w.seen.size(), 2 * report->step));
    w.seen[2 * report->step - 2] = std::bit_cast<uint32_t>(report->loss);
    w.seen[2 * report->step - 1] = std::bit_cast<uint32_t>(report->grad_norm);
  }
  return {};
}

Status evaluate(World& w) { return w.trainer->evaluate(w.lm.data(1000)).status(); }

Status run(World& w) {
  Floats loss(1);
  const Dims scalar;
  const Tensor outputs[] = {tensor("loss", scalar, loss)};
  return w.session->run(w.lm.data(1000), outputs);
}

Status snapshot(World& w) {
  BOWLINE_TRY(w.trainer->snapshot());
  w.snapshot = w.next;
  return {};
}

Status rollback(World& w) {
  BOWLINE_TRY(w.trainer->rollback());
  w.next = w.snapshot;
  return {};
}

Status save(World& w) {
  Progress p;
  p.data_cursor = w.next;
  return w.trainer->save(w.path, p);
}

Status resume(World& w) {
  BOWLINE_TRY_ASSIGN(const Progress p, w.trainer->resume(w.path));
  w.next = static_cast<uint32_t>(p.data_cursor);
  return {};
}

// The next call builds a new plan.
Status freeze(World& w) { return w.lm.model.freeze("norm"); }

struct Line {
  const char* name;
  Act act;
};

constexpr Line kScript[] = {
    {"create_session", create_session},
    {"create", create},
    {"snapshot", snapshot},
    {"micro_step", micro_step},
    {"micro_step", micro_step},
    {"micro_step", micro_step},
    {"evaluate", evaluate},
    {"run", run},
    {"freeze", freeze},
    {"snapshot", snapshot},
    {"run", run},
    {"micro_step", micro_step},
    {"micro_step", micro_step},
    {"micro_step", micro_step},
    {"save", save},
    {"micro_step", micro_step},
    {"rollback", rollback},
    {"micro_step", micro_step},
    {"micro_step", micro_step},
    {"resume", resume},
    {"micro_step", micro_step},
    {"micro_step", micro_step},
};

struct Outcome {
  std::map<uint32_t, std::vector<std::byte>> bytes;
  std::vector<uint32_t> seen;
  bool operator==(const Outcome&) const = default;
};

Outcome outcome_of(World& w) { return {w.bytes(), w.seen}; }

// tiny_lm(1) with storages in 16 bits. The Trainer adds masters.
template <DType dtype>
TinyLm in_short() {
  TinyLm lm = tiny_lm(1);
  EXPECT_TRUE(lm.model.cast(dtype).ok());
  return lm;
}

// The first steps overflow and are skipped. The scale falls and grows again.
void scaled(TrainOptions& o) {
  o.precision.initial_scale = 0x1p30f;
  o.precision.growth_interval = 1;
}

// tokens -> rows -> BatchNorm -> logits, with running statistics of 16 channels. `dtype` applies to
// everything except the statistics.
template <DType dtype>
TinyLm normed() {
  constexpr int64_t kVocab = 29, kChannels = 16;
  TinyLm lm;
  Model& m = lm.model;
  const Parameter embedding =
      must(m.parameter("embed.weight", {kVocab, kChannels}, Init::normal(0.1f)));
  const auto row = [&](std::string_view name, Init init, StorageRole role = StorageRole::weight) {
    return must(m.parameter(name, {kChannels}, init, role));
  };
  const Parameter scale = row("norm", Init::ones()), bias = row("bias", Init::zeros());
  const Parameter mean = row("mean", Init::zeros(), StorageRole::running_statistic);
  const Parameter variance = row("variance", Init::ones(), StorageRole::running_statistic);
  GraphBuilder g(m, "loss");
  const Value tokens = g.input("tokens", DType::i32, {"batch", "seq"});
  const Value labels = g.input("labels", DType::i32, {"batch", "seq"});
  const Value x = g.op("Transpose", {g.op("Embedding", {g.parameter(embedding), tokens})},
                       {{"permutation", {0, 2, 1}}});
  const Value y = g.op("BatchNorm", {x, g.parameter(scale), g.parameter(bias), g.parameter(mean),
                                     g.parameter(variance)});
  const Value dropped = g.op("Dropout", {y}, {{"rate", 0.1}});
  const Value back = g.op("Transpose", {dropped}, {{"permutation", {0, 2, 1}}});
  const Value logits = g.op("Linear", {back, g.parameter(embedding)});
  g.output("loss", g.op("CrossEntropy", {logits, labels}));
  g.output("logits", logits);
  EXPECT_OK(g.finish());
  EXPECT_OK(m.materialize(1));
  if (dtype != DType::f32) {
    EXPECT_TRUE(m.cast(dtype).ok());
  }
  return lm;
}

TinyLm of_four_layers() { return tiny_lm(4); }
constexpr uint64_t kScarce =
    340000;  // bytes; enough for four layers only if some activations are recomputed

class Failures : public testing::TestWithParam<Setting> {};
INSTANTIATE_TEST_SUITE_P(
    Settings, Failures,
    testing::Values(
        Setting{"whole_1", false, 1, Code::internal},
        Setting{"whole_3", false, 3, Code::out_of_memory},
        Setting{"pieces_1", true, 1, Code::device_lost},
        Setting{"pieces_3", true, 3, Code::internal},
        Setting{"statistics", true, 3, Code::device_lost, normed<DType::f32>},
        Setting{"statistics_beside_masters", false, 3, Code::out_of_memory, normed<DType::bf16>},
        Setting{"masters", true, 3, Code::internal, in_short<DType::bf16>},
        Setting{"loss_scale", true, 1, Code::device_lost, in_short<DType::f16>, scaled},
        Setting{"loss_scale_3", false, 3, Code::out_of_memory, in_short<DType::f16>, scaled},
        Setting{"computes_in_bf16", true, 3, Code::out_of_memory, of_one_layer,
                [](TrainOptions& o) { o.precision.compute_dtype = DType::bf16; }},
        Setting{"computes_again", true, 1, Code::out_of_memory, of_four_layers,
                [](TrainOptions&) {}, kScarce, 3},
        Setting{"adafactor", true, 3, Code::internal, in_short<DType::bf16>,
                [](TrainOptions& o) { o.optimizer = {"adafactor"}; }},
        Setting{"rmsprop", true, 1, Code::out_of_memory, of_one_layer,
                [](TrainOptions& o) {
                  o.optimizer = {"rmsprop", {{"momentum", 0.5f}, {"centered", 1}}};
                }},
        Setting{"adagrad", true, 1, Code::device_lost, of_one_layer,
                [](TrainOptions& o) { o.optimizer = {"adagrad"}; }}),
    [](const auto& p) { return std::string(p.param.name); });

void run_lines(World& w, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    ASSERT_OK(kScript[i].act(w));
  }
}

// Trains until `next` batches are used.
void train_to(World& w, uint32_t next) {
  while (w.next < next) {
    ASSERT_OK(micro_step(w));
  }
}

// Follows state() until the failed call can be repeated.
void recover(World& w) {
  const uint32_t reached = w.next;
  switch (w.trainer ? w.trainer->state() : TrainState::ready) {
    case TrainState::ready:
    case TrainState::unread:
      return;
    case TrainState::paused:
      FAIL() << "No call of this test pauses.";
    case TrainState::gradients_lost:
      EXPECT_EQ(w.trainer->micro_step(w.lm.data(w.next)).status().code(), Code::bad_argument);
      w.next -= w.trainer->accumulated();
      ASSERT_OK(w.trainer->restart_step());
      break;
    case TrainState::damaged:
      EXPECT_EQ(w.trainer->micro_step(w.lm.data(w.next)).status().code(), Code::bad_argument);
      EXPECT_EQ(w.trainer->evaluate(w.lm.data(w.next)).status().code(), Code::bad_argument);
      EXPECT_EQ(w.trainer->save(w.path + ".refused", {}).code(), Code::bad_argument);
      ASSERT_OK(rollback(w));
      break;
  }
  EXPECT_EQ(w.trainer->state(), TrainState::ready);
  train_to(w, reached);
}

// Runs the script with a failure at call `n` of line `line`. Returns false if the line makes fewer
// calls.
bool run_with_failure(const Setting& setting, size_t line, int n, const Outcome& right) {
  World w(setting);
  run_lines(w, 0, line);
  const auto before = w.held();
  const std::string listing = w.listing();
  w.fault->arm(n, setting.code);
  const Status failed = kScript[line].act(w);
  const bool fired = w.fault->fired();
  w.fault->disarm();
  if (!fired) {
    EXPECT_OK(failed);
    return false;
  }
  // A call can succeed without the failed device call.
  if (!failed.ok()) {
    EXPECT_EQ(failed.code(), setting.code) << failed.message();
    if (w.trainer) {
      (void)w.trainer->memory();
      (void)w.trainer->listing("build");
    }
    if (w.session) {
      (void)w.session->memory();
    }
    if (!w.trainer || w.trainer->state() == TrainState::ready) {
      const auto after = w.bytes();
      for (const auto& [tie, row] : before) {
        EXPECT_TRUE(after.at(tie) == row) << "storage " << tie;
      }
      EXPECT_EQ(w.listing(), listing);
    }
    recover(w);
    EXPECT_OK(kScript[line].act(w));
  }
  run_lines(w, line + 1, std::size(kScript));
  EXPECT_EQ(w.seen, right.seen);
  EXPECT_TRUE(w.bytes() == right.bytes) << "the run ends otherwise";
  std::remove(w.path.c_str());
  return true;
}

TEST_P(Failures, TheRunGoesOnBitForBit) {
  const Setting& setting = GetParam();
  const Outcome right = [&] {
    World w(setting);
    run_lines(w, 0, std::size(kScript));
    return outcome_of(w);
  }();
  ASSERT_FALSE(right.seen.empty());
  {
    // Checks that the setting recomputes if and only if it has a budget.
    World w(setting);
    run_lines(w, 0, 2);
    EXPECT_EQ(must(w.trainer->describe()).recomputed_nodes > 0, setting.memory_budget > 0)
        << w.device->counters().peak_bytes;
  }
  for (size_t line = 0; line < std::size(kScript); ++line) {
    for (int n = 1;; n += setting.stride) {
      SCOPED_TRACE(format("call {} of line {} ({})", n, line, kScript[line].name));
      if (!run_with_failure(setting, line, n, right)) {
        EXPECT_GT(n, kScript[line].act == freeze ? 0 : 1) << "a line calls the device";
        break;
      }
      if (HasFailure()) {
        return;
      }
    }
  }
}

}  // namespace
}  // namespace bowline::test
