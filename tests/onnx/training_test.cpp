// ONNX models train like the PyTorch models from which tests/onnx/make_fixtures.py exported them.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "onnx/import.h"

namespace bowline::onnx {
namespace {

constexpr int64_t kBatch = 8;
constexpr int64_t kClasses = 4;

// The generator of make_fixtures.py.
class Batches {
 public:
  explicit Batches(const std::vector<int64_t>& shape)
      : x_(static_cast<size_t>(count_of(shape))), shape_(shape) {}

  std::vector<Tensor> next() {
    const size_t row = x_.size() / kBatch;
    for (size_t i = 0; i < kBatch; ++i) {
      labels_[i] = static_cast<int64_t>((draw() + 0.5) * kClasses);
      for (size_t j = 0; j < row; ++j) {
        const bool of_class = static_cast<int64_t>(j % kClasses) == labels_[i];
        x_[i * row + j] = static_cast<float>(2 * draw() + (of_class ? 0.375 : 0));
      }
    }
    return {{"x", DType::f32, shape_, x_.data()}, {"labels", DType::i64, {kBatch}, labels_}};
  }

 private:
  static int64_t count_of(const std::vector<int64_t>& shape) {
    int64_t n = 1;
    for (const int64_t d : shape) {
      n *= d;
    }
    return n;
  }
  double draw() {
    state_ = state_ * 1664525 + 1013904223;
    return (state_ >> 8) / 16777216.0 - 0.5;
  }

  uint32_t state_ = 1;
  std::vector<float> x_;
  int64_t labels_[kBatch] = {};
  TensorShape shape_;
};

class OnnxTraining : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Models, OnnxTraining,
                         ::testing::Values("frozen", "batched", "separable", "attention",
                                           "recurrent", "gated", "weighted", "shared"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST_P(OnnxTraining, LossesAreThoseOfTorch) {
  const std::string path = std::string(BOWLINE_ONNX_FIXTURES "/") + GetParam();
  ImportOptions options;
  options.entry_point = "loss";
  options.dims = {{"batch", kBatch}};
  Result<Imported> imported = import_file(path + ".onnx", options);
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  Model& model = imported.value().model;
  const ModelInfo info = model.describe().value();
  std::vector<int64_t> shape;
  for (const GraphDim& d : info.entry_points[0].inputs[0].dims) {
    shape.push_back(d.value);
  }
  Batches batches(shape);
  const Device device = Device::open("cpu").value();
  ASSERT_TRUE(model.to(device).ok());
  TrainOptions train;
  train.optimizer = {"sgd", {{"momentum", 0.9f}}};
  train.schedule.learning_rate = 0.02f;
  Result<Trainer> trainer = Trainer::create(model, device, train);
  ASSERT_TRUE(trainer.ok()) << trainer.status().message();
  std::ifstream expected(path + ".losses");
  std::string step;
  double loss = 0;
  int done = 0;
  while (expected >> step >> loss) {
    float seen = 0;
    if (step == "held_out") {
      seen = trainer.value().evaluate(batches.next()).value();
    }
    for (; step != "held_out" && done < std::stoi(step); ++done) {
      const auto report = trainer.value().micro_step(batches.next());
      ASSERT_TRUE(report.ok()) << report.status().message();
      seen = report.value()->loss;
    }
    // f32 rounding errors grow with the steps.
    EXPECT_NEAR(static_cast<double>(seen), loss, 1e-5 + 1e-3 * loss) << step;
  }
  EXPECT_EQ(done, 300);
}

}  // namespace
}  // namespace bowline::onnx
