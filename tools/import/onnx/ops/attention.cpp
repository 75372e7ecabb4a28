// Attention, rotary embeddings and linear attention.
//
// Source  ONNX operators, Attention (operator sets 23 on) and RotaryEmbedding; ONNX Runtime,
//         docs/ContribOperators.md.
#include <algorithm>
#include <cmath>

#include "onnx/lowering.h"

namespace bowline::onnx {
namespace {

// Reshapes [batch, length, heads * size] to [batch, heads, length, size].
Term by_heads(Context& c, const Term& x, int64_t heads) {
  require(x.rank() == 3 && heads >= 1 && x.dims[2] % heads == 0,
          "{} cannot be split into {} heads.", x.dims, heads);
  const Term split = c.m.reshape(x, {x.dims[0], x.dims[1], heads, x.dims[2] / heads});
  return c.m.transpose(split, {0, 2, 1, 3});
}

// Converts [batch, heads, length, size] to Bowline's order [batch, length, heads, size].
Term rows_of_heads(Context& c, const Term& x) { return c.m.transpose(x, {0, 2, 1, 3}); }

struct Scores {
  double scale = 0;
  double softcap = 0;
  bool causal = false;  // the last query attends to all keys
  Term mask = {};       // (optional) added to the scores
};

Term attention_of(Context& c, const Scores& s, const Term& q, const Term& k, const Term& v) {
  const int64_t size = std::max(q.dims[3], v.dims[3]);
  std::vector<Attribute> attributes = {
      {"scale", s.scale}, {"softcap", s.softcap}, {"causal", s.causal}};
  Terms in;
  for (const Term* const x : {&q, &k, &v}) {
    in.push_back(rows_of_heads(c, with_length(c, *x, 3, size)));
  }
  if (s.mask) {
    attributes.emplace_back("mask", "additive");
    in.push_back(s.mask);
  }
  const Terms y = c.m.ops("Attention", in, attributes,
                          {{q.dtype, in[0].dims}, {DType::f32, q.dims.part(0, 3)}});
  return rows_of_heads(c, c.m.slice(y[0], 3, 0, v.dims[3]));
}

// Returns the scores after a stage: 0 products, 1 soft-capped, 2 masked, 3 softmax.
Term scores_of(Context& c, const Scores& s, const Term& q, const Term& k, int64_t stage) {
  const int64_t shared = q.dims[1] / k.dims[1];
  const Term queries =
      c.m.reshape(q * s.scale, {q.dims[0], k.dims[1], shared, q.dims[2], q.dims[3]});
  const Term keys = c.m.reshape(k, {k.dims[0], k.dims[1], 1, k.dims[2], k.dims[3]});
  Term y = c.m.reshape(c.m.matmul(queries, keys, false, true),
                       {q.dims[0], q.dims[1], q.dims[2], k.dims[2]});
  if (stage >= 1 && s.softcap > 0) {
    y = tanh(y * (1 / s.softcap)) * s.softcap;
  }
  if (stage >= 2 && s.mask) {
    y = y + s.mask;
  }
  if (stage < 3) {
    return y;
  }
  // A row without any visible key becomes zeros.
  const Term top = c.m.reduce("ReduceMax", y, {3}, true);
  const Term none = top == -INFINITY;
  const Term zero = scalar_like(y, 0);
  return where(none, zero, c.m.unary("Softmax", where(none, zero, y), {{"axis", -1}}));
}

Term added_where(Context& c, const Term& seen, DType dtype) {
  return where(seen, c.m.scalar(dtype, 0), c.m.scalar(dtype, -INFINITY));
}

// Returns the additive mask. A mask may be shorter than the keys; the remaining keys are hidden.
Term mask_of(Context& c, const Term& given, DType dtype, int64_t keys) {
  require(given.rank() >= 1 && given.dims.back() <= keys, "Mask {} does not fit {} keys.",
          given.dims, keys);
  require(given.dtype == DType::boolean || given.dtype == dtype,
          "A mask of {} does not fit queries of {}.", given.dtype, dtype);
  const Term mask = given.dtype == DType::boolean ? added_where(c, given, dtype) : given;
  const int64_t missing = given.dims.back() == 1 ? 0 : keys - given.dims.back();
  if (missing == 0) {
    return mask;
  }
  const Term hidden = c.m.filled(dtype, given.dims.with_last(missing), -INFINITY);
  return c.m.concat({mask, hidden}, -1);
}

void add_mask(Scores& s, const Term& mask) { s.mask = s.mask ? s.mask + mask : mask; }

// Query i attends to key j if left <= i + offset - j <= right. A limit of -1 is unbounded. The
// offset is a tensor [batch, 1, 1, 1] or, if it is missing, a constant.
Term window(Context& c, int64_t queries, int64_t keys, const Term& offset, int64_t fixed,
            std::optional<int64_t> least, int64_t most) {
  Term distance = c.m.count_along(0, 2, queries) - c.m.count(DType::i32, keys);
  distance = offset ? c.m.reshape(distance, {1, 1, queries, keys}) + offset : distance + fixed;
  if (!least) {
    return distance <= most;
  }
  const Term seen = distance >= *least;
  return most >= 0 ? seen & (distance <= most) : seen;
}

// The inputs of Attention, as [batch, heads, length, size].
struct Heads {
  Term q, k, v;
  bool flat = false;  // the node has [batch, length, heads * size]
  int64_t past = 0;   // keys of the cache
};

Heads heads_of(Context& c) {
  Heads h{c.in(0), c.in(1), c.in(2)};
  auto& [q, k, v, flat, past] = h;
  const int64_t q_heads = c.integer("q_num_heads", 0), kv_heads = c.integer("kv_num_heads", 0);
  flat = q.rank() == 3;
  if (flat) {
    q = by_heads(c, q, q_heads);
    k = by_heads(c, k, kv_heads);
    v = by_heads(c, v, kv_heads);
  }
  for (const size_t i : {4, 5}) {
    if (const Term before = c.optional(i)) {
      require(before.rank() == 4, "The cache {} does not have 4 axes.", before.dims);
      past = before.dims[2];
      Term& now = i == 4 ? k : v;
      now = c.m.concat({before, now}, 2);
    }
  }
  const bool ranks = q.rank() == 4 && k.rank() == 4 && v.rank() == 4;
  const bool fits = ranks && q.dims[0] == k.dims[0] && k.dims[0] == v.dims[0] &&
                    q.dims[3] == k.dims[3] && k.dims[1] == v.dims[1] && k.dims[2] == v.dims[2] &&
                    k.dims[1] >= 1 && q.dims[1] % k.dims[1] == 0 && q.dims[3] >= 1 &&
                    v.dims[3] >= 1;
  require(fits, "Queries {}, keys {} and values {} do not fit.", q.dims, k.dims, v.dims);
  require(is_float(q.dtype), "The queries have dtype {}, not a float dtype.", q.dtype);
  support(q.dims[2] <= kMostComputed && k.dims[2] <= kMostComputed,
          "{} queries and {} keys are too many.", q.dims[2], k.dims[2]);
  return h;
}

Term attention(Context& c) {
  const bool causal = c.flag("is_causal", false);
  const int64_t left = c.integer("left_window_size", -1);
  const int64_t right = c.integer("right_window_size", -1);
  const int64_t stage = c.integer("qk_matmul_output_mode", 0);
  c.ignore("softmax_precision");  // always in f32
  const auto [q, k, v, flat, past] = heads_of(c);
  const int64_t queries = q.dims[2], keys = k.dims[2];
  Scores s{c.real("scale", 0), c.real("softcap", 0)};
  s.scale = s.scale == 0 ? 1 / std::sqrt(static_cast<double>(q.dims[3])) : s.scale;
  if (const Term given = c.optional(3)) {
    add_mask(s, mask_of(c, given, q.dtype, keys));
  }
  Term offset;  // number of keys before the queries, per batch row
  if (const Term given = c.optional(6)) {
    require(given.dims == Dims{q.dims[0]}, "Lengths {} do not fit a batch of {}.", given.dims,
            q.dims[0]);
    const Term length = c.m.reshape(cast(given, DType::i32), {q.dims[0], 1, 1, 1});
    offset = length - queries;
    add_mask(s, added_where(c, c.m.count(DType::i32, keys) < length, q.dtype));
  }
  const bool windows = left >= 0 || right >= 0;
  s.causal = causal && !offset && !windows && past == keys - queries && stage < 2;
  if ((causal && !s.causal) || windows) {
    const std::optional<int64_t> least = causal       ? std::optional<int64_t>(0)
                                         : right >= 0 ? std::optional(-right)
                                                      : std::nullopt;
    add_mask(s, added_where(c, window(c, queries, keys, offset, past, least, left), q.dtype));
  }
  const Term y = attention_of(c, s, q, k, v);
  c.out(1, k);
  c.out(2, v);
  if (c.wants(3)) {
    require(stage >= 0 && stage <= 3, "Qk_matmul_output_mode is {}.", stage);
    c.out(3, scores_of(c, s, q, k, stage));
  }
  return flat ? c.m.reshape(rows_of_heads(c, y), {q.dims[0], queries, q.dims[1] * v.dims[3]}) : y;
}

// A recurrent state of summed key-value products. Gated: the state decays at each step. Delta: a
// step adds only the difference from the value that the state predicts.
Term linear_attention(Context& c) {
  const Term x = c.in(0);
  const std::string rule =
      c.choice("update_rule", "gated_delta", "linear gated delta gated_delta", "Update rule");
  const int64_t q_heads = c.integer("q_num_heads", 0);
  const int64_t heads = c.integer("kv_num_heads", 0);
  double scale = c.real("scale", 0);
  c.ignore("chunk_size");  // does not change the result
  const bool delta = rule == "delta" || rule == "gated_delta";
  const bool gated = rule == "gated" || rule == "gated_delta";
  Term in[3];
  for (size_t i = 0; i < 3; ++i) {
    in[i] = by_heads(c, cast(c.in(i), DType::f32), i == 0 ? q_heads : heads);
  }
  const auto& [q, k, v] = in;  // [batch, heads, length, size]
  const int64_t length = k.dims[2];
  const bool fits = q.dims[0] == k.dims[0] && k.dims[0] == v.dims[0] && q.dims[2] == length &&
                    v.dims[2] == length && q.dims[3] == k.dims[3] && q_heads % heads == 0;
  require(fits, "Queries {}, keys {} and values {} do not fit.", q.dims, k.dims, v.dims);
  support(length >= 1 && length <= 4096,
          "{} steps are outside of 1 to 4096. Each step becomes separate nodes.", length);
  scale = scale == 0 ? 1 / std::sqrt(static_cast<double>(q.dims[3])) : scale;
  const Dims shape = {k.dims[0], heads, k.dims[3], v.dims[3]};
  Term state = c.m.filled(DType::f32, shape, 0);
  if (const Term past = c.optional(3)) {
    require(past.dims == shape, "The state {} is not {}.", past.dims, shape);
    state = cast(past, DType::f32);
  }
  Term decay, rate;
  if (gated) {
    const Term flat = c.in(4);
    decay = by_heads(c, cast(flat, DType::f32), heads);
    require(decay.dims[2] == length, "Decay {} does not fit {}.", flat.dims, x.dims);
    decay = exp(decay);
  }
  if (delta) {
    const Term flat = c.in(5);
    require(flat.rank() == 3, "Beta {} does not fit {}.", flat.dims, x.dims);
    rate = by_heads(c, cast(flat, DType::f32), flat.dims[2]);
  }
  const auto at = [&](const Term& values, int64_t t) { return c.m.slice(values, 2, t, 1); };
  Terms steps;
  for (int64_t t = 0; t < length; ++t) {
    const Term key = at(k, t);
    Term value = at(v, t);
    if (gated) {
      state = state * c.m.transpose(at(decay, t), {0, 1, 3, 2});
    }
    if (delta) {
      value = (value - c.m.matmul(key, state)) * at(rate, t);
    }
    state = state + c.m.transpose(key, {0, 1, 3, 2}) * value;
    const Term query = c.m.reshape(at(q, t), {q.dims[0], heads, q_heads / heads, q.dims[3]});
    steps.push_back(c.m.reshape(c.m.matmul(query, state), {q.dims[0], 1, q_heads * v.dims[3]}));
  }
  c.out(1, cast(state, x.dtype));
  return cast(c.m.concat(steps, 1) * scale, x.dtype);
}

// Rotates pairs of the first `turned` elements of the last axis of [batch, .., size]. The cosines
// and sines of the angles broadcast.
Term rotated(Context& c, const Term& x, const Term& cosine, const Term& sine, int64_t turned,
             bool interleaved) {
  const auto rank = static_cast<int64_t>(x.rank());
  const int64_t half = turned / 2;
  const Term part = c.m.slice(x, -1, 0, turned);
  const Term both = interleaved ? c.m.reshape(part, part.dims.with_last(half).joined({2})) : part;
  const Term a = interleaved ? c.m.at(both, -1, 0) : c.m.slice(part, -1, 0, half);
  const Term b = interleaved ? c.m.at(both, -1, 1) : c.m.slice(part, -1, half, half);
  const Term real = a * cosine - b * sine;
  const Term imaginary = a * sine + b * cosine;
  const Term y = interleaved ? c.m.reshape(c.m.stack({real, imaginary}, rank), part.dims)
                             : c.m.concat({real, imaginary}, -1);
  const int64_t rest = x.dims.back() - turned;
  return rest == 0 ? y : c.m.concat({y, c.m.slice(x, -1, turned, rest)}, -1);
}

// ONNX passes the optional positions after the tables. ONNX Runtime passes them before the tables,
// and may pass only the first position.
Term rotary_embedding(Context& c, const Term& x, Term cosine, Term sine, const Term& positions) {
  const int64_t heads = c.integer("num_heads", 0);
  const bool interleaved = c.flag("interleaved", false);
  const int64_t given = c.integer("rotary_embedding_dim", 0);
  const bool flat = x.rank() == 3;
  require(flat || x.rank() == 4, "{} does not have 3 or 4 axes.", x.dims);
  const int64_t length = flat ? x.dims[1] : x.dims[2];
  Term rows = x;
  if (flat) {
    // Without a head count the width of the tables gives the head size.
    const int64_t size = given == 0 && heads == 0 ? 2 * cosine.dims.back() : 0;
    const int64_t count = heads > 0 ? heads : size > 0 ? x.dims[2] / size : 0;
    rows = by_heads(c, x, count);
  }
  const int64_t turned = given == 0 ? rows.dims[3] : given;
  if (positions) {
    require(cosine.rank() == 2 && sine.dims == cosine.dims, "Tables {} and {} do not have 2 axes.",
            cosine.dims, sine.dims);
    const Term i = i32_indices(positions, cosine.dims[0]);
    cosine = c.m.gather(cosine, i, 0);
    sine = c.m.gather(sine, i, 0);
  }
  const bool fits = cosine.rank() == 3 && cosine.dims == sine.dims && turned >= 2 &&
                    turned <= rows.dims[3] && turned == 2 * cosine.dims[2] &&
                    cosine.dims[1] == length &&
                    (cosine.dims[0] == 1 || cosine.dims[0] == x.dims[0]);
  require(fits, "Cosines {} and sines {} do not fit {}.", cosine.dims, sine.dims, x.dims);
  const Dims beside = {cosine.dims[0], 1, length, cosine.dims[2]};
  const Term y =
      rotated(c, rows, c.m.reshape(cosine, beside), c.m.reshape(sine, beside), turned, interleaved);
  return flat ? c.m.reshape(rows_of_heads(c, y), x.dims) : y;
}

Term rotary_embedding_of_onnx(Context& c) {
  return rotary_embedding(c, c.in(0), c.in(1), c.in(2), c.optional(3));
}

Term rotary_embedding_of_runtime(Context& c) {
  const Term x = c.in(0);
  Term positions = c.in(1);
  const double scale = c.real("scale", 1);
  const int64_t packed = c.integer("is_packed_batching", 0);
  support(scale == 1 && packed == 0, "A scale of {} or packed batches ({}) are not supported.",
          scale, packed);
  require(x.rank() == 3 || x.rank() == 4, "{} does not have 3 or 4 axes.", x.dims);
  if (positions.elements() == 1) {
    const int64_t length = x.rank() == 3 ? x.dims[1] : x.dims[2];
    positions = c.m.reshape(cast(positions, DType::i32), {1, 1}) + c.m.count_along(1, 2, length);
  }
  return rotary_embedding(c, x, c.in(2), c.in(3), positions);
}

constexpr Lowering kAttentionLowerings[] = {
    {"Attention", attention},
    {"LinearAttention", linear_attention},
    {"RotaryEmbedding", rotary_embedding_of_onnx},
    {"RotaryEmbedding", rotary_embedding_of_runtime, kMicrosoft},
};

}  // namespace

std::span<const Lowering> lowerings_of_attention() { return kAttentionLowerings; }

}  // namespace bowline::onnx
