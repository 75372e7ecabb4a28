// Measures embeddings of groups of texts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace bowline::command {

// Rows [rows, width].
struct Vectors {
  size_t width = 0;
  std::vector<float> values;

  std::span<const float> row(size_t i) const { return std::span(values).subspan(i * width, width); }
  size_t rows() const { return width == 0 ? 0 : values.size() / width; }
};

// The cosine of the angle between two vectors. 0: one of them is 0.
double cosine(std::span<const float> a, std::span<const float> b);
double distance(std::span<const float> a, std::span<const float> b);

// The negative log-likelihood of candidate `right`, in nats: a softmax over `scale` times the
// cosine of `first` and each candidate.
double ranking_nats(std::span<const float> first,
                    std::span<const std::span<const float>> candidates, size_t right, double scale);

// How well the first texts find their second texts among all different second texts.
struct Retrieval {
  double recall_at_1 = 0;   // share of the first texts whose second text has the highest cosine
  double recall_at_10 = 0;  // is one of the ten with the highest cosines
  double mrr_at_10 = 0;     // mean of 1 / rank; 0 for ranks above 10
};
// Equal cosines rank before the right text.
Retrieval retrieval(const Vectors& first, const Vectors& second,
                    std::span<const std::string> second_texts);

// Spearman's rank correlation; equal values have their mean rank. 0: all values of a list are
// equal.
double spearman(std::span<const double> a, std::span<const double> b);
// Pearson's correlation. 0: all values of a list are equal.
double pearson(std::span<const double> a, std::span<const double> b);

}  // namespace bowline::command
