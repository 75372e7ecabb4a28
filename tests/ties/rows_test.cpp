// Two parameters show overlapping rows of one storage. Tests runs and training: each row gets the
// gradients of the uses that show it.
#include "ties/adam_reference.h"
#include "ties/seed_models.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

using Rows = OnDevice;
BOWLINE_ON_ALL_DEVICES(Rows);

constexpr size_t kWidth = 3;  // a row has 12 bytes, so the second row is not aligned
const Floats kBegin = {1, 2, 3, 4, 5, 6, 7, 8, 9};

// top = rows 0 and 1, bottom = rows 1 and 2 of W; y = top x, z = bottom x, L = p . y + q . z.
Model overlapping(bool by_verb) {
  Model m;
  const Dims whole = {3, kWidth}, part = {2, kWidth};
  const Parameter w = must(m.parameter("whole", whole, Init::zeros()));
  const View first{0, 2, {}, false}, last{1, 2, {}, false};
  const auto show = [&](std::string_view name, const View& view) {
    return by_verb ? must(m.parameter(name, part, Init::zeros()))
                   : must(m.tied_parameter(name, w, view));
  };
  const Parameter top = show("top", first);
  const Parameter bottom = show("bottom", last);
  GraphBuilder g(m, "loss");
  const Value x = g.input("x", DType::f32, {1, static_cast<int64_t>(kWidth)});
  const Value y = g.op("Linear", {x, g.parameter(top)});
  const Value z = g.op("Linear", {x, g.parameter(bottom)});
  const Value py = g.op("Mul", {y, g.input("p", DType::f32, {1})});
  const Value qz = g.op("Mul", {z, g.input("q", DType::f32, {1})});
  g.output("loss", g.op("ReduceSum", {g.op("Add", {py, qz})}));
  g.output("y", y);
  g.output("z", z);
  EXPECT_OK(g.finish());
  EXPECT_OK(m.materialize(1));
  if (by_verb) {
    EXPECT_OK(m.tie("whole", "top", first));
    EXPECT_OK(m.tie("whole", "bottom", last));
  }
  EXPECT_OK(set(m, "whole", whole, kBegin));
  return m;
}

struct RowBatch {
  Floats x, p, q;
  Dims row = {1, static_cast<int64_t>(kWidth)}, one = {1};

  std::vector<Tensor> tensors() {
    return {tensor("x", row, x), tensor("p", one, p), tensor("q", one, q)};
  }
  // Indexed by element of W. Only `top` shows row 0, and only `bottom` shows row 2.
  std::vector<double> gradient() const {
    std::vector<double> out;
    for (const float share : {p[0], p[0] + q[0], q[0]}) {
      for (const float v : x) {
        out.push_back(static_cast<double>(share * v));
      }
    }
    return out;
  }
};

TEST_P(Rows, RunInASession) {
  for (const bool by_verb : {false, true}) {
    Model m = overlapping(by_verb);
    ASSERT_OK(m.to(device_));
    Session session = must(Session::create(m, device_, "loss", {}));
    RowBatch b{{1, 2, -1}, {1}, {2}};
    Floats y(2), z(2);
    const Dims two = {1, 2};
    const Tensor out[] = {tensor("y", two, y), tensor("z", two, z)};
    ASSERT_OK(session.run(b.tensors(), out));
    EXPECT_EQ(y, Floats({2, 8}));
    EXPECT_EQ(z, Floats({8, 14}));
    // Other views read what one view writes.
    ASSERT_OK(set(m, "top", {2, kWidth}, {0, 0, 0, 1, 1, 1}));
    ASSERT_OK(session.run(b.tensors(), out));
    EXPECT_EQ(y, Floats({0, 2}));
    EXPECT_EQ(z, Floats({2, 14}));
  }
}

TEST_P(Rows, TrainWithSgd) {
  for (const bool by_verb : {false, true}) {
    Model m = overlapping(by_verb);
    ASSERT_OK(m.to(device_));
    Trainer t = must(Trainer::create(m, device_, plain_sgd(0.125f)));
    RowBatch b{{1, 2, -1}, {1}, {2}};
    const std::vector<Tensor> batch = b.tensors();
    const std::span<const Tensor> batches[] = {batch};
    const StepReport r = must(t.step(batches));
    EXPECT_EQ(r.loss, 2 + 8 + 2 * (8 + 14));
    // x times 1, 3 and 2: the square root of 6 (1 + 9 + 4).
    expect_number(r.grad_norm, 9.16515139,
                  {{7.74596669, "a row of two uses takes one of them"}, {5.47722558, "untied"}});
    EXPECT_EQ(values(m, "whole"), Floats({0.875, 1.75, 3.125,  //
                                          3.625, 4.25, 6.375,  //
                                          6.75, 7.5, 9.25}));
    EXPECT_EQ(values(m, "top"), Floats({0.875, 1.75, 3.125, 3.625, 4.25, 6.375}));
    EXPECT_EQ(values(m, "bottom"), Floats({3.625, 4.25, 6.375, 6.75, 7.5, 9.25}));
  }
}

// The shares of the two uses change in every step. With constant shares Adam would not distinguish
// them.
TEST_P(Rows, TrainWithAdam) {
  Model m = overlapping(false);
  ASSERT_OK(m.to(device_));
  TrainOptions o;
  o.optimizer.settings["weight_decay"] = 0;
  o.schedule.learning_rate = 0.125f;
  o.accumulation = 2;
  Trainer t = must(Trainer::create(m, device_, o));
  AdamReference right{{kBegin.begin(), kBegin.end()}, 0.125};
  RowBatch steps[] = {{{1, 2, -1}, {1}, {2}}, {{1, -1, 3}, {2}, {-1}}, {{2, 1, 1}, {-1}, {0.5f}}};
  for (int s = 0; s < 3; ++s) {
    std::vector<double> gradient(9);
    for (const int micro : {s, (s + 1) % 3}) {
      ASSERT_OK(t.micro_step(steps[micro].tensors()).status());
      const std::vector<double> part = steps[micro].gradient();
      for (size_t i = 0; i < gradient.size(); ++i) {
        gradient[i] += 0.5 * part[i];
      }
    }
    right.step(gradient);
    const Floats w = values(m, "whole");
    for (size_t i = 0; i < w.size(); ++i) {
      expect_number(w[i], right.w[i], {}, 3 * 10 * 0x1p-24);
    }
  }
}

}  // namespace
}  // namespace bowline::test
