// The loss of a step is the mean over all terms of its micro-batches, for every split: ignored
// labels, class weights, masks, smoothed and multiple labels, and micro-batches without terms. The
// tests compare with a formula in double precision.
#include <cmath>
#include <filesystem>
#include <random>

#include "faults/faulty_device.h"
#include "faults/host_device.h"
#include "ties/seed_models.h"
#include "ties/test_devices.h"

namespace bowline::test::micro_batches {
namespace {

constexpr int kRows = 4, kFewRows = 3, kFeatures = 3,
              kClasses = 5;  // rows of a micro-batch, features, classes
constexpr int32_t kIgnored = -100;
constexpr float kRate = 0.5f;
constexpr double kSmoothing = 0.1;

// `penalty`: adds the mean of the squared weights to the loss of the labels. Only the loss of the
// labels decides the weight of a micro-batch. `in_a_repeat`: the first of two iterations adds the
// penalty, and the second passes the sum on. `two_labels`: subtracts a loss of other labels, for
// which other rows count. `stacked`: the mean of these two losses as a stack. `activations`: adds
// the mean of the squared logits of all rows. `of_a_repeat`: the same through the output of a
// Repeat.
enum class Kind {
  ignored,
  smoothed,
  class_weights,
  ignore_index_of_any_size,
  mask,
  multi_label,
  penalty,
  in_a_repeat,
  two_labels,
  stacked,
  activations,
  of_a_repeat
};
constexpr Kind kKinds[] = {
    Kind::ignored,    Kind::smoothed,    Kind::class_weights, Kind::ignore_index_of_any_size,
    Kind::mask,       Kind::multi_label, Kind::penalty,       Kind::in_a_repeat,
    Kind::two_labels, Kind::stacked,     Kind::activations,   Kind::of_a_repeat};

const std::vector<float> kClassWeights = {1, 9, 0.25f, 3, 0};

// The factors of the means: of the labels, of the other labels, and of the squared logits.
struct Factors {
  double own = 1;
  double other = 0;
  double squares = 0;
};
Factors factors_of(Kind kind) {
  switch (kind) {
    case Kind::two_labels:
      return {.own = 1, .other = -1};
    case Kind::stacked:
      return {.own = 0.5, .other = 0.5};
    case Kind::activations:
      return {.own = 1, .squares = 1};
    case Kind::of_a_repeat:
      return {.own = 1, .squares = 3};
    default:
      return {};
  }
}
int32_t ignored_label(Kind kind) {
  // A value that f32 cannot represent.
  return kind == Kind::ignore_index_of_any_size ? -123456789 : kIgnored;
}

// softmax(x W) against labels.
struct Classifier {
  Model model;
  explicit Classifier(Kind kind) {
    const Parameter w = must(model.parameter("w", {kClasses, kFeatures}, Init::zeros()));
    GraphBuilder g(model, "loss");
    const Value x = g.input("x", DType::f32, {"batch", kFeatures});
    const Value logits = g.op("Linear", {x, g.parameter(w)});
    if (kind == Kind::multi_label) {
      const Value targets = g.input("targets", DType::f32, {"batch", kClasses});
      g.output("loss", g.op("BinaryCrossEntropy", {logits, targets}));
    } else {
      const Value labels = g.input("labels", DType::i32, {"batch"});
      g.output("loss", loss(g, kind, logits, labels, g.parameter(w)));
    }
    must(g.finish());
    std::vector<float> start(kClasses * kFeatures);
    for (size_t i = 0; i < start.size(); ++i) {
      start[i] = 0.3f * std::sin(static_cast<float>(i));
    }
    must(model.materialize(1));
    must(set(model, "w", {kClasses, kFeatures}, start));
    if (kind == Kind::class_weights) {
      must(set(model, "class weights", {kClasses}, kClassWeights));
    }
  }

 private:
  Value loss(GraphBuilder& g, Kind kind, Value logits, Value labels, Value w) {
    switch (kind) {
      case Kind::class_weights: {
        const Parameter of_class = must(model.parameter("class weights", {kClasses}, Init::ones()));
        must(model.freeze("class weights"));
        // The mean passes a factor and a shape of one element. The weights still belong to this
        // mean.
        const Value mean = g.op("NegativeLogLikelihood",
                                {g.op("LogSoftmax", {logits}), labels, g.parameter(of_class)});
        return g.op("Neg", {g.op("Neg", {mean})});
      }
      case Kind::mask: {
        const Value mask = g.input("mask", DType::f32, {"batch"});
        const Value terms = g.op("CrossEntropy", {logits, labels}, {{"reduction", "none"}});
        return g.op("Div", {g.op("ReduceSum", {g.op("Mul", {terms, mask})}),
                            g.op("Clip", {g.op("ReduceSum", {mask})}, {{"min", 1e-12}})});
      }
      case Kind::smoothed:
        return g.op("CrossEntropy", {logits, labels}, {{"label_smoothing", kSmoothing}});
      case Kind::penalty:
        return g.op("Add", {g.op("ReduceMean", {g.op("Mul", {w, w})}),
                            g.op("CrossEntropy", {logits, labels}, {{"ignore_index", kIgnored}})});
      case Kind::two_labels: {
        const Value others = g.input("others", DType::i32, {"batch"});
        const Value other = g.op("CrossEntropy", {logits, others}, {{"ignore_index", kIgnored}});
        const Value own = g.op("CrossEntropy", {logits, labels}, {{"ignore_index", kIgnored}});
        return g.op("Add", {g.op("Neg", {other}), own});
      }
      case Kind::stacked: {
        const Value others = g.input("others", DType::i32, {"batch"});
        std::vector<Value> means;
        for (const Value of : {labels, others}) {
          const Value loss = g.op("CrossEntropy", {logits, of}, {{"ignore_index", kIgnored}});
          means.push_back(g.op("Reshape", {loss}, {{"dims", {1}}}));
        }
        return g.op("ReduceMean", {g.op("Concat", means)});
      }
      case Kind::activations:
      case Kind::of_a_repeat: {
        Value penalty = g.op("ReduceMean", {g.op("Mul", {logits, logits})});
        if (kind == Kind::of_a_repeat) {
          penalty = g.repeat(2, {penalty}, [&](GraphBuilder& b, const std::vector<Value>& carried) {
            const Value z = b.capture(logits);
            const Value squares = b.op("ReduceMean", {b.op("Mul", {z, z})});
            return std::vector{b.op("Add", {carried[0], squares})};
          })[0];
        }
        return g.op(
            "Add", {penalty, g.op("CrossEntropy", {logits, labels}, {{"ignore_index", kIgnored}})});
      }
      case Kind::in_a_repeat: {
        const Value penalty = g.op("ReduceMean", {g.op("Mul", {w, w})});
        return g.repeat(
            2, {penalty, penalty}, [&](GraphBuilder& b, const std::vector<Value>& carried) {
              const Value mean = b.op("CrossEntropy", {b.capture(logits), b.capture(labels)},
                                      {{"ignore_index", kIgnored}});
              return std::vector{carried[1], b.op("Add", {carried[0], mean})};
            })[0];
      }
      default:
        return g.op("CrossEntropy", {logits, labels}, {{"ignore_index", ignored_label(kind)}});
    }
  }
};

struct MicroBatch {
  int64_t rows = kRows;
  std::vector<float> x;
  std::vector<int32_t> labels;
  std::vector<int32_t> others;
  std::vector<float> mask;
  std::vector<float> targets;

  Dims features, row, classes;  // shapes

  std::vector<Tensor> tensors(Kind kind) {
    features = {rows, kFeatures};
    row = {rows};
    classes = {rows, kClasses};
    std::vector<Tensor> out = {tensor("x", features, x)};
    if (kind == Kind::multi_label) {
      out.push_back(tensor("targets", classes, targets));
    } else {
      out.push_back(tensor("labels", row, labels));
    }
    if (kind == Kind::mask) {
      out.push_back(tensor("mask", row, mask));
    }
    if (factors_of(kind).other != 0) {
      out.push_back(tensor("others", row, others));
    }
    return out;
  }
};

// The first `counted` rows have terms. For the other labels all rows except the first have terms,
// and also the first if `counted` is even.
MicroBatch random_batch(std::mt19937& random, Kind kind, int counted, int rows = kRows) {
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int32_t> label(0, kClasses - 1);
  std::uniform_real_distribution<float> part(0.25f, 1);
  MicroBatch b;
  b.rows = rows;
  for (int r = 0; r < rows; ++r) {
    const bool counts = r < counted;
    for (int f = 0; f < kFeatures; ++f) {
      b.x.push_back(normal(random));
    }
    const int32_t y = label(random);
    b.labels.push_back(counts || kind == Kind::mask ? y : ignored_label(kind));
    b.mask.push_back(counts ? part(random) : 0);
    b.others.push_back(r > 0 || counted % 2 == 0 ? label(random) : kIgnored);
    for (int c = 0; c < kClasses; ++c) {
      b.targets.push_back(label(random) % 2 == 0 ? 1.0f : 0.0f);
    }
  }
  return b;
}

struct Expected {
  double loss = 0;
  std::vector<double> w;
};

// A mean over the terms of all micro-batches.
struct Mean {
  double weights = 0;
  double terms = 0;
  std::vector<double> gradient = std::vector<double>(kClasses * kFeatures);

  void add(double weight, double term, std::span<const double> slope, const float* x) {
    weights += weight;
    terms += weight * term;
    for (size_t c = 0; c < kClasses; ++c) {
      for (size_t f = 0; f < kFeatures; ++f) {
        gradient[c * kFeatures + f] += weight * slope[c] * static_cast<double>(x[f]);
      }
    }
  }
  // Adds `factor` times the mean.
  void add_to(double& loss, std::vector<double>& gradient_of_loss, double factor) const {
    if (weights == 0) {
      return;
    }
    loss += factor * terms / weights;
    for (size_t i = 0; i < gradient.size(); ++i) {
      gradient_of_loss[i] += factor * gradient[i] / weights;
    }
  }
};

// The term of one row.
struct CrossEntropyTerm {
  double loss = 0;
  double slope[kClasses] = {};

  CrossEntropyTerm(std::span<const double> z, size_t label, double smoothing) {
    double exponentials = 0;
    for (const double v : z) {
      exponentials += std::exp(v);
    }
    loss = std::log(exponentials);
    for (size_t c = 0; c < kClasses; ++c) {
      const double hit = (c == label ? 1 - smoothing : 0) + smoothing / kClasses;
      loss -= hit * z[c];
      slope[c] = std::exp(z[c]) / exponentials - hit;
    }
  }
};

// One step of gradient descent on the sum of the means. Each mean is over all of its terms.
Expected reference(Kind kind, std::span<const MicroBatch> batches, std::span<const float> w) {
  Mean mean;
  Mean other;
  Mean squares;
  for (const MicroBatch& b : batches) {
    for (size_t row = 0; row < b.labels.size(); ++row) {
      const float* const x = &b.x[row * kFeatures];
      double z[kClasses] = {};
      double twice[kClasses] = {};
      double square = 0;
      for (size_t c = 0; c < kClasses; ++c) {
        for (size_t f = 0; f < kFeatures; ++f) {
          z[c] += static_cast<double>(w[c * kFeatures + f]) * static_cast<double>(x[f]);
        }
        square += z[c] * z[c] / kClasses;
        twice[c] = 2 * z[c] / kClasses;
      }
      squares.add(1, square, twice, x);
      if (b.others[row] != kIgnored) {
        const CrossEntropyTerm t(z, static_cast<size_t>(b.others[row]), 0);
        other.add(1, t.loss, t.slope, x);
      }
      if (kind == Kind::multi_label) {
        double term = 0;
        double slope[kClasses] = {};
        for (size_t c = 0; c < kClasses; ++c) {
          const auto t = static_cast<double>(b.targets[row * kClasses + c]);
          const double s = 1 / (1 + std::exp(-z[c]));
          term -= (t * std::log(s) + (1 - t) * std::log(1 - s)) / kClasses;
          slope[c] = (s - t) / kClasses;
        }
        mean.add(kClasses, term, slope, x);
      } else if (b.labels[row] != ignored_label(kind)) {
        const auto y = static_cast<size_t>(b.labels[row]);
        const CrossEntropyTerm t(z, y, kind == Kind::smoothed ? kSmoothing : 0);
        const double weight = kind == Kind::class_weights ? static_cast<double>(kClassWeights[y])
                              : kind == Kind::mask        ? static_cast<double>(b.mask[row])
                                                          : 1;
        mean.add(weight, t.loss, t.slope, x);
      }
    }
  }
  Expected out;
  std::vector<double> gradient(w.size());
  const Factors factors = factors_of(kind);
  mean.add_to(out.loss, gradient, factors.own);
  other.add_to(out.loss, gradient, factors.other);
  squares.add_to(out.loss, gradient, factors.squares);
  const bool penalized = kind == Kind::penalty || kind == Kind::in_a_repeat;
  for (size_t i = 0; penalized && mean.weights != 0 && i < w.size(); ++i) {
    const auto value = static_cast<double>(w[i]);
    out.loss += value * value / static_cast<double>(w.size());
    gradient[i] += 2 * value / static_cast<double>(w.size());
  }
  for (size_t i = 0; i < w.size(); ++i) {
    out.w.push_back(static_cast<double>(w[i]) - static_cast<double>(kRate) * gradient[i]);
  }
  return out;
}

class MicroBatches : public OnDevice {
 protected:
  static TrainOptions options(size_t micro_batches) {
    TrainOptions o;
    o.dims = {{"batch", kRows}};
    o.optimizer = {"sgd"};
    o.schedule = {.kind = Schedule::Kind::constant, .learning_rate = kRate};
    o.accumulation = static_cast<uint32_t>(micro_batches);
    return o;
  }

  struct Stepped {
    Expected expected;
    StepReport report;
  };
  // Takes a step on random micro-batches. `counted` is the number of rows with terms for each. If
  // `o` has more_dims, every second micro-batch has few rows.
  Stepped step(std::mt19937& random, Kind kind, Classifier& c, const TrainOptions& o,
               const std::vector<int>& counted) {
    Trainer t = must(Trainer::create(c.model, device_, o));
    std::vector<MicroBatch> batches;
    std::vector<std::vector<Tensor>> tensors;
    for (size_t i = 0; i < counted.size(); ++i) {
      const bool few = !o.more_dims.empty() && i % 2 == 1;
      batches.push_back(random_batch(random, kind, counted[i], few ? kFewRows : kRows));
    }
    for (MicroBatch& b : batches) {
      tensors.push_back(b.tensors(kind));
    }
    const std::vector<std::span<const Tensor>> spans(tensors.begin(), tensors.end());
    Expected expected = reference(kind, batches, values(c.model, "w"));
    return {std::move(expected), must(t.step(spans))};
  }

  static void expect_step(const StepReport& report, const Model& after, const Expected& expected) {
    EXPECT_NEAR(static_cast<double>(report.loss), expected.loss,
                1e-5 * (1 + std::abs(expected.loss)));
    const std::vector<float> w = values(after, "w");
    for (size_t i = 0; i < w.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(w[i]), expected.w[i], 2e-6) << i;
    }
  }
};
BOWLINE_ON_ALL_DEVICES(MicroBatches);

TEST_P(MicroBatches, AnySplitIsTheMeanOverAllTerms) {
  for (const Kind kind : kKinds) {
    std::mt19937 random(7);
    Classifier c(kind);
    ASSERT_OK(c.model.to(device_));
    for (const std::vector<int>& counted :
         {std::vector{1, 4}, {4, 0, 2}, {0, 0, 3, 1}, {0, 0}, {4, 4}, {2}}) {
      SCOPED_TRACE(format("kind {}, {} micro-batches", static_cast<int>(kind), counted.size()));
      const Stepped s = step(random, kind, c, options(counted.size()), counted);
      expect_step(s.report, c.model, s.expected);
    }
  }
}

// The n-th call of the device fails inside a step that first computes the weights of its
// micro-batches. The repeated call gives the bits of a step without failure.
TEST(MicroBatchesThatFail, AStepThatIsCalledAgainGivesTheSameBits) {
  std::vector<float> right;
  int refused = 0;
  for (int n = 0, fired = 1; fired != 0; ++n) {
    SCOPED_TRACE(n);
    const auto fault = std::make_shared<Fault>();
    const Device device = wrap("faulty", std::make_unique<FaultyDevice>(open_cpu(), fault));
    std::mt19937 random(14);
    Classifier c(Kind::two_labels);
    ASSERT_OK(c.model.to(device));
    TrainOptions o;
    o.dims = {{"batch", kRows}};
    o.accumulation = 2;
    Trainer t = must(Trainer::create(c.model, device, o));
    MicroBatch batches[] = {random_batch(random, Kind::two_labels, 1),
                            random_batch(random, Kind::two_labels, 4)};
    const std::vector<Tensor> first = batches[0].tensors(Kind::two_labels);
    const std::vector<Tensor> second = batches[1].tensors(Kind::two_labels);
    const std::span<const Tensor> spans[] = {first, second};
    if (n > 0) {
      fault->arm(n, Code::internal);
    }
    Status s = t.step(spans).status();
    fired = n == 0 || fault->fired() ? 1 : 0;
    fault->disarm();
    if (t.state() == TrainState::damaged) {
      ++refused;  // no snapshot exists to restore
      continue;
    }
    if (t.state() == TrainState::gradients_lost) {
      ASSERT_OK(t.restart_step());
    }
    if (!s.ok()) {
      ASSERT_OK(t.step(spans).status());
    }
    EXPECT_EQ(t.steps(), 1u);
    const std::vector<float> w = values(c.model, "w");
    right = n == 0 ? w : right;
    EXPECT_EQ(w, right);
  }
  EXPECT_LT(refused, 3);
}

// A mean over all elements depends only on the shape. Here the micro-batches have different shapes.
TEST_P(MicroBatches, OfOtherShapesCountTheirElements) {
  for (const Kind kind : kKinds) {
    SCOPED_TRACE(format("kind {}", static_cast<int>(kind)));
    std::mt19937 random(13);
    Classifier c(kind);
    ASSERT_OK(c.model.to(device_));
    TrainOptions o = options(3);
    o.more_dims = {{{"batch", kFewRows}}};
    const Stepped s = step(random, kind, c, o, {4, 3, 1});
    expect_step(s.report, c.model, s.expected);
  }
}

// With 16 bits the sums that divide a loss stay f32. Without the weights the losses would be wrong
// by a tenth or more.
TEST_P(MicroBatches, SixteenBitsChangeNoWeight) {
  for (const Kind kind :
       {Kind::mask, Kind::class_weights, Kind::ignored, Kind::stacked, Kind::of_a_repeat}) {
    std::mt19937 random(11);
    Classifier c(kind);
    ASSERT_OK(c.model.to(device_));
    TrainOptions o = options(3);
    o.precision.compute_dtype = DType::bf16;
    const Stepped s = step(random, kind, c, o, {1, 4, 0});
    EXPECT_NEAR(static_cast<double>(s.report.loss), s.expected.loss,
                0.02 * std::abs(s.expected.loss))
        << static_cast<int>(kind);
  }
}

// Means with sums of their own need the whole step before the first micro-batch runs.
TEST_P(MicroBatches, MeansOfOtherLabelsAreWeighedFirst) {
  std::mt19937 random(12);
  Classifier c(Kind::two_labels);
  ASSERT_OK(c.model.to(device_));
  Trainer t = must(Trainer::create(c.model, device_, options(2)));
  EXPECT_TRUE(t.needs_loss_weights());
  // The plan of the weights counts.
  EXPECT_EQ(t.counters().recordings, 4u);
  EXPECT_EQ(t.memory().predicted_bytes, device_.counters().live_bytes);
  std::vector<MicroBatch> batches = {random_batch(random, Kind::two_labels, 1),
                                     random_batch(random, Kind::two_labels, 4)};
  const std::vector<Tensor> first = batches[0].tensors(Kind::two_labels);
  const std::vector<Tensor> second = batches[1].tensors(Kind::two_labels);
  const Expected expected = reference(Kind::two_labels, batches, values(c.model, "w"));
  const Status unweighed = t.micro_step(first).status();
  EXPECT_EQ(unweighed.code(), Code::bad_argument);
  EXPECT_NE(unweighed.message().find("step()"), std::string::npos) << unweighed.message();
  // The first call belongs to no step, because the step was abandoned.
  for (const auto* batch : {&second, &first, &first, &second}) {
    ASSERT_OK(t.add_loss_weights(*batch));
  }
  EXPECT_EQ(t.micro_step(second).status().code(), Code::bad_argument);
  EXPECT_FALSE(must(t.micro_step(first)).has_value());
  expect_step(*must(t.micro_step(second)), c.model, expected);
  // The weights hold for one step only.
  EXPECT_EQ(t.micro_step(first).status().code(), Code::bad_argument);
}

// A penalty has the same value in each micro-batch, unless Dropout changes the value.
TEST_P(MicroBatches, APenaltyNeedsNoWeightOfItsOwn) {
  for (const bool is_random : {false, true}) {
    Model model;
    const Parameter w = must(model.parameter("w", {kClasses, kFeatures}, Init::normal(0.1f)));
    GraphBuilder g(model, "loss");
    const Value x = g.input("x", DType::f32, {"batch", kFeatures});
    const Value labels = g.input("labels", DType::i32, {"batch"});
    const Value mean = g.op("CrossEntropy", {g.op("Linear", {x, g.parameter(w)}), labels});
    // The same Repeat also carries a value of the batch.
    const Value handed_on =
        g.repeat(2, {g.parameter(w), x}, [&](GraphBuilder&, const std::vector<Value>& carried) {
          return std::vector{carried[0], carried[1]};
        })[0];
    const Value shown = is_random ? g.op("Dropout", {handed_on}, {{"rate", 0.5}}) : handed_on;
    g.output("loss", g.op("Add", {mean, g.op("ReduceMean", {g.op("Mul", {shown, shown})})}));
    must(g.finish());
    must(model.materialize(1));
    ASSERT_OK(model.to(device_));
    EXPECT_EQ(must(Trainer::create(model, device_, options(2))).needs_loss_weights(), is_random);
  }
}

TEST_P(MicroBatches, MeansThatDifferInsideOfARepeatAreRefused) {
  Model model;
  const Parameter w = must(model.parameter("w", {kClasses, kFeatures}, Init::normal(0.1f)));
  GraphBuilder g(model, "loss");
  const Value logits =
      g.op("Linear", {g.input("x", DType::f32, {"batch", kFeatures}), g.parameter(w)});
  const Value labels = g.input("labels", DType::i32, {"batch"});
  const Value start = g.op("ReduceMean", {g.op("Mul", {logits, logits})});
  g.output("loss", g.repeat(2, {start}, [&](GraphBuilder& b, const std::vector<Value>& carried) {
    const Value mean = b.op("CrossEntropy", {b.capture(logits), b.capture(labels)});
    return std::vector{b.op("Add", {carried[0], mean})};
  })[0]);
  must(g.finish());
  must(model.materialize(1));
  ASSERT_OK(model.to(device_));
  ASSERT_OK(Trainer::create(model, device_, options(1)).status());
  const Status refused = Trainer::create(model, device_, options(2)).status();
  EXPECT_EQ(refused.code(), Code::unsupported);
  EXPECT_NE(refused.message().find("Repeat"), std::string::npos) << refused.message();
}

// The gradient of a masked mean in f16 begins with the loss scale. Multiplied by the number of
// terms, it would overflow.
TEST(MicroBatchesInHalfPrecision, AMeanOfManyTermsSkipsNoStep) {
  constexpr int64_t kTerms = 64;
  for (const bool is_clipped : {false, true}) {
    Model m;
    const Parameter w = must(m.parameter("w", {1}, Init::ones()));
    GraphBuilder g(m, "loss");
    const auto half = [&](Value v) { return g.op("Cast", {v}, {{"to", "f16"}}); };
    const Value mask = half(g.input("mask", DType::f32, {kTerms}));
    const Value terms =
        g.op("Mul", {half(g.input("x", DType::f32, {kTerms})), half(g.parameter(w))});
    Value sum = g.op("ReduceSum", {mask});
    if (is_clipped) {
      sum = g.op("Clip", {sum}, {{"min", 1.0}});
    }
    const Value mean = g.op("Div", {g.op("ReduceSum", {g.op("Mul", {terms, mask})}), sum});
    g.output("loss", g.op("Cast", {mean}, {{"to", "f32"}}));
    must(g.finish());
    must(m.materialize(1));
    const Device cpu = open_test_device("cpu");
    ASSERT_OK(m.to(cpu));
    TrainOptions o;
    o.optimizer = {"sgd"};
    o.accumulation = 2;
    Trainer t = must(Trainer::create(m, cpu, o));
    std::vector<float> x(kTerms, 0.5f), all(kTerms, 1);
    const Tensor batch[] = {tensor("mask", {kTerms}, all), tensor("x", {kTerms}, x)};
    const std::span<const Tensor> batches[] = {batch, batch};
    const StepReport report = must(t.step(batches));
    EXPECT_FALSE(report.skipped) << is_clipped;
    EXPECT_FLOAT_EQ(report.loss_scale, 32768);
    EXPECT_FLOAT_EQ(report.grad_norm, 0.5f);
  }
}

// With a hook, the update is a submission of its own. The hook also sees the mean over all terms.
TEST_P(MicroBatches, AHookSeesTheMeanOverAllTerms) {
  std::mt19937 random(8);
  Classifier c(Kind::class_weights);
  ASSERT_OK(c.model.to(device_));
  Trainer t = must(Trainer::create(c.model, device_, options(2)));
  std::vector<float> seen;
  t.set_gradient_hook([&](const GradientInfo&, std::span<float> gradient) {
    seen.assign(gradient.begin(), gradient.end());
    return Status();
  });
  std::vector<MicroBatch> batches = {random_batch(random, Kind::class_weights, 1),
                                     random_batch(random, Kind::class_weights, 4)};
  const std::vector<float> before = values(c.model, "w");
  const Expected expected = reference(Kind::class_weights, batches, before);
  EXPECT_FALSE(must(t.micro_step(batches[0].tensors(Kind::class_weights))).has_value());
  const StepReport report = *must(t.micro_step(batches[1].tensors(Kind::class_weights)));
  expect_step(report, c.model, expected);
  ASSERT_EQ(seen.size(), before.size());
  for (size_t i = 0; i < seen.size(); ++i) {
    const double gradient = (static_cast<double>(before[i]) - expected.w[i]) / double{kRate};
    EXPECT_NEAR(static_cast<double>(seen[i]), gradient, 5e-6) << i;
  }
}

// A checkpoint contains the weights of the micro-batches that have run.
TEST_P(MicroBatches, AStepGoesOnFromACheckpoint) {
  std::mt19937 random(9);
  std::vector<MicroBatch> batches;
  for (const int n : {1, 4, 2}) {
    batches.push_back(random_batch(random, Kind::smoothed, n));
  }
  const std::string path =
      (std::filesystem::temp_directory_path() / ("micro_batches_" + device_.info().name)).string();
  Classifier a(Kind::smoothed);
  ASSERT_OK(a.model.to(device_));
  const Expected expected = reference(Kind::smoothed, batches, values(a.model, "w"));
  {
    Trainer t = must(Trainer::create(a.model, device_, options(3)));
    must(t.micro_step(batches[0].tensors(Kind::smoothed)));
    must(t.micro_step(batches[1].tensors(Kind::smoothed)));
    ASSERT_OK(t.save(path, {}));
  }
  Classifier b(Kind::smoothed);
  ASSERT_OK(b.model.to(device_));
  Trainer t = must(Trainer::create(b.model, device_, options(3)));
  must(t.resume(path));
  expect_step(*must(t.micro_step(batches[2].tensors(Kind::smoothed))), b.model, expected);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace bowline::test::micro_batches
