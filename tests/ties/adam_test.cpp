// Expected values of the seed models with Adam. Adam ignores the scale of a gradient, so that one
// step gives the same weights with and without a tie. Therefore these models have uses of opposite
// signs, or take several steps in which the share of each use changes.
#include "ties/adam_reference.h"
#include "ties/seed_models.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

using AdamNumbers = OnDevice;
BOWLINE_ON_ALL_DEVICES(AdamNumbers);

// Rounding errors of five f32 updates in m, v and w. Each error is at most 10 * 2^-24 relative to
// the value (AdamW in runtime/ops).
constexpr double kTolerance = 5 * 10 * 0x1p-24;

TrainOptions adam(float learning_rate = 0.1f) {
  TrainOptions o;
  o.optimizer.settings["weight_decay"] = 0;
  o.schedule.learning_rate = learning_rate;
  return o;
}

// y = a * x + b * z, a tied to b, init 1, L = y. x and z change in every step.
Model opposite_uses() {
  Model m;
  const Dims one = {1};
  const Parameter a = must(m.parameter("a", one, Init::ones()));
  const Parameter b = must(m.tied_parameter("b", a));
  GraphBuilder g(m, "loss");
  const Value ax = g.op("Mul", {g.parameter(a), g.input("x", DType::f32, {1})});
  const Value bz = g.op("Mul", {g.parameter(b), g.input("z", DType::f32, {1})});
  g.output("loss", g.op("ReduceSum", {g.op("Add", {ax, bz})}));
  EXPECT_OK(g.finish());
  EXPECT_OK(m.materialize(1));
  return m;
}

TEST_P(AdamNumbers, OppositeUses) {
  Model m = opposite_uses();
  ASSERT_OK(m.to(device_));
  Trainer t = must(Trainer::create(m, device_, adam()));
  AdamReference tied{{1}}, first{{1}}, last{{1}};
  for (const auto& [x, z] : {std::pair{3.0f, -1.0f}, {1.0f, -3.0f}, {2.0f, -1.0f}}) {
    Floats xs = {x}, zs = {z};
    const Dims one = {1};
    const Tensor batch[] = {tensor("x", one, xs), tensor("z", one, zs)};
    const std::span<const Tensor> batches[] = {batch};
    const auto dx = static_cast<double>(x), dz = static_cast<double>(z);
    const double before = tied.w[0];
    tied.step({dx + dz});
    first.step({dx});
    last.step({dz});
    const StepReport r = must(t.step(batches));
    expect_number(r.loss, before * (dx + dz), {}, kTolerance);
    expect_number(r.grad_norm, std::abs(dx + dz),
                  {{std::hypot(dx, dz), "untied"}, {std::sqrt(2) * (dx + dz), "counted twice"}});
    expect_number(values(m, "b")[0], tied.w[0],
                  {{first.w[0], "only the first use counts"},
                   {last.w[0], "untied, or only the last use counts"},
                   {2 * tied.w[0] - before, "updated twice"}},
                  kTolerance);
    EXPECT_EQ(values(m, "a"), values(m, "b"));
  }
  EXPECT_NE(tied.w[0], first.w[0]);
  EXPECT_NE(tied.w[0], last.w[0]);
}

TEST_P(AdamNumbers, Scalar2NormReachesTheMoments) {
  Seed s = scalar2(3);
  ASSERT_OK(s.model.to(device_));
  TrainOptions o = adam();
  o.clip_norm = 1;
  Trainer t = must(Trainer::create(s.model, device_, o));
  expect_number(step(t, s).grad_norm, 6, {{8.4853, "counted twice"}, {4.2426, "untied"}});
  const ModelInfo info = must(s.model.describe());
  const auto moment = [&](uint32_t slot) {
    const auto row = std::ranges::find_if(info.storages, [&](const StorageInfo& r) {
      return r.role == StorageRole::moment && r.owner == 0 && r.slot == slot;
    });
    EXPECT_NE(row, info.storages.end());
    const auto bytes = must(s.model.storage_bytes(row->tie));
    float value = 0;
    std::memcpy(&value, bytes.data(), sizeof(value));
    return value;
  };
  expect_number(moment(0), 1 - kBeta1,
                {{6 * (1 - kBeta1), "not clipped"},
                 {std::sqrt(0.5) * (1 - kBeta1), "the norm counts the tie twice"}});
  expect_number(
      moment(1), 1 - kBeta2,
      {{36 * (1 - kBeta2), "not clipped"}, {0.5 * (1 - kBeta2), "the norm counts the tie twice"}},
      1e-9);
}

// Gradients of LM32: L = E[2] . S. S is the sum of all rows.
struct Lm32Gradients {
  std::vector<double> embedding = std::vector<double>(6), head = std::vector<double>(6);

  explicit Lm32Gradients(const std::vector<double>& embed, const std::vector<double>& top) {
    for (size_t c = 0; c < 2; ++c) {
      embedding[4 + c] = top[c] + top[2 + c] + top[4 + c];
      for (size_t row = 0; row < 3; ++row) {
        head[2 * row + c] = embed[4 + c];
      }
    }
  }
  std::vector<double> both() const {
    std::vector<double> out = embedding;
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] += head[i];
    }
    return out;
  }
};

double lm32_loss(const std::vector<double>& embed, const std::vector<double>& head) {
  double sum = 0;
  for (size_t i = 0; i < 6; ++i) {
    sum += embed[4 + i % 2] * head[i];
  }
  return sum;
}

TEST_P(AdamNumbers, Lm32Run) {
  Seed s = lm32();
  ASSERT_OK(s.model.to(device_));
  Trainer t = must(Trainer::create(s.model, device_, adam()));
  const std::vector<double> begin = {1, 0, 0, 1, 1, 1};
  AdamReference tied{begin}, embedding{begin}, head{begin}, twice{begin};
  for (int i = 0; i < 5; ++i) {
    tied.step(Lm32Gradients(tied.w, tied.w).both());
    const Lm32Gradients apart(embedding.w, head.w);
    embedding.step(apart.embedding);
    head.step(apart.head);
    const std::vector<double> same = Lm32Gradients(twice.w, twice.w).both();
    twice.step(same);
    twice.step(same);
    step(t, s);
    expect_number(loss(t, s), lm32_loss(tied.w, tied.w),
                  {{lm32_loss(embedding.w, head.w), "untied"},
                   {lm32_loss(twice.w, twice.w), "updated twice"}},
                  kTolerance);
    EXPECT_EQ(values(s.model, "embed"), values(s.model, "head"));
  }
  const Floats got = values(s.model, "embed");
  for (size_t i = 0; i < got.size(); ++i) {
    expect_number(got[i], tied.w[i], {{head.w[i], "the head alone"}, {embedding.w[i], "untied"}},
                  kTolerance);
  }
}

// AE23: y = W x, L = u . y with u = W 1. The gradient is y 1^T from the decoder plus u x^T from the
// encoder.
TEST_P(AdamNumbers, Ae23Run) {
  Seed s = ae23();
  s.x = {1, 0, -2};
  ASSERT_OK(s.model.to(device_));
  Trainer t = must(Trainer::create(s.model, device_, adam()));
  const double x[] = {1, 0, -2};
  AdamReference tied{{1, 2, 3, 4, 5, 6}}, encoder = tied, decoder = tied;
  const auto gradient = [&](const std::vector<double>& enc, const std::vector<double>& dec,
                            bool of_encoder, bool of_decoder) {
    std::vector<double> out(6);
    for (size_t row = 0; row < 2; ++row) {
      double y = 0, u = 0;
      for (size_t c = 0; c < 3; ++c) {
        y += enc[3 * row + c] * x[c];
        u += dec[3 * row + c];
      }
      for (size_t c = 0; c < 3; ++c) {
        out[3 * row + c] = (of_decoder ? y : 0) + (of_encoder ? u * x[c] : 0);
      }
    }
    return out;
  };
  for (int i = 0; i < 5; ++i) {
    tied.step(gradient(tied.w, tied.w, true, true));
    const auto enc = gradient(encoder.w, decoder.w, true, false);
    const auto dec = gradient(encoder.w, decoder.w, false, true);
    encoder.step(enc);
    decoder.step(dec);
    step(t, s);
    const Floats w = values(s.model, "encoder");
    for (size_t k = 0; k < w.size(); ++k) {
      expect_number(
          w[k], tied.w[k],
          {{encoder.w[k], "untied, or the decoder is lost"}, {decoder.w[k], "the encoder is lost"}},
          kTolerance);
    }
  }
}

// UT12: L = w^12. The 12 uses have equal shares, so that the weights do not show a lost use. The
// norm shows it.
TEST_P(AdamNumbers, Ut12) {
  Seed s = universal(12);
  ASSERT_OK(s.model.to(device_));
  Trainer t = must(Trainer::create(s.model, device_, adam(0.01f)));
  AdamReference tied{{static_cast<double>(1.1f)}, static_cast<double>(0.01f)};
  for (int i = 0; i < 5; ++i) {
    const double w = tied.w[0];
    tied.step({12 * std::pow(w, 11)});
    const StepReport r = step(t, s);
    // The norm is 12 w^11. A relative error of w therefore counts 11 times.
    expect_number(r.grad_norm, 12 * std::pow(w, 11),
                  {{std::pow(w, 11), "only the last use counts"},
                   {std::sqrt(12) * std::pow(w, 11), "counted as 12"}},
                  12 * kTolerance);
    expect_number(values(s.model, "layer.11.w")[0], tied.w[0],
                  {{12 * tied.w[0] - 11 * w, "stepped 12 times"}}, kTolerance);
  }
}

}  // namespace
}  // namespace bowline::test
