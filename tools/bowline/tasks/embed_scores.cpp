#include "tasks/embed_scores.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace bowline::command {
namespace {

double dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  return sum;
}

// Returns rows of length 1. A row of zeros stays.
Vectors unit_rows(const Vectors& of) {
  Vectors out = of;
  for (size_t i = 0; i < out.rows(); ++i) {
    const double length = std::sqrt(dot(of.row(i), of.row(i)));
    for (size_t c = 0; c < out.width && length > 0; ++c) {
      float& value = out.values[i * out.width + c];
      value = static_cast<float>(static_cast<double>(value) / length);
    }
  }
  return out;
}

// Returns the rank of each value, from 0. Equal values have their mean rank.
std::vector<double> ranks_of(std::span<const double> values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](size_t i) { return values[i]; });
  std::vector<double> out(values.size());
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && values[order[end]] == values[order[begin]]) {
      ++end;
    }
    for (size_t i = begin; i < end; ++i) {
      out[order[i]] = static_cast<double>(begin + end - 1) / 2;
    }
  }
  return out;
}

}  // namespace

double cosine(std::span<const float> a, std::span<const float> b) {
  const double squares = dot(a, a) * dot(b, b);
  return squares == 0 ? 0 : dot(a, b) / std::sqrt(squares);
}

double distance(std::span<const float> a, std::span<const float> b) {
  return std::sqrt(std::max(dot(a, a) - 2 * dot(a, b) + dot(b, b), 0.0));
}

double ranking_nats(std::span<const float> first,
                    std::span<const std::span<const float>> candidates, size_t right,
                    double scale) {
  std::vector<double> scores;
  for (const std::span<const float> candidate : candidates) {
    scores.push_back(scale * cosine(first, candidate));
  }
  const double highest = std::ranges::max(scores);
  double sum = 0;
  for (const double score : scores) {
    sum += std::exp(score - highest);
  }
  return highest + std::log(sum) - scores[right];
}

Retrieval retrieval(const Vectors& first, const Vectors& second,
                    std::span<const std::string> second_texts) {
  std::map<std::string_view, size_t> rows;  // of different texts
  for (size_t i = 0; i < second_texts.size(); ++i) {
    rows.try_emplace(second_texts[i], i);
  }
  const Vectors from = unit_rows(first), to = unit_rows(second);
  Retrieval out;
  for (size_t i = 0; i < from.rows(); ++i) {
    const size_t own = rows.at(second_texts[i]);
    const double right = dot(from.row(i), to.row(own));
    const auto is_before = [&](const auto& entry) {
      return entry.second != own && dot(from.row(i), to.row(entry.second)) >= right;
    };
    const auto rank = 1 + static_cast<uint64_t>(std::ranges::count_if(rows, is_before));
    out.recall_at_1 += rank == 1 ? 1 : 0;
    out.recall_at_10 += rank <= 10 ? 1 : 0;
    out.mrr_at_10 += rank <= 10 ? 1 / static_cast<double>(rank) : 0;
  }
  for (double* const sum : {&out.recall_at_1, &out.recall_at_10, &out.mrr_at_10}) {
    *sum /= static_cast<double>(std::max<size_t>(from.rows(), 1));
  }
  return out;
}

double pearson(std::span<const double> a, std::span<const double> b) {
  const auto count = static_cast<double>(a.size());
  const double mean_a = std::reduce(a.begin(), a.end()) / count;
  const double mean_b = std::reduce(b.begin(), b.end()) / count;
  double both = 0, of_a = 0, of_b = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    both += (a[i] - mean_a) * (b[i] - mean_b);
    of_a += (a[i] - mean_a) * (a[i] - mean_a);
    of_b += (b[i] - mean_b) * (b[i] - mean_b);
  }
  return of_a == 0 || of_b == 0 ? 0 : both / std::sqrt(of_a * of_b);
}

double spearman(std::span<const double> a, std::span<const double> b) {
  return pearson(ranks_of(a), ranks_of(b));
}

}  // namespace bowline::command
