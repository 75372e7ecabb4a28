// AdamW in double precision. It computes the expected values of small models.
#pragma once

#include <cmath>
#include <vector>

namespace bowline::test {

// The defaults of the optimizer are floats.
constexpr double kBeta1 = static_cast<double>(0.9f);
constexpr double kBeta2 = static_cast<double>(0.999f);
constexpr double kEps = static_cast<double>(1e-8f);

// The weights, moments and update count of one storage. All uses of the storage share them.
struct AdamReference {
  std::vector<double> w;
  double learning_rate = 0.1;
  std::vector<double> m = std::vector<double>(w.size());
  std::vector<double> v = std::vector<double>(w.size());
  int updates = 0;

  void step(const std::vector<double>& gradient) {
    ++updates;
    const double bias1 = 1 - std::pow(kBeta1, updates), bias2 = 1 - std::pow(kBeta2, updates);
    for (size_t i = 0; i < w.size(); ++i) {
      m[i] = kBeta1 * m[i] + (1 - kBeta1) * gradient[i];
      v[i] = kBeta2 * v[i] + (1 - kBeta2) * gradient[i] * gradient[i];
      w[i] -= learning_rate * (m[i] / bias1) / (std::sqrt(v[i] / bias2) + kEps);
    }
  }
};

}  // namespace bowline::test
