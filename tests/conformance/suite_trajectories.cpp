// Suite trajectories: trains whole models for some steps on the device and on the oracle device.
// The losses and gradient norms must stay close.
#include <cmath>

#include "api/internals.h"
#include "base/random.h"
#include "bowline.h"
#include "conformance/oracle_device.h"
#include "conformance/suite.h"

namespace bowline::conformance {
namespace {

constexpr int kTrajectorySteps = 20;
// relative; each step adds the rounding errors of the last step to the weights
constexpr double kLossBound = 3e-6;
constexpr double kNormBound = 3e-5;

using Dims = std::vector<int64_t>;

// One batch: values for every input of the entry point.
struct Batch {
  std::vector<float> x;
  std::vector<int32_t> tokens, labels;
};

struct TrajectoryRecipe {
  std::string_view name;
  Result<Model> (*build)(uint64_t seed);
  bool takes_tokens;  // otherwise vectors
  TrainOptions (*options)();
};

constexpr int64_t kRows = 6, kFeatures = 10, kClasses = 7;
constexpr int64_t kVocabulary = 31, kChannels = 16, kHeads = 4, kLayers = 3, kBatch = 2, kSeq = 11;

// A small classifier with Linear, LayerNorm, Tanh, Relu, Slice, Concat and Sub.
Result<Model> classifier(uint64_t seed) {
  Model m;
  const auto declare = [&](std::string_view name, const Dims& shape, Init init) {
    return m.parameter(name, shape, init);
  };
  BOWLINE_TRY_ASSIGN(const Parameter w1, declare("w1", {24, kFeatures}, Init::normal(0.3f)));
  BOWLINE_TRY_ASSIGN(const Parameter b1, declare("b1", {24}, Init::zeros()));
  BOWLINE_TRY_ASSIGN(const Parameter gamma, declare("gamma", {24}, Init::ones()));
  BOWLINE_TRY_ASSIGN(const Parameter beta, declare("beta", {24}, Init::zeros()));
  BOWLINE_TRY_ASSIGN(const Parameter w2, declare("w2", {24, 24}, Init::normal(0.2f)));
  BOWLINE_TRY_ASSIGN(const Parameter w3, declare("w3", {kClasses, 24}, Init::normal(0.2f)));
  GraphBuilder g(m, "loss");
  const Value x = g.input("x", DType::f32, {"batch", kFeatures});
  const Value labels = g.input("labels", DType::i32, {"batch"});
  Value y = g.op("Linear", {x, g.parameter(w1), g.parameter(b1)});
  y = g.op("Tanh", {g.op("LayerNorm", {y, g.parameter(gamma), g.parameter(beta)})});
  const Value left = g.op("Slice", {y}, {{"axis", 1}, {"length", 9}});
  const Value right = g.op("Slice", {y}, {{"axis", 1}, {"start", 9}});
  Value z = g.op("Concat", {g.op("Relu", {right}), left}, {{"axis", 1}});
  z = g.op("MatMul", {z, g.parameter(w2)}, {{"transpose_b", 1}});
  z = g.op("Sub",
           {z, g.op("ReduceMean", {z}, {{"axes", std::vector<GraphDim>{-1}}, {"keep_dims", 1}})});
  const Value logits = g.op("Linear", {g.op("Silu", {z}), g.parameter(w3)});
  g.output("loss", g.op("CrossEntropy", {logits, labels}));
  BOWLINE_TRY(g.finish());
  BOWLINE_TRY(m.materialize(seed));
  return m;
}

// A decoder with gated layers, grouped attention, tied weights and dropout. Its layers are in a
// Repeat.
Result<Model> language_model(uint64_t seed) {
  Model m;
  const auto list = [&](std::string_view name, const Dims& shape, Init init) {
    return m.parameters(name, kLayers, shape, init);
  };
  const Init normal = Init::normal(0.15f);
  const Dims table = {kVocabulary, kChannels};
  BOWLINE_TRY_ASSIGN(const Parameter embedding, m.parameter("embedding", table, normal));
  BOWLINE_TRY_ASSIGN(const Parameter head, m.tied_parameter("head", embedding));
  BOWLINE_TRY_ASSIGN(const ParameterList norm1, list("{}.norm1", {kChannels}, Init::ones()));
  BOWLINE_TRY_ASSIGN(const ParameterList q, list("{}.q", {kChannels, kChannels}, normal));
  BOWLINE_TRY_ASSIGN(const ParameterList kv, list("{}.kv", {kChannels, kChannels}, normal));
  BOWLINE_TRY_ASSIGN(const ParameterList out, list("{}.out", {kChannels, kChannels}, normal));
  BOWLINE_TRY_ASSIGN(const ParameterList norm2, list("{}.norm2", {kChannels}, Init::ones()));
  BOWLINE_TRY_ASSIGN(const ParameterList gate, list("{}.gate", {40, kChannels}, normal));
  BOWLINE_TRY_ASSIGN(const ParameterList up, list("{}.up", {40, kChannels}, normal));
  BOWLINE_TRY_ASSIGN(const ParameterList down, list("{}.down", {kChannels, 40}, normal));
  GraphBuilder g(m, "loss");
  const Value tokens = g.input("tokens", DType::i32, {"batch", "seq"});
  const Value labels = g.input("labels", DType::i32, {"batch", "seq"});
  const Value start = g.op("Embedding", {g.parameter(embedding), tokens});
  const auto body = [&](GraphBuilder& b, const std::vector<Value>& carried) {
    const int64_t head_dim = kChannels / kHeads;
    const Value h = b.op("RmsNorm", {carried[0], b.parameter(norm1)});
    const Value qs = b.op("Reshape", {b.op("Linear", {h, b.parameter(q)})},
                          {{"dims", {"batch", "seq", kHeads, head_dim}}});
    // One projection computes keys and values.
    const Value both = b.op("Reshape", {b.op("Linear", {h, b.parameter(kv)})},
                            {{"dims", {"batch", "seq", kHeads, head_dim}}});
    const Value ks =
        b.op("Slice", {both}, {{"axis", 2}, {"length", static_cast<double>(kHeads / 2)}});
    const Value vs =
        b.op("Slice", {both}, {{"axis", 2}, {"start", static_cast<double>(kHeads / 2)}});
    const Value a =
        b.op("Attention", {b.op("Rope", {qs}), b.op("Rope", {ks}), vs}, {{"causal", 1}});
    const Value merged = b.op("Reshape", {a}, {{"dims", {"batch", "seq", kChannels}}});
    const Value mixed =
        b.op("Dropout", {b.op("Linear", {merged, b.parameter(out)})}, {{"rate", 0.1}});
    const Value x = b.op("Add", {carried[0], mixed});
    const Value n = b.op("RmsNorm", {x, b.parameter(norm2)});
    const Value gated = b.op("Mul", {b.op("Gelu", {b.op("Linear", {n, b.parameter(gate)})}),
                                     b.op("Linear", {n, b.parameter(up)})});
    return std::vector<Value>{b.op("Add", {x, b.op("Linear", {gated, b.parameter(down)})})};
  };
  const std::vector<Value> x = g.repeat(kLayers, {start}, body);
  BOWLINE_REQUIRE(x.size() == 1, "The layers have {} results.", x.size());
  g.output("loss", g.op("CrossEntropy", {g.op("Linear", {x[0], g.parameter(head)}), labels}));
  BOWLINE_TRY(g.finish());
  BOWLINE_TRY(m.materialize(seed));
  return m;
}

TrainOptions sgd() {
  TrainOptions o;
  o.dims = {{"batch", kRows}};
  o.optimizer = {"sgd", {{"momentum", 0.9f}, {"nesterov", 1}, {"weight_decay", 0.01f}}};
  o.schedule.learning_rate = 0.02f;
  return o;
}

TrainOptions adamw() {
  TrainOptions o;
  o.dims = {{"batch", kBatch}, {"seq", kSeq}};
  o.schedule = {Schedule::Kind::cosine, 3e-3f, 0.1f, 3, kTrajectorySteps};
  o.clip_norm = 1;
  o.accumulation = 2;
  o.seed = 11;
  return o;
}

constexpr TrajectoryRecipe kTrajectoryRecipes[] = {
    {"classifier, Sgd with Nesterov momentum", classifier, false, sgd},
    {"tied language model, AdamW, clipped, 2 micro-batches", language_model, true, adamw},
};

Batch batch_of(const TrajectoryRecipe& r, uint64_t seed, uint32_t number) {
  Batch out;
  const auto random = [&](uint32_t i) {
    return philox({i, number, 0, 0}, {static_cast<uint32_t>(seed), 0x7A11})[0];
  };
  if (r.takes_tokens) {
    for (uint32_t i = 0; i < kBatch * kSeq; ++i) {
      out.tokens.push_back(static_cast<int32_t>(random(i) % kVocabulary));
      out.labels.push_back(
          i % 9 == 8 ? -100
                     : static_cast<int32_t>((random(i) % kVocabulary * 5 + 1) % kVocabulary));
    }
    return out;
  }
  for (const double v : draw(Values::normal, kRows * kFeatures, seed, number)) {
    out.x.push_back(static_cast<float>(v));
  }
  for (uint32_t i = 0; i < kRows; ++i) {
    out.labels.push_back(out.x[i * kFeatures] > 0 ? static_cast<int32_t>(i % kClasses) : 0);
  }
  return out;
}

struct Curve {
  std::vector<double> losses, norms;
};

Result<Curve> train(const TrajectoryRecipe& r, std::shared_ptr<device::OpenDevice> open,
                    uint64_t seed) {
  const Device device = Internals::device(std::move(open));
  BOWLINE_TRY_ASSIGN(Model model, r.build(seed + 1));
  BOWLINE_TRY(model.to(device));
  const TrainOptions options = r.options();
  BOWLINE_TRY_ASSIGN(Trainer trainer, Trainer::create(model, device, options));
  const Dims matrix = {kBatch, kSeq}, rows = {kRows, kFeatures}, row = {kRows};
  Curve out;
  for (uint32_t micro = 0; out.losses.size() < kTrajectorySteps; ++micro) {
    Batch b = batch_of(r, seed, micro);
    const Tensor labels{"labels", DType::i32, r.takes_tokens ? matrix : row, b.labels.data()};
    const Tensor data[] = {r.takes_tokens ? Tensor{"tokens", DType::i32, matrix, b.tokens.data()}
                                          : Tensor{"x", DType::f32, rows, b.x.data()},
                           labels};
    BOWLINE_TRY_ASSIGN(const std::optional<StepReport> report, trainer.micro_step(data));
    if (report) {
      out.losses.push_back(static_cast<double>(report->loss));
      out.norms.push_back(static_cast<double>(report->grad_norm));
    }
  }
  return out;
}

std::string check(Run& run, const TrajectoryRecipe& r) {
  const Result<Curve> wanted = train(r, open_oracle_device(), run.options.seed);
  if (!wanted.ok()) {
    return wanted.status().message();
  }
  const Result<Curve> got = train(r, run.device, run.options.seed);
  if (!got.ok()) {
    return got.status().message();
  }
  for (size_t s = 0; s < kTrajectorySteps; ++s) {
    const double loss = wanted.value().losses[s], norm = wanted.value().norms[s];
    const double units =
        std::max(std::abs(got.value().losses[s] - loss) / (kLossBound * std::abs(loss)),
                 std::abs(got.value().norms[s] - norm) / (kNormBound * std::abs(norm)));
    run.note_error(units, std::string(r.name));
    if (!(units <= 1)) {
      return format("step {}: loss {} and norm {} instead of {} and {}", s + 1,
                    got.value().losses[s], got.value().norms[s], loss, norm);
    }
  }
  return wanted.value().losses.back() < wanted.value().losses.front() ? ""
                                                                      : "the loss does not fall";
}

}  // namespace

Status run_trajectories(Run& run) {
  for (const TrajectoryRecipe& r : kTrajectoryRecipes) {
    if (selects(run.options, r.name)) {
      run.one(r.name, std::string(r.name), [&] { return check(run, r); });
    }
  }
  return {};
}

}  // namespace bowline::conformance
