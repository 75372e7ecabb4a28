// Compares the sampler with a slow reference that sees all logits.
#include "text/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "base/random.h"

namespace bowline::text {
namespace {

struct Row {
  std::vector<float> all;
  std::vector<float> top;
  std::vector<int32_t> ids;
  float lse = 0;

  Row(std::vector<float> logits, size_t k) : all(std::move(logits)) {
    std::vector<int32_t> order(all.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::greater(),
                             [&](int32_t id) { return all[static_cast<size_t>(id)]; });
    double sum = 0;
    for (const float x : all) {
      sum += std::exp(static_cast<double>(x - all[static_cast<size_t>(order[0])]));
    }
    lse =
        static_cast<float>(static_cast<double>(all[static_cast<size_t>(order[0])]) + std::log(sum));
    order.resize(std::min(k, order.size()));
    for (const int32_t id : order) {
      ids.push_back(id);
      top.push_back(all[static_cast<size_t>(id)]);
    }
  }
  Logits largest() const { return {top, ids, lse, {}, all.size()}; }
  Logits whole() const { return {top, ids, lse, all, all.size()}; }
};

// Random values from 0 to 1 with a seed.
class Numbers {
 public:
  explicit Numbers(uint32_t seed) : seed_(seed) {}
  double next() {
    const RandomBlock r = philox({++count_, 0, 0, 0}, {seed_, 9});
    return r[0] * 0x1p-32;
  }
  size_t below(size_t n) { return static_cast<size_t>(next() * static_cast<double>(n)); }

 private:
  uint32_t seed_;
  uint32_t count_ = 0;
};

// The sampler chain of llama.cpp on the probabilities of all tokens, in double precision.
int32_t reference(const SamplerOptions& o, const std::vector<float>& all,
                  std::span<const int32_t> window, uint64_t position) {
  std::vector<std::pair<float, int32_t>> rows;
  const std::set<int32_t> seen(window.begin(), window.end());
  for (size_t i = 0; i < all.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    const float x = all[i];
    const float p = seen.contains(id) ? o.repetition_penalty : 1;
    rows.emplace_back(x > 0 ? x / p : x * p, id);
  }
  std::ranges::stable_sort(rows, [](const auto& a, const auto& b) { return a.first > b.first; });
  if (o.temperature == 0) {
    return rows[0].second;
  }
  if (o.top_k > 0) {
    rows.resize(std::min(rows.size(), static_cast<size_t>(o.top_k)));
  }
  const auto probabilities = [&](double temperature) {
    std::vector<double> p;
    for (const auto& row : rows) {
      p.push_back(std::exp(static_cast<double>(row.first - rows[0].first) / temperature));
    }
    const double sum = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& x : p) {
      x /= sum;
    }
    return p;
  };
  if (o.top_p < 1) {
    const std::vector<double> p = probabilities(1);
    double sum = 0;
    size_t n = 0;
    while (n < p.size() && sum < static_cast<double>(o.top_p)) {
      sum += p[n++];
    }
    rows.resize(n);
  }
  if (o.min_p > 0) {
    const std::vector<double> p = probabilities(1);
    size_t n = 0;
    while (n < p.size() && p[n] >= static_cast<double>(o.min_p) * p[0]) {
      ++n;
    }
    rows.resize(n);
  }
  const std::vector<double> p = probabilities(static_cast<double>(o.temperature));
  const RandomBlock bits =
      philox({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0, 0},
             {static_cast<uint32_t>(o.seed), static_cast<uint32_t>(o.seed >> 32)});
  double left = static_cast<double>((uint64_t{bits[0]} << 32 | bits[1]) >> 11) * 0x1p-53;
  for (size_t i = 0; i < p.size(); ++i) {
    left -= p[i];
    if (left < 0) {
      return rows[i].second;
    }
  }
  return rows.back().second;
}

std::vector<float> some_logits(Numbers& draw, size_t n) {
  std::vector<float> out;
  const double spread = 0.5 + 6 * draw.next();
  // Sometimes only few distinct values, so that many are equal.
  const double grid = draw.below(3) == 0 ? 2 : 4096;
  // Sometimes a mask hides most tokens.
  const bool hides = draw.below(5) == 0;
  for (size_t i = 0; i < n; ++i) {
    const double x = (draw.next() + draw.next() + draw.next() - 1.5) * spread;
    const bool is_hidden = hides && draw.below(8) != 0;
    out.push_back(is_hidden ? -INFINITY : static_cast<float>(std::round(x * grid) / grid));
  }
  out[0] = std::max(out[0], -4.0f);
  return out;
}

SamplerOptions some_options(Numbers& draw) {
  SamplerOptions o;
  o.temperature = draw.below(4) == 0 ? 0 : static_cast<float>(0.3 + 1.5 * draw.next());
  o.top_k = draw.below(2) == 0 ? 0 : static_cast<int32_t>(1 + draw.below(40));
  o.top_p = draw.below(2) == 0 ? 1 : static_cast<float>(0.05 + 0.94 * draw.next());
  o.min_p = draw.below(2) == 0 ? 0 : static_cast<float>(0.01 + 0.5 * draw.next());
  o.repetition_penalty = draw.below(2) == 0 ? 1 : static_cast<float>(1 + draw.next());
  o.seed = draw.below(1 << 20);
  return o;
}

TEST(Sampler, TheLargestLogitsDecideWhatAllDo) {
  Numbers draw_numbers(1);
  size_t decided = 0, left_open = 0;
  for (uint64_t i = 0; i < 4000; ++i) {
    const Row row(some_logits(draw_numbers, 20 + draw_numbers.below(300)), 24);
    const SamplerOptions o = some_options(draw_numbers);
    std::vector<int32_t> window(draw_numbers.below(12));
    for (int32_t& id : window) {
      id = static_cast<int32_t>(draw_numbers.below(row.all.size()));
    }
    const int32_t wanted = reference(o, row.all, window, i);
    const std::optional<int32_t> by_top = draw(o, row.largest(), window, i);
    ASSERT_EQ(draw(o, row.whole(), window, i), wanted) << i;
    if (by_top) {
      ASSERT_EQ(*by_top, wanted) << i;
    }
    ++(by_top ? decided : left_open);
  }
  EXPECT_GT(decided, 1500u);
  EXPECT_GT(left_open, 500u);
}

// Logits of a language model: the probability of a token falls with its rank.
std::vector<float> logits_by_rank(size_t n, double fall, Numbers& draw) {
  std::vector<float> out(n);
  for (size_t i = 0; i < n; ++i) {
    const double noise = draw.next() - 0.5;
    out[i] = static_cast<float>(-30 - fall * std::log(1 + static_cast<double>(i)) + noise);
  }
  return out;
}

// Any token may be drawn, but the largest logits and the lse mostly decide which.
TEST(Sampler, TheLargestLogitsMostlyDecideADrawFromAllTokens) {
  Numbers draw_numbers(2);
  for (const float temperature : {0.5f, 0.8f, 1.0f, 1.2f}) {
    const Row row(logits_by_rank(20000, 1.6, draw_numbers), 256);
    int decided = 0;
    for (uint64_t i = 0; i < 25; ++i) {
      const SamplerOptions o = {.temperature = temperature, .seed = i};
      const std::optional<int32_t> by_top = draw(o, row.largest(), {}, i);
      const int32_t wanted = reference(o, row.all, {}, i);
      ASSERT_EQ(draw(o, row.whole(), {}, i), wanted) << i;
      ASSERT_EQ(by_top.value_or(wanted), wanted) << i;
      decided += by_top ? 1 : 0;
    }
    EXPECT_GE(decided, temperature <= 1 ? 22 : 5) << temperature;
  }
}

// The part of the total that is drawn, if all of `tokens` logits are equal: the token is its floor.
double part_drawn(uint64_t seed, uint64_t position, size_t tokens) {
  const RandomBlock bits =
      philox({static_cast<uint32_t>(position), 0, 0, 0}, {static_cast<uint32_t>(seed), 0});
  const auto joined = static_cast<double>((uint64_t{bits[0]} << 32 | bits[1]) >> 11);
  return joined * 0x1p-53 * static_cast<double>(tokens);
}

TEST(Sampler, TheLseMayHaveRoundingErrors) {
  Row row(std::vector<float>(1024, -30.0f), 256);
  const float error = 48 * 0x1p-24f * (1 + std::abs(row.lse));
  int decided = 0;
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    Logits known = row.largest();
    known.lse += seed % 2 == 0 ? error : -error;
    const SamplerOptions o = {.temperature = 1, .seed = seed};
    if (const std::optional<int32_t> id = draw(o, known, {}, 0)) {
      ASSERT_EQ(*id, static_cast<int32_t>(part_drawn(seed, 0, 1024))) << seed;
      ++decided;
    }
  }
  EXPECT_GT(decided, 800);
}

// The seed draws a part so close to the border of two tokens that the order of the additions could
// decide.
TEST(Sampler, ADrawAtTheBorderOfTwoTokensIsExact) {
  constexpr size_t kTokens = 1 << 20;
  const Row row(std::vector<float>(kTokens, 2.0f), 256);
  SamplerOptions o = {.temperature = 1};
  const auto is_at_a_border = [](double part) {
    return part > 1 && std::abs(part - std::round(part)) < part * kTokens * 0x1p-53;
  };
  while (!is_at_a_border(part_drawn(o.seed, 7, kTokens))) {
    ++o.seed;
  }
  EXPECT_EQ(draw(o, row.whole(), {}, 7), static_cast<int32_t>(part_drawn(o.seed, 7, kTokens)));
}

// A penalty may move the largest logits below unknown ones.
TEST(Sampler, WhatAPenaltyMayMoveBelowTheRestIsLeftOpen) {
  const Row row({4, 3.9f, 3.8f, 3.7f}, 2);
  SamplerOptions o;
  o.repetition_penalty = 2;
  const std::vector<int32_t> one = {0}, both = {0, 1};
  EXPECT_EQ(draw(o, row.largest(), {}, 0), 0);
  EXPECT_EQ(draw(o, row.largest(), one, 0), std::nullopt);  // 3.9 equals the smallest known logit
  EXPECT_EQ(draw(o, row.largest(), both, 0), std::nullopt);
  EXPECT_EQ(draw(o, row.whole(), both, 0), 2);
}

TEST(Sampler, ProbabilitiesAreThoseOfTheTemperature) {
  const Row row({1, 0, 2}, 3);
  SamplerOptions o;
  o.temperature = 2;
  std::map<int32_t, int> counts;
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) {
    ++counts[*draw(o, row.whole(), {}, static_cast<uint64_t>(i))];
  }
  const double sum = std::exp(0.5) + 1 + std::exp(1.0);
  // Four standard deviations of a count.
  EXPECT_NEAR(counts[0], kDraws * std::exp(0.5) / sum, 4 * std::sqrt(kDraws * 0.25));
  EXPECT_NEAR(counts[2], kDraws * std::exp(1.0) / sum, 4 * std::sqrt(kDraws * 0.25));
}

TEST(Sampler, TheSeedAndThePositionDecide) {
  const Row row(std::vector<float>(64, 0.0f), 64);
  SamplerOptions o;
  o.temperature = 1;
  std::set<int32_t> by_position, by_seed;
  for (uint64_t i = 0; i < 20; ++i) {
    by_position.insert(*draw(o, row.whole(), {}, i));
    SamplerOptions other = o;
    other.seed = i + 1;
    by_seed.insert(*draw(other, row.whole(), {}, 0));
    EXPECT_EQ(draw(o, row.whole(), {}, i), draw(o, row.whole(), {}, i));
  }
  EXPECT_GT(by_position.size(), 8u);
  EXPECT_GT(by_seed.size(), 8u);
}

TEST(Sampler, OptionsOutsideTheirRangeAreRefused) {
  const auto refused = [](auto change, const char* text) {
    SamplerOptions o;
    change(o);
    const Status s = check(o);
    EXPECT_EQ(s.code(), Code::bad_argument);
    EXPECT_NE(s.message().find(text), std::string::npos) << s.message();
  };
  EXPECT_TRUE(check(SamplerOptions{}).ok());
  refused([](auto& o) { o.temperature = -1; }, "temperature (-1");
  refused([](auto& o) { o.temperature = INFINITY; }, "temperature");
  refused([](auto& o) { o.top_k = -2; }, "top_k (-2");
  refused([](auto& o) { o.top_p = 0; }, "top_p (0");
  refused([](auto& o) { o.top_p = NAN; }, "top_p");
  refused([](auto& o) { o.min_p = 1.5f; }, "min_p (1.5");
  refused([](auto& o) { o.repetition_penalty = 0.5f; }, "repetition penalty (0.5");
  refused([](auto& o) { o.repetition_window = -1; }, "repetition window (-1");
}

}  // namespace
}  // namespace bowline::text
