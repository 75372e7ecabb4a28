// Shared by the forward and the backward pass of attention: block sizes, and the keys that a query
// sees.
#pragma once

#include <algorithm>
#include <concepts>

#include "compute/attention.h"

namespace bowline::detail::cpu {

// Number of queries and keys per block. The blocks of keys decide the order of the sums.
constexpr size_t kBlock = 64;
constexpr size_t blocks_of(size_t n) { return (n + kBlock - 1) / kBlock; }

template <class T>
const T* at(const AttentionInput<T>& x, size_t batch, size_t head, size_t position) {
  return x.data + batch * x.strides.batch + head * x.strides.head + position * x.strides.position;
}

template <class T>
T* at(const AttentionOutput<T>& x, size_t batch, size_t head, size_t position) {
  return x.data + batch * x.strides.batch + head * x.strides.head + position * x.strides.position;
}

// Number of keys of a batch element that can be visible.
inline size_t keys_of(const AttentionShape& s, size_t batch) {
  if (s.mask.lengths == nullptr) {
    return s.keys;
  }
  return std::min(s.keys, static_cast<size_t>(std::max(s.mask.lengths[batch], 0)));
}

// Number of keys that query i sees unless a mask hides them.
inline size_t visible_keys(const AttentionShape& s, size_t batch, size_t i) {
  const size_t keys = keys_of(s, batch);
  if (!s.causal) {
    return keys;
  }
  const size_t limit = i + 1 + s.keys;
  return limit <= s.queries ? 0 : std::min(keys, limit - s.queries);
}

// The first visible key of query i, if any key is visible.
inline size_t first_key(const AttentionShape& s, size_t i) {
  const size_t end = i + 1 + s.keys;
  const size_t hidden = s.queries + s.window;
  return s.window == 0 || end <= hidden ? 0 : end - hidden;
}

// The first query that sees key j; at most `queries`.
inline size_t first_query(const AttentionShape& s, size_t j) {
  if (!s.causal || j + s.queries <= s.keys) {
    return 0;
  }
  return std::min(s.queries, j + s.queries - s.keys);
}

// One past the last query that sees key j; at most `queries`.
inline size_t end_of_queries(const AttentionShape& s, size_t j) {
  const size_t limit = j + s.queries + s.window;
  return s.window == 0 ? s.queries : limit <= s.keys ? 0 : std::min(s.queries, limit - s.keys);
}

template <class T>
constexpr bool kWide = std::same_as<T, float>;

// Number of floats that a converted block of 16-bit rows needs.
template <class T>
constexpr size_t row_floats(size_t dim) {
  return kWide<T> ? 0 : kBlock * dim;
}

template <class T>
void clear_rows(const AttentionOutput<T>& x, size_t batch, size_t head, size_t begin, size_t end,
                size_t dim) {
  for (size_t j = begin; j < end; ++j) {
    std::fill_n(at(x, batch, head, j), dim, T{});
  }
}

}  // namespace bowline::detail::cpu
