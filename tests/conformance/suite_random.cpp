// Suite random: differential training. Each random model is trained with its Repeats and with
// unrolled Repeats. Losses, norms, weights, gradients, moments and the outputs of a second entry
// point must equal the oracles in double precision within the promised bounds (random/reference.h).
// A failing model is shrunk and printed as C++.
#include <cmath>

#include "api/internals.h"
#include "conformance/random/reference.h"
#include "conformance/suite.h"

namespace bowline::conformance {
namespace {

using random::Expectation;
using random::Observation;
using random::Recipe;

constexpr int kDraws = 100;  // until a model is usable
constexpr int kShrinkTries = 1500;
constexpr size_t kShrunk = 3;  // failures to shrink; further failures are only named
constexpr uint64_t kSlopesEvery = 25;

struct Found {
  bool refused = false;  // the library refused the model
  std::string what;      // empty if nothing is wrong
  double units = 0;
};

Found compare(const Expectation& wanted, const Result<Observation>& got) {
  Found out;
  if (!got.ok()) {
    return {true, got.status().message(), 0};
  }
  const Observation& exact = wanted.exact;
  if (got.value().size() != exact.size()) {
    return {false, format("{} series instead of {}", got.value().size(), exact.size()), 0};
  }
  for (size_t s = 0; s < exact.size(); ++s) {
    const random::Series& series = got.value()[s];
    if (series.name != exact[s].name || series.values.size() != exact[s].values.size()) {
      return {false,
              format("\"{}\" of {} instead of \"{}\" of {}", series.name, series.values.size(),
                     exact[s].name, exact[s].values.size()),
              0};
    }
    for (size_t i = 0; i < series.values.size(); ++i) {
      const double bound = wanted.bound[s][i];
      const double units = random::units_off(exact[s].values[i], bound, series.values[i]);
      out.units = std::max(out.units, units);
      if (!(units <= 1) && out.what.empty()) {
        out.what = format("{}[{}] is {} instead of {} (at most {} away)", series.name, i,
                          series.values[i], exact[s].values[i], bound);
      }
    }
  }
  return out;
}

bool has_repeat(const Recipe& recipe) {
  return std::ranges::any_of(recipe.loss.nodes, [](const random::Node& n) {
    return n.kind == random::Node::Kind::repeat;
  });
}

bool is_trained(const Recipe& recipe) {
  return !std::ranges::all_of(recipe.storages, &random::StorageRow::frozen);
}

// Compares one form of a model on the device of the run. Returns std::nullopt if the model is not
// usable.
std::optional<Found> examine(const Run& run, const Recipe& recipe, bool as_repeat) {
  const Result<Expectation> wanted = random::expect(recipe, as_repeat);
  if (!wanted.ok()) {
    return {};
  }
  const Result<Observation> got =
      random::train_on(Internals::device(run.device), recipe, as_repeat);
  // The library refuses different means inside a Repeat. The unrolled form is compared.
  if (as_repeat && !wanted.value().has_one_weight && got.status().code() == Code::unsupported) {
    return {};
  }
  return compare(wanted.value(), got);
}

std::string report(const Run& run, const Recipe& recipe, bool as_repeat, const Found& found) {
  const std::string what =
      format("{}: {}", as_repeat ? "with its Repeats" : "written out", found.what);
  if (run.report.failures.size() >= kShrunk) {
    return what;
  }
  const Recipe smallest = random::shrink(
      recipe,
      [&](const Recipe& smaller) {
        const auto other = is_trained(smaller) ? examine(run, smaller, as_repeat) : std::nullopt;
        return other && !other->what.empty() && other->refused == found.refused;
      },
      kShrinkTries);
  const auto last = examine(run, smallest, as_repeat);
  return format("{}\n  The smallest model that fails: {}\n{}", what, last ? last->what : found.what,
                random::print_recipe(smallest, as_repeat));
}

std::string check(Run& run, const Recipe& recipe, const std::string& where) {
  for (const bool as_repeat : {true, false}) {
    if (!as_repeat && !has_repeat(recipe)) {
      continue;
    }
    const auto found = examine(run, recipe, as_repeat);
    if (found) {
      run.note_error(found->units, where);
    }
    if (found && !found->what.empty()) {
      return report(run, recipe, as_repeat, *found);
    }
  }
  return "";
}

// Returns the central difference of the loss by `weight`, an element of `weights`.
double slope_along(const Recipe& recipe, const std::vector<std::vector<double>>& weights,
                   double& weight, double h) {
  const double w = weight;
  weight = w + h;
  const auto above = random::slopes_at(recipe, weights);
  weight = w - h;
  const auto below = random::slopes_at(recipe, weights);
  weight = w;
  return (above.value().loss - below.value().loss) / (2 * h);
}

// Checks the reference itself: compares its gradients with central differences of its loss.
std::string check_slopes(const Recipe& recipe) {
  std::vector<std::vector<double>> weights;
  for (const random::StorageRow& s : recipe.storages) {
    weights.emplace_back(s.values.begin(), s.values.end());
  }
  const auto at = random::slopes_at(recipe, weights);
  if (!at.ok()) {
    return at.status().message();
  }
  double size = 1e-3;
  for (const auto& g : at.value().gradients) {
    for (const double v : g) {
      size = std::max(size, std::abs(v));
    }
  }
  for (size_t s = 0; s < weights.size(); ++s) {
    for (size_t i = 0; i < weights[s].size() && !recipe.storages[s].frozen; ++i) {
      const double gradient = at.value().gradients[s][i];
      const auto is_right = [&](double slope) { return std::abs(slope - gradient) <= 1e-6 * size; };
      const double h = 1e-5;
      double slope = slope_along(recipe, weights, weights[s][i], h);
      if (!is_right(slope)) {
        // If the loss is very nonlinear (nested normalizations of a few elements), the error is in
        // the difference. Richardson extrapolation has an error of h^4 instead of h^2.
        slope = (16 * slope_along(recipe, weights, weights[s][i], h / 4) - slope) / 15;
      }
      if (!is_right(slope)) {
        return format(
            "storage {}, element {}: the gradient of the reference is {}, the slope {}\n{}", s, i,
            gradient, slope, random::print_recipe(recipe, true));
      }
    }
  }
  return "";
}

// Returns the first usable model of this number.
std::optional<Recipe> usable(uint64_t seed, uint64_t number) {
  for (uint64_t draw = 0; draw < kDraws; ++draw) {
    Recipe recipe = random::draw_recipe(random::mixed(random::mixed(seed, number), draw));
    if (random::tidy(recipe).ok() && is_trained(recipe) && random::expect(recipe, true).ok()) {
      return recipe;
    }
  }
  return {};
}

}  // namespace

Status run_random(Run& run) {
  const uint64_t seed = run.options.seed;
  for (uint64_t number = 0; number < run.options.models; ++number) {
    const std::string name = format("model {} of seed {}", number, seed);
    if (!selects(run.options, name)) {
      continue;
    }
    run.one("random", name, [&]() -> std::string {
      const auto recipe = usable(seed, number);
      if (!recipe) {
        return format("none of {} draws gives a usable model", kDraws);
      }
      std::string problem = number % kSlopesEvery == 0 ? check_slopes(*recipe) : "";
      return problem.empty() ? check(run, *recipe, name) : problem;
    });
  }
  return {};
}

}  // namespace bowline::conformance
