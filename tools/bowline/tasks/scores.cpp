#include "tasks/scores.h"

#include <algorithm>
#include <numeric>

#include "common/strings.h"
#include "tasks/labels.h"

namespace bowline::command {
namespace {

constexpr size_t kMostMistakes = 20;

// Returns the label of the class, or several labels joined by "|".
std::string text_of(std::span<const int32_t> classes, std::span<const std::string> labels) {
  return joined(
      classes, [&](int32_t c) { return labels[static_cast<size_t>(c)]; }, "|");
}

}  // namespace

double LabelCounts::f1() const {
  return right == 0
             ? 0
             : 2 * static_cast<double>(right) / static_cast<double>(2 * right + missed + mistaken);
}

Scores::Scores(std::span<const std::string> labels, bool several)
    : labels_(labels.begin(), labels.end()),
      several_(several),
      counts_(labels.size()),
      confusion_(several ? 0 : labels.size() * labels.size()) {}

void Scores::add(std::span<const float> logits, std::span<const int32_t> classes,
                 const std::string& text) {
  const std::vector<double> p = probabilities(logits, several_);
  std::vector<int32_t> predicted;
  const auto best = static_cast<size_t>(std::ranges::max_element(p) - p.begin());
  if (several_) {
    for (size_t c = 0; c < p.size(); ++c) {
      if (p[c] >= kSure) {
        predicted.push_back(static_cast<int32_t>(c));
      }
    }
  } else {
    predicted = {static_cast<int32_t>(best)};
    ++confusion_[static_cast<size_t>(classes[0]) * labels_.size() + best];
  }
  nats_ += nats_of(logits, classes, several_);
  ++texts_;
  const bool right = std::ranges::equal(predicted, classes);
  right_ += right ? 1 : 0;
  count(classes, predicted);
  if (!right) {
    const double truth = classes.empty() ? 0 : p[static_cast<size_t>(classes[0])];
    note({text, text_of(classes, labels_), text_of(predicted, labels_), p[best], truth});
  }
}

void Scores::count(std::span<const int32_t> classes, std::span<const int32_t> predicted) {
  const auto has = [](std::span<const int32_t> of, int32_t c) {
    return std::ranges::find(of, c) != of.end();
  };
  for (const int32_t c : classes) {
    LabelCounts& n = counts_[static_cast<size_t>(c)];
    ++(has(predicted, c) ? n.right : n.missed);
  }
  for (const int32_t c : predicted) {
    counts_[static_cast<size_t>(c)].mistaken += has(classes, c) ? 0 : 1;
  }
}

void Scores::note(const ConfusedExample& mistake) {
  const auto at = std::ranges::upper_bound(mistakes_, mistake.probability, std::ranges::greater{},
                                           &ConfusedExample::probability);
  mistakes_.insert(at, mistake);
  mistakes_.resize(std::min(mistakes_.size(), kMostMistakes));
}

Measure Scores::measure() const {
  const auto texts = static_cast<double>(texts_);
  double f1 = 0;
  double classes = 0;
  for (const LabelCounts& n : counts_) {
    f1 += n.f1();
    classes += n.all() > 0 ? 1 : 0;
  }
  Measure m{nats_ / texts};
  m.more = {{"accuracy", static_cast<double>(right_) / texts},
            {"macro_f1", f1 / std::max(classes, 1.0)}};
  if (!several_) {
    m.confusion = Confusion{labels_, confusion_};
  }
  m.mistakes = mistakes_;
  return m;
}

}  // namespace bowline::command
