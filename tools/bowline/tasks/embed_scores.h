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

// Returns the cosine similarity, or 0 if a vector is all zeros.
double cosine(std::span<const float> a, std::span<const float> b);
// Returns the Euclidean distance.
double distance(std::span<const float> a, std::span<const float> b);

// The negative log-likelihood of candidate `right`, in nats: a softmax over `scale` times the
// cosine of `first` and each candidate.
double ranking_nats(std::span<const float> first,
                    std::span<const std::span<const float>> candidates, size_t right, double scale);

// How well the first texts find their second texts among all distinct second texts.
struct Retrieval {
  double recall_at_1 = 0;   // share of the first texts whose second text has the highest cosine
  double recall_at_10 = 0;  // share whose second text is among the ten with the highest cosines
  double mrr_at_10 = 0;     // mean of 1 / rank; 0 for ranks above 10
};
// Ties count against the model: other texts with an equal cosine rank before the right text.
Retrieval retrieval(const Vectors& first, const Vectors& second,
                    std::span<const std::string> second_texts);

// Spearman's rank correlation; equal values have their mean rank. Returns 0 if all values of
// one list are equal.
double spearman(std::span<const double> a, std::span<const double> b);
// Pearson's correlation. Returns 0 if all values of one list are equal.
double pearson(std::span<const double> a, std::span<const double> b);

}  // namespace bowline::command
