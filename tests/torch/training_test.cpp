// Compares optimizers over 100 steps and small models over 20 steps with PyTorch in double
// precision. The tests use the public header.
#include <cmath>

#include "ties/seed_models.h"
#include "ties/test_devices.h"
#include "torch/golden.h"

namespace bowline::test {
namespace {

using Section = GoldenSection;

Tensor float_tensor(std::string_view name, const GoldenTensor& t, std::vector<float>& storage) {
  storage = t.floats();
  return {name, DType::f32, t.shape, storage.data()};
}

void set(Model& model, std::string_view name, const GoldenTensor& t) {
  std::vector<float> numbers;
  ASSERT_OK(model.set_value(name, float_tensor(name, t, numbers)));
}

TrainOptions options_of(const Section& s) {
  TrainOptions o;
  o.optimizer = {s.words.at(1), {{"decay_all", 1}}};  // PyTorch has no rule by rank
  for (const auto& [name, value] : s.options()) {
    const auto number = static_cast<float>(value);
    (name == "learning_rate" ? o.schedule.learning_rate
     : name == "clip_norm"   ? o.clip_norm
                             : o.optimizer.settings[name]) = number;
  }
  return o;
}

// Two weights whose gradients are inputs: loss = sum of w gw + sum of b gb.
Model linear_model(const Section& start) {
  Model m;
  GraphBuilder g(m, "loss");
  Value loss;
  for (const auto& [name, input] : {std::pair("w", "gw"), std::pair("b", "gb")}) {
    const std::vector<int64_t>& shape = start.at(name).shape;
    const Value w = g.parameter(must(m.parameter(name, shape, Init::zeros())));
    const Value d = g.input(input, DType::f32, {shape.begin(), shape.end()});
    const Value sum = g.op("ReduceSum", {g.op("Mul", {w, d})});
    loss = std::string_view(name) == "w" ? sum : g.op("Add", {loss, sum});
  }
  g.output("loss", loss);
  EXPECT_OK(g.finish());
  EXPECT_OK(m.materialize(1));
  for (const char* name : {"w", "b"}) {
    set(m, name, start.at(name));
  }
  return m;
}

// Each step rounds the weight once and the update some sixteen times. An update is at most a few
// learning rates long.
double bound_of(size_t step, double largest, double learning_rate) {
  const auto steps = static_cast<double>(step);
  return std::ldexp(4 * std::sqrt(steps) * largest + 16 * 8 * steps * learning_rate, -24);
}

void expect_weights(const Model& m, const Section& golden, size_t step, double learning_rate) {
  for (const char* name : {"w", "b"}) {
    const std::string at = std::string(name) + "." + std::to_string(step);
    if (!golden.tensors.contains(at)) {
      continue;
    }
    const GoldenTensor& wanted = golden.at(at);
    std::vector<float> got(wanted.numbers.size());
    ASSERT_OK(m.get_value(name, {name, DType::f32, wanted.shape, got.data()}));
    double largest = 1;
    for (const double v : wanted.numbers) {
      largest = std::max(largest, std::abs(v));
    }
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(got[i]), wanted.numbers[i],
                  bound_of(step, largest, learning_rate))
          << golden.words.at(1) << ", " << at << ", element " << i;
    }
  }
}

class TorchTraining : public OnDevice {};

TEST_P(TorchTraining, OptimizersGoOnAsInPyTorch) {
  const std::vector<Section> sections = golden_sections("optimizers.golden");
  for (const OptimizerInfo& info : optimizers()) {
    EXPECT_TRUE(std::ranges::any_of(sections, [&](const Section& s) {
      return s.words.at(1) == info.name;
    })) << info.name;
  }
  const Section& start = sections[0];
  ASSERT_EQ(start.words.at(0), "steps");
  const size_t steps = std::stoul(start.words.at(1));
  for (size_t k = 1; k < sections.size(); ++k) {
    const Section& golden = sections[k];
    Model m = linear_model(start);
    ASSERT_OK(m.to(device_));
    const TrainOptions options = options_of(golden);
    Trainer t = must(Trainer::create(m, device_, options));
    const Numbers& norms = golden.at("norms").numbers;
    for (size_t s = 0; s < steps; ++s) {
      std::vector<float> gw, gb;
      const std::string number = std::to_string(s);
      const Tensor batch[] = {float_tensor("gw", start.at("gw." + number), gw),
                              float_tensor("gb", start.at("gb." + number), gb)};
      const auto report = must(t.micro_step(batch));
      ASSERT_TRUE(report.has_value());
      EXPECT_NEAR(static_cast<double>(report->grad_norm), norms.at(s), 1e-6 * norms.at(s));
      expect_weights(m, golden, s + 1, static_cast<double>(options.schedule.learning_rate));
    }
  }
}

using Parameters = std::map<std::string, Parameter>;

// Declares the tensors of the file that are neither inputs nor results.
Parameters declare(Model& m, const Section& golden) {
  Parameters out;
  for (const auto& [name, t] : golden.tensors) {
    const bool input =
        name.starts_with("x.") || name.starts_with("tokens.") || name.starts_with("labels.");
    if (!input && name != "losses" && name != "norms") {
      out.emplace(name, must(m.parameter(name, t.shape, Init::zeros())));
    }
  }
  return out;
}

void give_values(Model& m, const Section& golden, const Parameters& parameters) {
  ASSERT_OK(m.materialize(1));
  for (const auto& [name, parameter] : parameters) {
    set(m, name, golden.at(name));
  }
}

struct Trained {
  Model model;
  TrainOptions options;
};

Trained mlp(const Section& golden) {
  Trained out;
  Parameters p = declare(out.model, golden);
  GraphBuilder g(out.model, "loss");
  const auto weight = [&](const char* name) { return g.parameter(p.at(name)); };
  const std::vector<int64_t>& x = golden.at("x.0").shape;
  const Value points = g.input("x", DType::f32, {x.begin(), x.end()});
  const Value h = g.op("Tanh", {g.op("Linear", {points, weight("w1"), weight("b1")})});
  const Value logits = g.op("Linear", {h, weight("w2"), weight("b2")});
  g.output("loss", g.op("CrossEntropy", {logits, g.input("labels", DType::i32, {x[0]})}));
  EXPECT_OK(g.finish());
  give_values(out.model, golden, p);
  out.options.optimizer = {
      "sgd", {{"momentum", 0.9f}, {"nesterov", 1}, {"weight_decay", 0.01f}, {"decay_all", 1}}};
  out.options.schedule.learning_rate = 0.1f;
  return out;
}

Trained decoder(const Section& golden) {
  Trained out;
  Parameters p = declare(out.model, golden);
  const Parameter head = must(out.model.tied_parameter("head", p.at("embedding")));
  GraphBuilder g(out.model, "loss");
  const auto weight = [&](const std::string& name) { return g.parameter(p.at(name)); };
  const std::vector<int64_t>& shape = golden.at("tokens.0").shape;
  const int64_t batch = shape[0], seq = shape[1], head_dim = 3;
  const auto norm = [&](Value v, const std::string& name) {
    return g.op("RmsNorm", {v, weight(name)}, {{"eps", std::ldexp(1.0, -17)}});
  };
  Value x = g.op("Embedding", {weight("embedding"), g.input("tokens", DType::i32, {batch, seq})});
  for (const std::string layer : {".0", ".1"}) {
    const Value h = norm(x, "norm1" + layer);
    const auto project = [&](const std::string& name, int64_t heads) {
      return g.op("Reshape", {g.op("Linear", {h, weight(name + layer)})},
                  {{"dims", {batch, seq, heads, head_dim}}});
    };
    const auto turned = [&](Value v) { return g.op("Rope", {v}, {{"rotary_dims", 2}}); };
    const Value a =
        g.op("Attention", {turned(project("q", 4)), turned(project("k", 2)), project("v", 2)},
             {{"causal", 1}});
    const Value merged = g.op("Reshape", {a}, {{"dims", {batch, seq, 4 * head_dim}}});
    x = g.op("Add", {x, g.op("Linear", {merged, weight("out" + layer)})});
    const Value n = norm(x, "norm2" + layer);
    const Value gate = g.op("Silu", {g.op("Linear", {n, weight("gate" + layer)})});
    const Value f = g.op("Mul", {gate, g.op("Linear", {n, weight("up" + layer)})});
    x = g.op("Add", {x, g.op("Linear", {f, weight("down" + layer)})});
  }
  const Value logits = g.op("Linear", {norm(x, "norm"), g.parameter(head)});
  g.output("loss", g.op("CrossEntropy", {logits, g.input("labels", DType::i32, {batch, seq})}));
  EXPECT_OK(g.finish());
  give_values(out.model, golden, p);
  out.options.optimizer.settings = {{"beta2", 0.99f}, {"weight_decay", 0.1f}, {"decay_all", 1}};
  out.options.schedule.learning_rate = 3e-3f;
  return out;
}

Trained convolutional(const Section& golden) {
  Trained out;
  Parameters p = declare(out.model, golden);
  GraphBuilder g(out.model, "loss");
  const auto weight = [&](const std::string& name) { return g.parameter(p.at(name)); };
  // Training updates the running statistics and does not read them.
  const auto norm = [&](Value v, const std::string& number) {
    const int64_t channels = golden.at("scale" + number).shape[0];
    const auto statistic = [&](const std::string& name, Init init) {
      return g.parameter(must(
          out.model.parameter(name + number, {channels}, init, StorageRole::running_statistic)));
    };
    const Value mean = statistic("mean", Init::zeros());
    const Value variance = statistic("variance", Init::ones());
    return g.op(
        "Relu",
        {g.op("BatchNorm", {v, weight("scale" + number), weight("bias" + number), mean, variance},
              {{"eps", std::ldexp(1.0, -17)}})});
  };
  const std::vector<int64_t>& shape = golden.at("x.0").shape;
  Value x = g.input("x", DType::f32, {shape.begin(), shape.end()});
  x = norm(g.op("Conv", {x, weight("conv1")}, {{"pads", {1, 1, 1, 1}}}), "1");
  x = g.op("MaxPool", {x}, {{"window", {2, 2}}, {"strides", {2, 2}}});
  x = norm(g.op("Conv", {x, weight("conv2")}), "2");
  const Value mean = g.op("ReduceMean", {x}, {{"axes", {2, 3}}});
  const Value logits = g.op("Linear", {mean, weight("w"), weight("b")});
  g.output("loss", g.op("CrossEntropy", {logits, g.input("labels", DType::i32, {shape[0]})}));
  EXPECT_OK(g.finish());
  give_values(out.model, golden, p);
  out.options.optimizer = {"sgd", {{"momentum", 0.9f}}};
  out.options.schedule.learning_rate = 0.05f;
  return out;
}

Trained recurrent(const Section& golden) {
  Trained out;
  Parameters p = declare(out.model, golden);
  GraphBuilder g(out.model, "loss");
  const auto weight = [&](const std::string& name) { return g.parameter(p.at(name)); };
  const std::vector<int64_t>& shape = golden.at("tokens.0").shape;
  const int64_t seq = shape[0], batch = shape[1], hidden = golden.at("w_hh").shape[1];
  const Value zeros = g.parameter(
      must(out.model.parameter("zeros", {batch, hidden}, Init::zeros(), StorageRole::constant)));
  const Value x =
      g.op("Embedding", {weight("embedding"), g.input("tokens", DType::i32, {seq, batch})});
  const Value gates = g.op("Linear", {x, weight("w_ih"), weight("bias")});
  const Value y = g.op("Lstm", {gates, weight("w_hh"), zeros, zeros});
  const Value logits = g.op("Linear", {y, weight("out"), weight("out_bias")});
  g.output("loss", g.op("CrossEntropy", {logits, g.input("labels", DType::i32, {seq, batch})}));
  EXPECT_OK(g.finish());
  give_values(out.model, golden, p);
  out.options.optimizer = {"rmsprop", {{"alpha", 0.9f}, {"eps", 1e-3f}}};
  out.options.schedule.learning_rate = 3e-3f;
  return out;
}

// The inputs of batch `number`.
struct Batch {
  std::vector<std::vector<float>> floats;
  std::vector<std::vector<int32_t>> integers;
  std::vector<Tensor> tensors;

  Batch(const Section& golden, size_t number) {
    for (const char* name : {"x", "tokens", "labels"}) {
      const auto found = golden.tensors.find(std::string(name) + "." + std::to_string(number));
      if (found == golden.tensors.end()) {
        continue;
      }
      if (std::string_view(name) == "x") {
        floats.push_back(found->second.floats());
        tensors.push_back({name, DType::f32, found->second.shape, floats.back().data()});
      } else {
        integers.push_back(found->second.integers());
        tensors.push_back({name, DType::i32, found->second.shape, integers.back().data()});
      }
    }
  }
};

TEST_P(TorchTraining, SmallModelsLearnAsInPyTorch) {
  constexpr size_t kBatches = 4;
  // Relative bounds. A step adds the rounding errors of its sums, of at most some hundred terms, to
  // those of the earlier steps.
  constexpr double kLossBound = 1e-5;
  constexpr double kNormBound = 1e-4;
  const std::vector<Section> sections = golden_sections("models.golden");
  const std::map<std::string, Trained (*)(const Section&)> builders = {
      {"mlp", mlp},
      {"convolutional", convolutional},
      {"recurrent", recurrent},
      {"decoder", decoder}};
  ASSERT_EQ(sections.size(), builders.size());
  for (const Section& golden : sections) {
    Trained t = builders.at(golden.words.at(1))(golden);
    ASSERT_OK(t.model.to(device_));
    Trainer trainer = must(Trainer::create(t.model, device_, t.options));
    const Numbers& losses = golden.at("losses").numbers;
    const Numbers& norms = golden.at("norms").numbers;
    for (size_t s = 0; s < losses.size(); ++s) {
      const Batch batch(golden, s % kBatches);
      const auto report = must(trainer.micro_step(batch.tensors));
      ASSERT_TRUE(report.has_value());
      EXPECT_NEAR(static_cast<double>(report->loss), losses[s], kLossBound * losses[s])
          << golden.words[1] << ", step " << s + 1;
      EXPECT_NEAR(static_cast<double>(report->grad_norm), norms.at(s), kNormBound * norms[s])
          << golden.words[1] << ", step " << s + 1;
    }
    EXPECT_LT(losses.back(), losses.front());
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, TorchTraining, testing::ValuesIn(computing_device_names()),
                         [](const auto& p) { return test_name(p.param); });

}  // namespace
}  // namespace bowline::test
