// Recurrent networks of several layers and directions that are composed of nodes. The tests compare
// values and gradients with a plain program in double precision.
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "ties/seed_models.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

using Numbers = std::vector<double>;

constexpr int64_t kSteps = 4, kBatch = 3, kInput = 5, kUnits = 6, kLayers = 2;

enum class Kind { lstm, gru, gru_reset_before };

int64_t gates_of(Kind kind) { return kind == Kind::lstm ? 4 : 3; }
double logistic(double x) { return 1 / (1 + std::exp(-x)); }

// One direction of one layer. Its parameters use its name.
struct Direction {
  std::string name;
  int64_t input = 0;
  bool reverse = false;
};

std::vector<Direction> directions() {
  std::vector<Direction> out;
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    for (const bool reverse : {false, true}) {
      const std::string name = "layer" + std::to_string(layer) + (reverse ? ".back" : ".forth");
      out.push_back({name, layer == 0 ? kInput : 2 * kUnits, reverse});
    }
  }
  return out;
}

// Parameters by name in the order of their declaration.
std::vector<std::pair<std::string, Dims>> parameters_of(Kind kind) {
  std::vector<std::pair<std::string, Dims>> out;
  for (const Direction& d : directions()) {
    const int64_t rows = gates_of(kind) * kUnits;
    out.push_back({d.name + ".w_ih", {rows, d.input}});
    out.push_back({d.name + ".b_ih", {rows}});
    out.push_back({d.name + ".w_hh", {rows, kUnits}});
    if (kind != Kind::lstm) {
      out.push_back({d.name + ".b_hn", {kUnits}});
    }
  }
  return out;
}

using Weights = std::map<std::string, Numbers>;

// Returns y [T, B, H] of one direction. For an LSTM, c receives the cells at the end.
Numbers run_direction(Kind kind, const Direction& d, const Weights& w, const Numbers& x,
                      Numbers* c) {
  const auto in = static_cast<size_t>(d.input);
  constexpr size_t n = kUnits;
  const Numbers& w_ih = w.at(d.name + ".w_ih");
  const Numbers& b_ih = w.at(d.name + ".b_ih");
  const Numbers& w_hh = w.at(d.name + ".w_hh");
  Numbers y(kSteps * kBatch * n), h(kBatch * n, 0.25);
  c->assign(kBatch * n, -0.5);
  for (size_t i = 0; i < kSteps; ++i) {
    const size_t t = d.reverse ? kSteps - 1 - i : i;
    Numbers next(h.size());
    for (size_t b = 0; b < kBatch; ++b) {
      const double* state = &h[b * n];
      const auto given = [&](size_t g, size_t j) {
        const double* row = &w_ih[(g * n + j) * in];
        return std::inner_product(row, row + in, &x[(t * kBatch + b) * in], b_ih[g * n + j]);
      };
      const auto fed_back = [&](size_t g, size_t j, const double* from) {
        const double* row = &w_hh[(g * n + j) * n];
        return std::inner_product(row, row + n, from, 0.0);
      };
      Numbers faded(n);
      for (size_t j = 0; j < n; ++j) {
        faded[j] = state[j] * logistic(given(0, j) + fed_back(0, j, state));
      }
      for (size_t j = 0; j < n; ++j) {
        const double first = logistic(given(0, j) + fed_back(0, j, state));
        const double second = logistic(given(1, j) + fed_back(1, j, state));
        double& made = next[b * n + j];
        if (kind == Kind::lstm) {
          double& cell = (*c)[b * n + j];
          cell = second * cell + first * std::tanh(given(2, j) + fed_back(2, j, state));
          made = logistic(given(3, j) + fed_back(3, j, state)) * std::tanh(cell);
          continue;
        }
        const double bias = w.at(d.name + ".b_hn")[j];
        const double fresh = kind == Kind::gru
                                 ? std::tanh(given(2, j) + first * (fed_back(2, j, state) + bias))
                                 : std::tanh(given(2, j) + fed_back(2, j, faded.data()) + bias);
        made = (1 - second) * fresh + second * state[j];
      }
    }
    h = next;
    std::copy(h.begin(), h.end(), y.begin() + static_cast<ptrdiff_t>(t * kBatch * n));
  }
  return y;
}

// Returns the sum of the squares of all outputs of the last layer and, for an LSTM, of the cells at
// the end of every direction.
double loss_of(Kind kind, const Weights& w, Numbers x) {
  const auto squares = [](const Numbers& v) {
    return std::inner_product(v.begin(), v.end(), v.begin(), 0.0);
  };
  double loss = 0;
  Numbers sides[2];
  for (const Direction& d : directions()) {
    Numbers c;
    sides[d.reverse ? 1 : 0] = run_direction(kind, d, w, x, &c);
    loss += kind == Kind::lstm ? squares(c) : 0;
    if (d.reverse) {
      x.clear();
      for (size_t row = 0; row < kSteps * kBatch; ++row) {
        for (const Numbers& side : sides) {
          const auto from = side.begin() + static_cast<ptrdiff_t>(row * kUnits);
          x.insert(x.end(), from, from + kUnits);
        }
      }
    }
  }
  return loss + squares(x);
}

void add_graph(Model& model, Kind kind) {
  std::map<std::string, Parameter> weights;
  for (const auto& [name, shape] : parameters_of(kind)) {
    weights[name] = must(model.parameter(name, shape, Init::normal(0.4f)));
  }
  GraphBuilder g(model, "loss");
  const auto sum_of_squares = [&](Value v) { return g.op("ReduceSum", {g.op("Square", {v})}); };
  Value x = g.input("x", DType::f32, {kSteps, kBatch, kInput});
  const Value h0 = g.input("h0", DType::f32, {kBatch, kUnits});
  const Value c0 = kind == Kind::lstm ? g.input("c0", DType::f32, {kBatch, kUnits}) : Value();
  std::vector<Value> sides, losses;
  for (const Direction& d : directions()) {
    const auto weight = [&](const char* name) { return g.parameter(weights.at(d.name + name)); };
    const Value gates = g.op("Linear", {x, weight(".w_ih"), weight(".b_ih")});
    if (kind == Kind::lstm) {
      sides.push_back(
          g.op("Lstm", {gates, weight(".w_hh"), h0, c0}, {{"reverse", d.reverse ? 1 : 0}}));
      const Value end = g.op("Slice", {g.last_outputs()[1]},
                             {{"start", d.reverse ? 0 : kSteps - 1}, {"length", 1}});
      losses.push_back(sum_of_squares(end));
    } else {
      sides.push_back(
          g.op("Gru", {gates, weight(".w_hh"), h0, weight(".b_hn")},
               {{"reverse", d.reverse ? 1 : 0}, {"reset_after", kind == Kind::gru ? 1 : 0}}));
    }
    if (d.reverse) {
      x = g.op("Concat", sides, {{"axis", 2}});
      sides.clear();
    }
  }
  Value loss = sum_of_squares(x);
  for (const Value more : losses) {
    loss = g.op("Add", {loss, more});
  }
  g.output("loss", loss);
  ASSERT_OK(g.finish());
}

void check(const Device& device, Kind kind) {
  Model model;
  add_graph(model, kind);
  ASSERT_OK(model.materialize(7));
  Weights weights;
  for (const auto& [name, shape] : parameters_of(kind)) {
    std::vector<float> values(static_cast<size_t>(
        std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>())));
    ASSERT_OK(model.get_value(name, {name, DType::f32, shape, values.data()}));
    weights[name] = Numbers(values.begin(), values.end());
  }
  ASSERT_OK(model.to(device));
  std::vector<float> x(kSteps * kBatch * kInput);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(std::sin(0.7 * static_cast<double>(i)));
  }
  std::vector<float> h0(kBatch * kUnits, 0.25f), c0(kBatch * kUnits, -0.5f);
  std::vector<Tensor> batch = {{"x", DType::f32, {kSteps, kBatch, kInput}, x.data()},
                               {"h0", DType::f32, {kBatch, kUnits}, h0.data()}};
  if (kind == Kind::lstm) {
    batch.push_back({"c0", DType::f32, {kBatch, kUnits}, c0.data()});
  }
  Trainer trainer = must(Trainer::create(model, device, {}));
  const float loss = must(trainer.micro_step(batch))->loss;
  const Numbers exact(x.begin(), x.end());
  EXPECT_NEAR(static_cast<double>(loss), loss_of(kind, weights, exact), 1e-4);
  for (const auto& [name, shape] : parameters_of(kind)) {
    std::vector<float> d(weights[name].size());
    ASSERT_OK(trainer.gradient(name, {name, DType::f32, shape, d.data()}));
    for (size_t i = 0; i < d.size(); i += 7) {
      constexpr double kStep = 1e-5;
      const auto at = [&, &name = name](double distance) {
        Weights moved = weights;
        moved[name][i] += distance;
        return loss_of(kind, moved, exact);
      };
      EXPECT_NEAR(static_cast<double>(d[i]), (at(kStep) - at(-kStep)) / (2 * kStep), 2e-4)
          << name << " element " << i;
    }
  }
}

using Recurrent = OnDevice;
BOWLINE_ON_ALL_DEVICES(Recurrent);

TEST_P(Recurrent, LstmOfTwoLayersAndDirections) { check(device_, Kind::lstm); }
TEST_P(Recurrent, GruOfTwoLayersAndDirections) { check(device_, Kind::gru); }
TEST_P(Recurrent, GruThatResetsInFrontOfItsProduct) { check(device_, Kind::gru_reset_before); }

}  // namespace
}  // namespace bowline::test
