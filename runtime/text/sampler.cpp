// When the largest logits determine the token. Let b be the smallest of the K known logits. Every
// other logit is at most b, and a penalty of at least 1 makes no logit larger, so:
//
// - A logit larger than b after the penalty is larger than all unknown logits. So these logits are
//   the first of all tokens. Without a penalty all K are, because ties are ordered by id.
// - Greedy needs the first token, top-k the first k. min-p needs the tokens down to a bound, and
//   one more below the bound.
// - The probabilities of top-p are relative to the tokens that top-k left. Without top-k they are
//   relative to all tokens, by the lse of the device. That lse is of the logits without penalty, so
//   if the penalty changes a logit, all logits are needed.
// - Without top-k, top-p and min-p any token may be drawn. The lse of the device bounds the sum of
//   the probabilities of the unknown tokens, at any temperature (total_of). The token is determined
//   if every sum within the bounds draws the same known token.
//
// Source  the order and definition of the steps: llama.cpp (src/llama-sampling.cpp), its default
//         chain.
#include "text/sampler.h"

#include <algorithm>
#include <cmath>

#include "base/boundary.h"
#include "base/random.h"

namespace bowline::text {
namespace {

struct Candidate {
  float logit = 0;
  int32_t id = 0;
};

// True if b precedes a.
bool is_behind(const Candidate& a, const Candidate& b) {
  return a.logit < b.logit || (a.logit == b.logit && a.id > b.id);
}

// The candidates in descending order, as far as they are known.
class Order {
 public:
  Order(const SamplerOptions& options, const Logits& logits, std::span<const int32_t> window) {
    const bool is_all = !logits.all.empty();
    const size_t known = is_all ? logits.all.size() : logits.top.size();
    heap_.reserve(known);
    for (size_t i = 0; i < known; ++i) {
      heap_.push_back(is_all ? Candidate{logits.all[i], static_cast<int32_t>(i)}
                             : Candidate{logits.top[i], logits.ids[i]});
    }
    const bool has_rest = known < logits.vocabulary;
    const float least = has_rest ? logits.top.back() : 0;
    penalised_ = options.repetition_penalty != 1 && !window.empty();
    if (penalised_) {
      penalise(options.repetition_penalty, window);
      has_bound_ = has_rest;
      bound_ = least;
    }
    std::ranges::make_heap(heap_, is_behind);
  }

  // Returns the next candidate. Empty: it is not known, or there are no more.
  std::optional<Candidate> next() {
    if (heap_.empty() || (has_bound_ && heap_.front().logit <= bound_)) {
      return std::nullopt;
    }
    std::ranges::pop_heap(heap_, is_behind);
    const Candidate out = heap_.back();
    heap_.pop_back();
    return out;
  }
  bool penalised() const { return penalised_; }
  // The remaining candidates, in any order but the first.
  std::span<const Candidate> rest() const { return heap_; }
  // Log of the sum of e^logit over the remaining candidates.
  double lse() const {
    const double most = heap_.empty() ? 0 : static_cast<double>(heap_.front().logit);
    double sum = 0;
    for (const Candidate& c : heap_) {
      sum += std::exp(static_cast<double>(c.logit) - most);
    }
    return most + std::log(sum);
  }

 private:
  void penalise(float penalty, std::span<const int32_t> window) {
    std::vector<int32_t> ids(window.begin(), window.end());
    std::ranges::sort(ids);
    for (Candidate& c : heap_) {
      if (std::ranges::binary_search(ids, c.id)) {
        c.logit = c.logit > 0 ? c.logit / penalty : c.logit * penalty;
      }
    }
  }

  std::vector<Candidate> heap_;
  bool penalised_ = false;
  bool has_bound_ = false;
  float bound_ = 0;
};

// A value in [0, 1) with 53 bits.
double uniform(uint64_t seed, uint64_t position) {
  const RandomBlock bits =
      philox({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0, 0},
             {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t joined = (uint64_t{bits[0]} << 32 | bits[1]) >> 11;
  return static_cast<double>(joined) * 0x1p-53;
}

double lse_of(std::span<const Candidate> kept) {
  double sum = 0;
  for (const Candidate& c : kept) {
    sum += std::exp(static_cast<double>(c.logit - kept[0].logit));
  }
  return static_cast<double>(kept[0].logit) + std::log(sum);
}

// Applies top-p and min-p to candidates in descending order. `lse` normalizes the probabilities.
class Cut {
 public:
  Cut(const SamplerOptions& options, double lse) : options_(options), lse_(lse) {}

  // Takes a candidate. Returns false if the cut is complete without it.
  bool take(const Candidate& c) {
    if (kept.empty()) {
      least_ = options_.min_p == 0 ? -INFINITY : c.logit + std::log(options_.min_p);
    }
    if (done_ || c.logit < least_) {
      return false;
    }
    kept.push_back(c);
    if (options_.top_p < 1) {
      sum_ += std::exp(static_cast<double>(c.logit) - lse_);
      done_ = sum_ >= static_cast<double>(options_.top_p);
    }
    return !done_;
  }

  std::vector<Candidate> kept;

 private:
  const SamplerOptions& options_;
  double lse_;
  double sum_ = 0;
  float least_ = 0;
  bool done_ = false;
};

// The candidates that may be drawn, in descending order. Empty: they are not known.
std::optional<std::vector<Candidate>> remaining(const SamplerOptions& options, const Logits& logits,
                                                Order& order) {
  const auto top_k = static_cast<size_t>(options.top_k);
  if (top_k != 0) {
    std::vector<Candidate> first;
    while (first.size() < std::min(top_k, logits.vocabulary)) {
      const std::optional<Candidate> c = order.next();
      if (!c) {
        return std::nullopt;
      }
      first.push_back(*c);
    }
    Cut cut(options, lse_of(first));
    for (size_t i = 0; i < first.size() && cut.take(first[i]); ++i) {
    }
    return std::move(cut.kept);
  }
  const bool is_all = !logits.all.empty();
  if (!is_all && options.top_p < 1 && order.penalised()) {
    return std::nullopt;
  }
  Cut cut(options, order.penalised() ? order.lse() : static_cast<double>(logits.lse));
  std::optional<Candidate> c = order.next();
  while (c && cut.take(*c)) {
    c = order.next();
  }
  const bool is_known = c || is_all || logits.top.size() == logits.vocabulary;
  return is_known ? std::optional(std::move(cut.kept)) : std::nullopt;
}

// The weight of a logit at the temperature, relative to the largest logit.
double weight_of(const SamplerOptions& options, float logit, float largest) {
  return std::exp(static_cast<double>(logit - largest) / static_cast<double>(options.temperature));
}

struct Range {
  double low = 0;
  double high = 0;
};

// Bounds of the sum of the weights of the n unknown tokens. At temperature 1, let r be the sum of
// their weights and `most` the weight of the smallest known logit, so no weight w exceeds `most`.
// At another temperature, each becomes w^p with p = 1 / temperature. If p >= 1, the sum of w^p is
// at most r most^(p-1), and it is smallest if all w are equal: n (r/n)^p. If p < 1, the two bounds
// change places.
Range rest_of(const SamplerOptions& options, const Logits& logits) {
  const auto n = static_cast<double>(logits.vocabulary - logits.top.size());
  const auto largest = static_cast<double>(logits.top.front());
  const double most = std::exp(static_cast<double>(logits.top.back()) - largest);
  if (n == 0 || most == 0) {
    return {};
  }
  double known = 0;
  for (const float logit : logits.top) {
    known += std::exp(static_cast<double>(logit) - largest);
  }
  // The device adds numbers of at most 1 in f32, in a tree or in several partial sums.
  constexpr double kRoundings = 64 * 0x1p-24;
  const auto lse = static_cast<double>(logits.lse);
  const double error = kRoundings * (1 + std::abs(lse));
  const Range r = {std::max(std::exp(lse - error - largest) - known, 0.0),
                   std::min(std::exp(lse + error - largest) - known, n * most)};
  const double p = 1 / static_cast<double>(options.temperature);
  const double of_equal = n * std::pow(std::max(p < 1 ? r.high : r.low, 0.0) / n, p);
  const double of_largest = (p < 1 ? r.low : std::max(r.high, 0.0)) * std::pow(most, p - 1);
  return p < 1 ? Range{of_largest, of_equal} : Range{of_equal, of_largest};
}

// Bounds of the sum of the weights of all tokens, in every order of the additions.
Range total_of(const SamplerOptions& options, const Logits& logits, const Order& order) {
  const bool is_known = !logits.all.empty() || logits.top.size() == logits.vocabulary;
  if (order.rest().empty() || (!is_known && order.penalised())) {
    return {0, INFINITY};
  }
  double sum = 0;
  for (const Candidate& c : order.rest()) {
    sum += weight_of(options, c.logit, order.rest().front().logit);
  }
  const Range rest = is_known ? Range{} : rest_of(options, logits);
  const double error = static_cast<double>(logits.vocabulary + 4) * 0x1p-52;
  return {(sum + rest.low) * (1 - error), (sum + rest.high) * (1 + error)};
}

// The first token at which the sum of the weights exceeds the part `at` of the total. Empty: this
// is not the same token for every total in the range.
std::optional<int32_t> drawn_within(const SamplerOptions& options, Order& order, double at,
                                    const Range& total) {
  const Range wanted = {at * total.low, at * total.high};
  double sum = 0;
  float largest = -INFINITY;
  while (const std::optional<Candidate> c = order.next()) {
    largest = std::max(largest, c->logit);
    sum += weight_of(options, c->logit, largest);
    if (!(sum <= wanted.low)) {
      return sum > wanted.high ? std::optional(c->id) : std::nullopt;
    }
  }
  return std::nullopt;
}

}  // namespace

Status check(const SamplerOptions& o) {
  const auto text = [](float x) { return std::to_string(x); };
  BOWLINE_REQUIRE(o.temperature >= 0 && std::isfinite(o.temperature),
                  "The temperature ({}) is not a finite number >= 0.", text(o.temperature));
  BOWLINE_REQUIRE(o.top_k >= 0, "top_k ({}) is negative.", o.top_k);
  BOWLINE_REQUIRE(o.top_p > 0 && o.top_p <= 1, "top_p ({}) is not above 0 and at most 1.",
                  text(o.top_p));
  BOWLINE_REQUIRE(o.min_p >= 0 && o.min_p <= 1, "min_p ({}) is not between 0 and 1.",
                  text(o.min_p));
  BOWLINE_REQUIRE(o.repetition_penalty >= 1 && std::isfinite(o.repetition_penalty),
                  "The repetition penalty ({}) is not a finite number >= 1.",
                  text(o.repetition_penalty));
  BOWLINE_REQUIRE(o.repetition_window >= 0, "The repetition window ({}) is negative.",
                  o.repetition_window);
  return {};
}

std::optional<int32_t> draw(const SamplerOptions& options, const Logits& logits,
                            std::span<const int32_t> window, uint64_t position) {
  Order order(options, logits, window);
  if (options.temperature == 0) {
    const std::optional<Candidate> first = order.next();
    return first ? std::optional(first->id) : std::nullopt;
  }
  const double at = uniform(options.seed, position);
  if (options.top_k == 0 && options.top_p == 1 && options.min_p == 0) {
    const std::optional<int32_t> id =
        drawn_within(options, order, at, total_of(options, logits, order));
    if (id || logits.all.empty()) {
      return id;
    }
    order = Order(options, logits, window);
  }
  const std::optional<std::vector<Candidate>> kept = remaining(options, logits, order);
  if (!kept || kept->empty()) {
    return std::nullopt;
  }
  std::vector<double> sums;
  double sum = 0;
  for (const Candidate& c : *kept) {
    sum += weight_of(options, c.logit, kept->front().logit);
    sums.push_back(sum);
  }
  const auto chosen = std::ranges::upper_bound(sums, at * sum);
  const size_t last = kept->size() - 1;
  return (*kept)[std::min(static_cast<size_t>(chosen - sums.begin()), last)].id;
}

}  // namespace bowline::text
