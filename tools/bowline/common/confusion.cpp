#include "common/confusion.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "bowline.h"
#include "common/html.h"

namespace bowline::command {
namespace {

constexpr size_t kMostClasses = 40;  // rows of the matrix
constexpr size_t kMostPairs = 20;
constexpr size_t kMostCharacters = 600;

struct Sums {
  std::vector<uint64_t> truth;
  std::vector<uint64_t> predicted;
};

Sums sums_of(const Confusion& c) {
  const size_t n = c.labels.size();
  Sums sums{std::vector<uint64_t>(n), std::vector<uint64_t>(n)};
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) {
      sums.truth[i] += c.at(i, j);
      sums.predicted[j] += c.at(i, j);
    }
  }
  return sums;
}

double share(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

// Returns the classes with the most mistakes, in class order.
std::vector<size_t> shown_classes(const Confusion& c, const Sums& sums) {
  std::vector<size_t> classes(c.labels.size());
  std::iota(classes.begin(), classes.end(), size_t{0});
  if (classes.size() > kMostClasses) {
    const auto mistakes = [&](size_t i) {
      return sums.truth[i] + sums.predicted[i] - 2 * c.at(i, i);
    };
    std::ranges::stable_sort(classes, std::greater<>(), mistakes);
    classes.resize(kMostClasses);
    std::ranges::sort(classes);
  }
  return classes;
}

std::string matrix_html(const Confusion& c, const Sums& sums, const std::vector<size_t>& classes) {
  std::string rows = "<thead><tr><th class='corner'>true class</th>";
  for (const size_t j : classes) {
    rows += fmt::format("<th>{}</th>", html_text(c.labels[j]));
  }
  rows += "</tr></thead>\n<tbody>\n";
  for (const size_t i : classes) {
    rows += fmt::format("<tr><th scope='row'>{}</th>", html_text(c.labels[i]));
    for (const size_t j : classes) {
      rows +=
          fmt::format("<td{} style='--share:{:.3f}'>{}</td>", i == j ? " class='hit'" : "",
                      share(c.at(i, j), sums.truth[i]), c.at(i, j) == 0 ? "" : grouped(c.at(i, j)));
    }
    rows += "</tr>\n";
  }
  return scrolled_html(
      "Rows are the true classes, columns what was predicted; a cell is as dark as its share of "
      "the row.",
      " class='confusion'", rows + "</tbody>\n");
}

std::string pairs_html(const Confusion& c, const Sums& sums) {
  std::vector<std::pair<size_t, size_t>> pairs;
  for (size_t i = 0; i < c.labels.size(); ++i) {
    for (size_t j = 0; j < c.labels.size(); ++j) {
      if (i != j && c.at(i, j) > 0) {
        pairs.emplace_back(i, j);
      }
    }
  }
  std::ranges::stable_sort(pairs, std::greater<>(),
                           [&](const auto& p) { return c.at(p.first, p.second); });
  if (pairs.empty()) {
    return paragraph_html("Nothing is confused.");
  }
  pairs.resize(std::min(pairs.size(), kMostPairs));
  Table t{.caption = "What is confused most",
          .head = {"true class", "predicted", "examples", "share of the class"},
          .numbers = {2, 3}};
  for (const auto& [i, j] : pairs) {
    t.rows.push_back({c.labels[i], c.labels[j], grouped(c.at(i, j)),
                      fmt::format("{:.1f} %", 100 * share(c.at(i, j), sums.truth[i]))});
  }
  return table_html(t);
}

}  // namespace

std::string confusion_html(const Confusion& c) {
  const Sums sums = sums_of(c);
  const std::vector<size_t> classes = shown_classes(c, sums);
  std::string out;
  if (classes.size() < c.labels.size()) {
    out = paragraph_html(fmt::format("Of {} classes these {} have the most mistakes.",
                                     grouped(c.labels.size()), classes.size()));
  }
  return out + matrix_html(c, sums, classes) + pairs_html(c, sums);
}

std::string classes_html(const Confusion& c) {
  const Sums sums = sums_of(c);
  Table t{.caption = "Each class",
          .head = {"class", "examples", "precision", "recall", "F1"},
          .numbers = {1, 2, 3, 4}};
  for (size_t i = 0; i < c.labels.size(); ++i) {
    const double precision = share(c.at(i, i), sums.predicted[i]);
    const double recall = share(c.at(i, i), sums.truth[i]);
    const double f1 = precision + recall > 0 ? 2 * precision * recall / (precision + recall) : 0;
    t.rows.push_back({c.labels[i], grouped(sums.truth[i]), fmt::format("{:.4f}", precision),
                      fmt::format("{:.4f}", recall), fmt::format("{:.4f}", f1)});
  }
  return table_html(t);
}

std::string examples_html(std::span<const ConfusedExample> examples) {
  if (examples.empty()) {
    return paragraph_html("No example is predicted wrongly.");
  }
  const auto likely = [](const std::string& label, double probability) {
    return fmt::format("{} <span class='note'>{:.1f} %</span>", html_text(label),
                       100 * probability);
  };
  Table t{.caption = "Confused examples",
          .head = {"text", "true class", "predicted"},
          .markup = {0, 1, 2}};
  for (const ConfusedExample& e : examples) {
    t.rows.push_back(
        {fmt::format("<div class='text'>{}</div>", html_lines(shortened(e.text, kMostCharacters))),
         likely(e.truth, e.truth_probability), likely(e.predicted, e.probability)});
  }
  return table_html(t);
}

}  // namespace bowline::command
