// Does a model compute the same bits through C as through C++?
#include "bowline.h"
#include "world.h"

namespace c_test {
namespace {

template <class T>
T must_be(bowline::Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.status().message();
  return std::move(result).value();
}

// The model of make_model().
bowline::Model make_same() {
  using namespace bowline;
  Model model;
  GraphBuilder g(model, "loss");
  Value x = g.input("points", DType::f32, {"batch", kWidth});
  const Value labels = g.input("labels", DType::i32, {"batch"});
  const auto weight = [&](const char* name, int64_t rows) {
    const int64_t shape[] = {rows, kWidth};
    return must_be(model.parameter(name, shape, Init::uniform(0.8f)));
  };
  const Parameter first = weight("first.weight", kWidth);
  const Parameter second = must_be(model.tied_parameter("second.weight", first));
  x = g.op("Linear", {x, g.parameter(first)});
  x = g.op("Tanh", {x});
  x = g.op("Linear", {x, g.parameter(second)});
  x = g.op("Linear", {x, g.parameter(weight("last.weight", kClasses))});
  g.output("scores", x);
  g.output("loss", g.op("CrossEntropy", {x, labels}));
  EXPECT_TRUE(g.finish().ok());
  EXPECT_TRUE(model.materialize(1).ok());
  return model;
}

TEST(Values, TrainingInCAndInCppIsTheSame) {
  using namespace bowline;
  bowline_device* const c_device = open_cpu();
  bowline_model* const c_model = make_model();
  must(api()->model_to, c_model, c_device, nullptr);
  bowline_trainer* const c_trainer = make_trainer(c_model, c_device);

  const Device device = must_be(Device::open("cpu"));
  Model model = make_same();
  ASSERT_TRUE(model.to(device).ok());
  TrainOptions options;
  options.dims = {{"batch", kBatch}};
  Trainer trainer = must_be(Trainer::create(model, device, options));
  Batch batch;
  const int64_t shape[] = {kBatch, kWidth};
  const Tensor same[] = {{"points", DType::f32, shape, batch.points},
                         {"labels", DType::i32, {shape, 1}, batch.labels}};
  for (int step = 0; step < 5; ++step) {
    auto report = sized<bowline_step_report>();
    int32_t finished = 0;
    must(api()->trainer_micro_step, c_trainer, batch.tensors, 2, nullptr, 0, &report, &finished);
    EXPECT_EQ(finished, 1);
    const auto expected = must_be(trainer.micro_step(same));
    ASSERT_TRUE(expected.has_value());
    EXPECT_EQ(report.step, expected->step);
    EXPECT_EQ(report.loss, expected->loss);
    EXPECT_EQ(report.grad_norm, expected->grad_norm);
    EXPECT_EQ(report.learning_rate, expected->learning_rate);
    EXPECT_EQ(report.skipped, 0);
  }
  for (const char* name : {"first.weight", "last.weight"}) {
    const int64_t rows[] = {name[0] == 'f' ? kWidth : kClasses, kWidth};
    std::vector<float> a(static_cast<size_t>(rows[0] * rows[1])), b(a.size());
    const bowline_tensor out = {sizeof(out), nullptr,      BOWLINE_F32, 2, rows,
                                a.data(),    4 * a.size(), nullptr,     0};
    must(api()->model_get_value, c_model, name, &out);
    ASSERT_TRUE(model.get_value(name, {"", DType::f32, rows, b.data()}).ok());
    EXPECT_EQ(a, b) << name;
  }
  must(api()->trainer_close, c_trainer);
  must(api()->model_close, c_model);
  must(api()->device_close, c_device);
}

}  // namespace
}  // namespace c_test
