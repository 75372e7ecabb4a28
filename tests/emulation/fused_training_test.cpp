// Training with fused kernels gives what the CPU computes, whose plans are not fused.
#include <cstdlib>

#include "emulation/gpt2.h"
#include "platform.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

constexpr Gpt2Shape kSmall = {3, 16, 2, 29, 16};
constexpr int64_t kBatch = 2, kSeq = 11;

struct Setting {
  uint32_t accumulation = 1;
  bool has_adapter = false;
  bool is_partly_frozen = false;  // weights and biases of different layers
  uint64_t memory_budget = 0;
};

struct Trained {
  Floats losses;
  std::vector<Floats> weights;
  uint64_t recomputed = 0;
  uint64_t predicted = 0;
};

void prepare(Model& model, const Setting& s) {
  EXPECT_OK(model.materialize(1));
  if (s.has_adapter) {
    AdapterOptions options;
    options.rank = 2;
    options.target = "h.*.weight";
    options.freeze_others = false;
    must(add_adapter(model, "ad", options));
  }
  for (const char* const name : {"h.0.mlp.c_fc.weight", "h.1.mlp.c_fc.bias", "h.2.ln_1.bias"}) {
    EXPECT_OK(s.is_partly_frozen ? model.freeze(name) : Status());
  }
}

// Two steps of SGD, whose weights depend on the gradients without amplifying their rounding.
Trained train(const std::string& device_name, const Setting& s) {
  const Device device = open_test_device(device_name, 1, s.memory_budget);
  Gpt2 gpt(kSmall);
  prepare(gpt.model, s);
  EXPECT_OK(gpt.model.to(device));
  TrainOptions o;
  o.dims = {{"batch", kBatch}, {"seq", kSeq}};
  o.accumulation = s.accumulation;
  o.optimizer.name = "sgd";
  o.schedule.learning_rate = 0.2f;
  Trainer t = must(Trainer::create(gpt.model, device, o));
  Trained out;
  std::vector<int32_t> ids(kBatch * kSeq), labels(kBatch * kSeq);
  for (uint32_t step = 0; step < 2 * s.accumulation; ++step) {
    for (size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<int32_t>((i * 7 + step * 5) % 29);
      labels[i] = static_cast<int32_t>((i * 3 + step) % 29);
    }
    const std::vector<Tensor> batch = {tensor("tokens", {kBatch, kSeq}, ids),
                                       tensor("labels", {kBatch, kSeq}, labels)};
    const std::optional<StepReport> report = must(t.micro_step(batch));
    if (report) {
      out.losses.push_back(report->loss);
    }
  }
  for (const ParameterInfo& p : must(gpt.model.describe()).parameters) {
    out.weights.push_back(values(gpt.model, p.name));
  }
  out.recomputed = must(t.describe()).recomputed_nodes;
  out.predicted = t.memory().predicted_bytes;
  return out;
}

void expect_same(const Floats& a, const Floats& b, float tolerance = 2e-5f) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i], b[i], tolerance * (1 + std::abs(b[i])));
  }
}

void expect_as_on_cpu(const Setting& s) {
  const Trained fused = train("cuda-emu:0", s);
  const Trained plain = train("cpu", s);
  expect_same(fused.losses, plain.losses);
  ASSERT_EQ(fused.weights.size(), plain.weights.size());
  for (size_t i = 0; i < fused.weights.size(); ++i) {
    SCOPED_TRACE(i);
    expect_same(fused.weights[i], plain.weights[i]);
  }
}

TEST(FusedTraining, GivesTheWeightsOfTheCpu) {
  expect_as_on_cpu({});
  expect_as_on_cpu({.accumulation = 2});
}

TEST(FusedTraining, LeavesFrozenWeightsAlone) {
  expect_as_on_cpu({.accumulation = 2, .is_partly_frozen = true});
}

TEST(FusedTraining, TrainsAdapters) { expect_as_on_cpu({.has_adapter = true}); }

// Two steps with a loss that `build` makes from logits and labels.
using BuildLoss = std::function<Value(GraphBuilder&, Value logits, Value labels)>;

struct TrainedLoss {
  Floats losses;
  Floats weights;
  size_t fused = 0;  // FusedCrossEntropy nodes
};

TrainedLoss train_loss(const std::string& device_name, const BuildLoss& build,
                       int64_t of_classes = 29) {
  const Device device = open_test_device(device_name, 1, 0);
  Model model;
  GraphBuilder g(model, "loss");
  const Value x = g.input("x", DType::f32, {10, 8});
  const Value labels = g.input("labels", DType::i32, {10});
  const Value w = g.parameter(must(model.parameter("w", {8, of_classes}, Init::normal(0.5f))));
  g.output("loss", build(g, g.op("MatMul", {x, w}), labels));
  EXPECT_OK(g.finish());
  EXPECT_OK(model.materialize(1));
  EXPECT_OK(model.to(device));
  TrainOptions o;
  o.optimizer.name = "sgd";
  o.schedule.learning_rate = 0.2f;
  Trainer t = must(Trainer::create(model, device, o));
  TrainedLoss out;
  std::vector<float> rows(80);
  std::vector<int32_t> classes(10);
  for (int step = 0; step < 2; ++step) {
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i] = static_cast<float>((i * 7 + static_cast<size_t>(step)) % 13) / 8 - 0.75f;
      classes[i % 10] = static_cast<int32_t>(i % 29);
    }
    const std::vector<Tensor> batch = {tensor("x", {10, 8}, rows), tensor("labels", {10}, classes)};
    out.losses.push_back(must(t.micro_step(batch))->loss);
  }
  out.weights = values(model, "w");
  const PlanInfo plan = must(t.describe());
  for (const SegmentInfo& segment : plan.segments) {
    out.fused += static_cast<size_t>(
        std::ranges::count(segment.records, "FusedCrossEntropy", &RecordInfo::op));
  }
  return out;
}

void expect_fused_losses(size_t fused, const BuildLoss& build) {
  const TrainedLoss emulated = train_loss("cuda-emu:0", build);
  const TrainedLoss plain = train_loss("cpu", build);
  EXPECT_EQ(emulated.fused, fused);
  EXPECT_EQ(plain.fused, 0u);
  expect_same(emulated.losses, plain.losses);
  expect_same(emulated.weights, plain.weights);
}

TEST(FusedTraining, ComputesALossWithItsGradient) {
  expect_fused_losses(1, [](GraphBuilder& g, Value logits, Value labels) {
    return g.op("CrossEntropy", {logits, labels}, {{"label_smoothing", 0.1}, {"ignore_index", 3}});
  });
  // The caller reads the logits, so the gradient does not overwrite them.
  expect_fused_losses(1, [](GraphBuilder& g, Value logits, Value labels) {
    g.output("logits", logits);
    return g.op("CrossEntropy", {logits, labels});
  });
}

// The absolute value keeps the loss and its gradient, but it reads the loss before the gradient.
// Warps and blocks process the rows.
TEST(FusedTraining, ComputesALossWithTheBitsOfTwoNodes) {
  for (const int64_t classes : {29, 1500}) {
    const TrainedLoss fused = train_loss(
        "cuda-emu:0",
        [](GraphBuilder& g, Value logits, Value labels) {
          return g.op("CrossEntropy", {logits, labels});
        },
        classes);
    const TrainedLoss two = train_loss(
        "cuda-emu:0",
        [](GraphBuilder& g, Value logits, Value labels) {
          return g.op("Abs", {g.op("CrossEntropy", {logits, labels})});
        },
        classes);
    EXPECT_EQ(fused.fused, 1u);
    EXPECT_EQ(two.fused, 0u);
    EXPECT_EQ(fused.losses, two.losses);
    EXPECT_EQ(fused.weights, two.weights);
  }
}

// The gradient of one loss depends on the other.
TEST(FusedTraining, KeepsALossThatAGradientNeeds) {
  expect_fused_losses(0, [](GraphBuilder& g, Value logits, Value labels) {
    const Value first = g.op("CrossEntropy", {logits, labels});
    return g.op("Mul", {first, g.op("CrossEntropy", {g.op("Neg", {logits}), labels})});
  });
}

// A Linear whose logits take 16 MiB, and its loss.
struct LinearLossSetting {
  bool has_bias = false;
  bool reads_logits = false;  // another part of the loss
  bool is_tied = false;       // the weight is also used before the layer
  uint32_t accumulation = 1;
  std::string frozen = "";
  std::optional<DType> compute = {};
};

struct TrainedLinear {
  Floats losses;
  std::vector<Floats> weights;
  size_t fused = 0;  // FusedLinearCrossEntropy nodes
};

TrainedLinear train_linear(const std::string& device_name, const LinearLossSetting& s) {
  constexpr int64_t kClasses = 4099, kSize = 4;
  const DType type = s.compute.value_or(DType::f32);
  const int64_t all = (16 << 20) / (kClasses * static_cast<int64_t>(size_of(type))) + 7;
  const Device device = open_test_device(device_name, 1, 0);
  Model model;
  GraphBuilder g(model, "loss");
  const Value x = g.input("x", DType::f32, {all, kSize});
  const Value labels = g.input("labels", DType::i32, {all});
  const auto parameter = [&](const char* name, const TensorShape& shape) {
    return g.parameter(must(model.parameter(name, shape, Init::normal(0.5f))));
  };
  const Value w = parameter("w", {kClasses, kSize});
  Value rows = g.op("MatMul", {x, parameter("first", {kSize, kSize})});
  if (s.is_tied) {
    rows = g.op("Add", {rows, g.op("Embedding", {w, labels})});
  }
  std::vector<Value> inputs = {rows, w};
  if (s.has_bias) {
    inputs.push_back(parameter("bias", {kClasses}));
  }
  const Value logits = g.op("Linear", inputs);
  Value loss = g.op("CrossEntropy", {logits, labels}, {{"ignore_index", 5}});
  if (s.reads_logits) {
    loss = g.op("Add", {loss, g.op("ReduceMean", {logits})});
  }
  g.output("loss", loss);
  EXPECT_OK(g.finish());
  EXPECT_OK(model.materialize(1));
  EXPECT_OK(s.frozen.empty() ? Status() : model.freeze(s.frozen));
  EXPECT_OK(model.to(device));
  TrainOptions o;
  o.optimizer.name = "sgd";
  o.schedule.learning_rate = 4;
  o.accumulation = s.accumulation;
  o.precision.compute_dtype = type;
  Trainer t = must(Trainer::create(model, device, o));
  TrainedLinear out;
  for (uint32_t step = 0; step < s.accumulation; ++step) {
    std::vector<float> values_of_x(static_cast<size_t>(all * kSize));
    std::vector<int32_t> classes(static_cast<size_t>(all));
    for (size_t i = 0; i < values_of_x.size(); ++i) {
      values_of_x[i] = static_cast<float>((i * 7 + step) % 13) / 8 - 0.75f;
    }
    for (size_t i = 0; i < classes.size(); ++i) {
      classes[i] = static_cast<int32_t>((i * 31 + step) % 61 + (i % 2) * 4000);
    }
    const std::vector<Tensor> batch = {tensor("x", {all, kSize}, values_of_x),
                                       tensor("labels", {all}, classes)};
    const std::optional<StepReport> report = must(t.micro_step(batch));
    if (report) {
      out.losses.push_back(report->loss);
    }
  }
  for (const ParameterInfo& p : must(model.describe()).parameters) {
    out.weights.push_back(values(model, p.name));
  }
  const PlanInfo plan = must(t.describe());
  for (const SegmentInfo& segment : plan.segments) {
    out.fused += static_cast<size_t>(
        std::ranges::count(segment.records, "FusedLinearCrossEntropy", &RecordInfo::op));
  }
  return out;
}

// The emulation has its stand-in for cuBLASLt, or only Bowline's own products.
TrainedLinear train_emulated(const LinearLossSetting& s, bool has_library) {
  cuda_emu::restart();
  cuda_emu::machine().has_cublas = has_library;
  TrainedLinear out = train_linear("cuda-emu:0", s);
  cuda_emu::restart();
  return out;
}

void expect_same(const TrainedLinear& a, const TrainedLinear& b, float tolerance = 2e-5f) {
  expect_same(a.losses, b.losses, tolerance);
  ASSERT_EQ(a.weights.size(), b.weights.size());
  for (size_t i = 0; i < a.weights.size(); ++i) {
    SCOPED_TRACE(i);
    expect_same(a.weights[i], b.weights[i], tolerance);
  }
}

void expect_fused_linear(size_t fused, const LinearLossSetting& s, const char* variants = "") {
  setenv("BOWLINE_CUDA_VARIANT", variants, 1);
  const TrainedLinear emulated = train_emulated(s, true);
  unsetenv("BOWLINE_CUDA_VARIANT");
  EXPECT_EQ(emulated.fused, fused);
  expect_same(emulated, train_linear("cpu", s));
}

TEST(FusedTraining, ComputesLogitsInChunksWithTheirLoss) {
  expect_fused_linear(1, {});
  expect_fused_linear(1, {}, "staged");  // in small chunks
  expect_fused_linear(1, {.is_tied = true, .accumulation = 2});
  expect_fused_linear(1, {.frozen = "w"});
}

// The gradient of the weight is f32 then, where separate nodes round it. It moves weights by up to
// 0.03.
TEST(FusedTraining, ComputesLogitsOf16BitsWithTheirLoss) {
  const LinearLossSetting setting = {.compute = DType::bf16};
  const TrainedLinear fused = train_emulated(setting, true);
  const TrainedLinear separate = train_emulated(setting, false);
  EXPECT_EQ(fused.fused, 1u);
  EXPECT_EQ(separate.fused, 0u);
  expect_same(fused, separate, 1e-3f);
}

TEST(FusedTraining, KeepsLogitsThatSomethingElseNeeds) {
  expect_fused_linear(0, {.has_bias = true});
  expect_fused_linear(0, {.frozen = "first"});
  expect_fused_linear(0, {.reads_logits = true});
}

TEST(FusedTraining, RecomputesWithTheSameBits) {
  const Trained whole = train("cuda-emu:0", {});
  EXPECT_EQ(whole.recomputed, 0u);
  const Trained less = train("cuda-emu:0", {.memory_budget = whole.predicted - 1});
  EXPECT_GT(less.recomputed, 0u);
  EXPECT_EQ(less.losses, whole.losses);
  EXPECT_EQ(less.weights, whole.weights);
}

// In bf16, a step reads copies of the weights. Programs without a step buffer make them before the
// first step; later the optimizer writes them.
TEST(FusedTraining, ProfilesTheCopiesOfWeights) {
  const Device device = open_test_device("cuda-emu:0", 1, 0);
  Gpt2 gpt(kSmall);
  prepare(gpt.model, {});
  ASSERT_OK(gpt.model.to(device));
  TrainOptions o;
  o.dims = {{"batch", kBatch}, {"seq", kSeq}};
  o.precision.compute_dtype = DType::bf16;
  o.optimizer.name = "adamw";
  Trainer t = must(Trainer::create(gpt.model, device, o));
  std::vector<int32_t> ids(kBatch * kSeq, 3);
  const std::vector<Tensor> batch = {tensor("tokens", {kBatch, kSeq}, ids),
                                     tensor("labels", {kBatch, kSeq}, ids)};
  const auto is_refresh = [](const NodeTime& n) { return n.part == "refresh"; };
  const std::vector<NodeTime> first = must(t.profile(batch));
  EXPECT_GT(std::ranges::count_if(first, is_refresh), 0);
  const std::vector<NodeTime> second = must(t.profile(batch));
  EXPECT_EQ(std::ranges::count_if(second, is_refresh), 0);
  EXPECT_GT(second.size(), 0u);
}

}  // namespace
}  // namespace bowline::test
