// Attention, rotary embeddings and linear attention.
//
// Source  ONNX operators, Attention (operator sets 23 on) and RotaryEmbedding; ONNX Runtime,
//         docs/ContribOperators.md.
#include <algorithm>
#include <cmath>

#include "base/escape.h"
#include "onnx/lowering.h"

namespace bowline::onnx {
namespace {

// Reshapes [batch, length, heads * size] to [batch, heads, length, size].
Result<Term> by_heads(Context& c, const Term& x, int64_t heads) {
  BOWLINE_REQUIRE_CODE(x.rank() == 3 && heads >= 1 && x.dims[2] % heads == 0, Code::bad_file,
                       "{} cannot be split into {} heads.", shape_text(x.dims), heads);
  const Term split = c.m.reshape(x, {x.dims[0], x.dims[1], heads, x.dims[2] / heads});
  return c.m.transpose(split, {0, 2, 1, 3});
}

// Pads the last axis with zeros to `length` elements.
Term longer_rows(Context& c, const Term& x, int64_t length) {
  Dims dims = x.dims;
  if (dims.back() == length) {
    return x;
  }
  std::vector<int64_t> end(x.rank(), 0);
  end.back() = length - dims.back();
  dims.back() = length;
  const std::vector<int64_t> begin(x.rank(), 0);
  return c.m.op("Pad", {x}, {{"begin", graph_dims(begin)}, {"end", graph_dims(end)}}, x.dtype,
                dims);
}

// Converts [batch, heads, length, size] to Bowline's order [batch, length, heads, size].
Term rows_of_heads(Context& c, const Term& x) { return c.m.transpose(x, {0, 2, 1, 3}); }

struct Scores {
  double scale = 0;
  double softcap = 0;
  bool causal = false;  // the last query attends to all keys
  bool masked = false;
  Term mask;  // added to the scores
};

Term attention_of(Context& c, const Scores& s, const Term& q, const Term& k, const Term& v) {
  const int64_t size = std::max(q.dims[3], v.dims[3]);
  std::vector<Attribute> attributes = {
      {"scale", s.scale}, {"softcap", s.softcap}, {"causal", s.causal}};
  Terms in = {rows_of_heads(c, longer_rows(c, q, size)), rows_of_heads(c, longer_rows(c, k, size)),
              rows_of_heads(c, longer_rows(c, v, size))};
  if (s.masked) {
    attributes.emplace_back("mask", "additive");
    in.push_back(s.mask);
  }
  const Dims dims = in[0].dims;
  const Dims rows = {q.dims[0], q.dims[1], q.dims[2]};
  const Terms y = c.m.ops("Attention", in, attributes, {{q.dtype, dims}, {DType::f32, rows}});
  return rows_of_heads(c, c.m.slice(y[0], 3, 0, v.dims[3]));
}

// Returns the scores after a stage: 0 products, 1 soft-capped, 2 masked, 3 softmax.
Term scores_of(Context& c, const Scores& s, const Term& q, const Term& k, int64_t stage) {
  const int64_t shared = q.dims[1] / k.dims[1];
  const Term queries =
      c.m.reshape(c.m.mul(q, s.scale), {q.dims[0], k.dims[1], shared, q.dims[2], q.dims[3]});
  const Term keys = c.m.reshape(k, {k.dims[0], k.dims[1], 1, k.dims[2], k.dims[3]});
  Term y = c.m.reshape(c.m.matmul(queries, keys, false, true),
                       {q.dims[0], q.dims[1], q.dims[2], k.dims[2]});
  if (stage >= 1 && s.softcap > 0) {
    y = c.m.mul(c.m.unary("Tanh", c.m.mul(y, 1 / s.softcap)), s.softcap);
  }
  if (stage >= 2 && s.masked) {
    y = c.m.add(y, s.mask);
  }
  if (stage < 3) {
    return y;
  }
  // A row without any visible key becomes zeros.
  const Term top = c.m.reduce("ReduceMax", y, {3}, true);
  const Term none = c.m.compare("Equal", top, c.m.scalar(y.dtype, -INFINITY));
  const Term zero = c.m.scalar(y.dtype, 0);
  return c.m.where(none, zero, c.m.unary("Softmax", c.m.where(none, zero, y), {{"axis", -1}}));
}

Term added_where(Context& c, const Term& seen, DType dtype) {
  return c.m.where(seen, c.m.scalar(dtype, 0), c.m.scalar(dtype, -INFINITY));
}

// Returns the additive mask. A mask may be shorter than the keys; the remaining keys are hidden.
Result<Term> mask_of(Context& c, const Term& given, DType dtype, int64_t keys) {
  BOWLINE_REQUIRE_CODE(given.rank() >= 1 && given.dims.back() <= keys, Code::bad_file,
                       "Mask {} does not fit {} keys.", shape_text(given.dims), keys);
  BOWLINE_REQUIRE_CODE(given.dtype == DType::boolean || given.dtype == dtype, Code::bad_file,
                       "A mask of {} does not fit queries of {}.", bowline::name_of(given.dtype),
                       bowline::name_of(dtype));
  const Term mask = given.dtype == DType::boolean ? added_where(c, given, dtype) : given;
  const int64_t missing = given.dims.back() == 1 ? 0 : keys - given.dims.back();
  if (missing == 0) {
    return mask;
  }
  Dims dims = given.dims;
  dims.back() = missing;
  const Term hidden = c.m.filled(dtype, dims, -INFINITY);
  return c.m.concat({mask, hidden}, static_cast<int64_t>(dims.size()) - 1);
}

void add_mask(Context& c, Scores& s, const Term& mask) {
  s.mask = s.masked ? c.m.add(s.mask, mask) : mask;
  s.masked = true;
}

// Query i attends to key j if left <= i + offset - j <= right. A limit of -1 is unbounded. The
// offset is a tensor [batch] or a constant.
Term window(Context& c, int64_t queries, int64_t keys, const Term* offset, int64_t fixed,
            int64_t least, int64_t most, bool has_least) {
  Term distance = c.m.sub(c.m.reshape(c.m.count(DType::i32, queries), {queries, 1}),
                          c.m.count(DType::i32, keys));
  distance = offset != nullptr ? c.m.add(c.m.reshape(distance, {1, 1, queries, keys}), *offset)
                               : c.m.add(distance, static_cast<double>(fixed));
  Term seen;
  const Term low = c.m.scalar(DType::i32, static_cast<double>(least));
  const Term high = c.m.scalar(DType::i32, static_cast<double>(most));
  if (has_least) {
    seen = c.m.compare("GreaterOrEqual", distance, low);
  }
  if (most >= 0) {
    const Term near = c.m.compare("LessOrEqual", distance, high);
    seen = has_least ? c.m.binary("And", seen, near) : near;
  }
  return seen;
}

Status attention(Context& c) {
  BOWLINE_TRY_ASSIGN(Term q, c.in(0));
  BOWLINE_TRY_ASSIGN(Term k, c.in(1));
  BOWLINE_TRY_ASSIGN(Term v, c.in(2));
  BOWLINE_TRY_ASSIGN(const int64_t q_heads, c.integer("q_num_heads", 0));
  BOWLINE_TRY_ASSIGN(const int64_t kv_heads, c.integer("kv_num_heads", 0));
  BOWLINE_TRY_ASSIGN(const int64_t causal, c.integer("is_causal", 0));
  BOWLINE_TRY_ASSIGN(const int64_t left, c.integer("left_window_size", -1));
  BOWLINE_TRY_ASSIGN(const int64_t right, c.integer("right_window_size", -1));
  BOWLINE_TRY_ASSIGN(const int64_t stage, c.integer("qk_matmul_output_mode", 0));
  c.ignore("softmax_precision");  // always in f32
  const bool flat = q.rank() == 3;
  if (flat) {
    BOWLINE_TRY_ASSIGN(q, by_heads(c, q, q_heads));
    BOWLINE_TRY_ASSIGN(k, by_heads(c, k, kv_heads));
    BOWLINE_TRY_ASSIGN(v, by_heads(c, v, kv_heads));
  }
  int64_t past = 0;
  for (const size_t i : {4, 5}) {
    if (c.has(i)) {
      BOWLINE_TRY_ASSIGN(const Term before, c.in(i));
      BOWLINE_REQUIRE_CODE(before.rank() == 4, Code::bad_file, "The cache {} does not have 4 axes.",
                           shape_text(before.dims));
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
  BOWLINE_REQUIRE_CODE(fits, Code::bad_file, "Queries {}, keys {} and values {} do not fit.",
                       shape_text(q.dims), shape_text(k.dims), shape_text(v.dims));
  BOWLINE_REQUIRE_CODE(is_float(q.dtype), Code::bad_file,
                       "The queries have dtype {}, not a float dtype.", bowline::name_of(q.dtype));
  const int64_t queries = q.dims[2], keys = k.dims[2];
  BOWLINE_REQUIRE_CODE(queries <= kMostComputed && keys <= kMostComputed, Code::unsupported,
                       "{} queries and {} keys are too many.", queries, keys);
  Scores s;
  BOWLINE_TRY_ASSIGN(s.scale, c.real("scale", 0));
  BOWLINE_TRY_ASSIGN(s.softcap, c.real("softcap", 0));
  s.scale = s.scale == 0 ? 1 / std::sqrt(static_cast<double>(q.dims[3])) : s.scale;
  if (c.has(3)) {
    BOWLINE_TRY_ASSIGN(const Term given, c.in(3));
    BOWLINE_TRY_ASSIGN(const Term mask, mask_of(c, given, q.dtype, keys));
    add_mask(c, s, mask);
  }
  Term offset;  // number of keys before the queries, per batch row
  const bool lengths = c.has(6);
  if (lengths) {
    BOWLINE_TRY_ASSIGN(const Term given, c.in(6));
    BOWLINE_REQUIRE_CODE(given.dims == Dims{q.dims[0]}, Code::bad_file,
                         "Lengths {} do not fit a batch of {}.", shape_text(given.dims), q.dims[0]);
    const Term length = c.m.reshape(c.m.cast(given, DType::i32), {q.dims[0], 1, 1, 1});
    offset = c.m.add(length, static_cast<double>(-queries));
    add_mask(c, s,
             added_where(c, c.m.compare("Less", c.m.count(DType::i32, keys), length), q.dtype));
  }
  const bool windows = left >= 0 || right >= 0;
  s.causal = causal != 0 && !lengths && !windows && past == keys - queries && stage < 2;
  if ((causal != 0 && !s.causal) || windows) {
    const bool ahead = causal != 0 || right >= 0;
    const int64_t least = causal != 0 ? 0 : -right;
    const Term seen =
        window(c, queries, keys, lengths ? &offset : nullptr, past, least, left, ahead);
    add_mask(c, s, added_where(c, seen, q.dtype));
  }
  Term y = attention_of(c, s, q, k, v);
  if (flat) {
    y = c.m.reshape(rows_of_heads(c, y), {q.dims[0], queries, q.dims[1] * v.dims[3]});
  }
  c.out(0, y);
  c.out(1, k);
  c.out(2, v);
  if (c.wants(3)) {
    BOWLINE_REQUIRE_CODE(stage >= 0 && stage <= 3, Code::bad_file, "Qk_matmul_output_mode is {}.",
                         stage);
    c.out(3, scores_of(c, s, q, k, stage));
  }
  return {};
}

// A recurrent state of summed key-value products. Gated: the state decays at each step. Delta: a
// step adds only the difference from the value that the state predicts.
Status linear_attention(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const std::string rule, c.text("update_rule", "gated_delta"));
  BOWLINE_TRY_ASSIGN(const int64_t q_heads, c.integer("q_num_heads", 0));
  BOWLINE_TRY_ASSIGN(const int64_t heads, c.integer("kv_num_heads", 0));
  BOWLINE_TRY_ASSIGN(double scale, c.real("scale", 0));
  c.ignore("chunk_size");  // does not change the result
  const bool delta = rule == "delta" || rule == "gated_delta";
  const bool gated = rule == "gated" || rule == "gated_delta";
  BOWLINE_REQUIRE_CODE(delta || gated || rule == "linear", Code::bad_file,
                       "Update rule \"{}\" is not supported.", escaped(rule));
  Term in[3];
  for (size_t i = 0; i < 3; ++i) {
    BOWLINE_TRY_ASSIGN(const Term flat, c.in(i));
    BOWLINE_TRY_ASSIGN(in[i], by_heads(c, c.m.cast(flat, DType::f32), i == 0 ? q_heads : heads));
  }
  const auto& [q, k, v] = in;  // [batch, heads, length, size]
  const int64_t length = k.dims[2];
  const bool fits = q.dims[0] == k.dims[0] && k.dims[0] == v.dims[0] && q.dims[2] == length &&
                    v.dims[2] == length && q.dims[3] == k.dims[3] && q_heads % heads == 0;
  BOWLINE_REQUIRE_CODE(fits, Code::bad_file, "Queries {}, keys {} and values {} do not fit.",
                       shape_text(q.dims), shape_text(k.dims), shape_text(v.dims));
  BOWLINE_REQUIRE_CODE(length >= 1 && length <= 4096, Code::unsupported,
                       "{} steps are outside of 1 to 4096. Each step becomes separate nodes.",
                       length);
  scale = scale == 0 ? 1 / std::sqrt(static_cast<double>(q.dims[3])) : scale;
  const Dims shape = {k.dims[0], heads, k.dims[3], v.dims[3]};
  Term state = c.m.filled(DType::f32, shape, 0);
  if (c.has(3)) {
    BOWLINE_TRY_ASSIGN(const Term past, c.in(3));
    BOWLINE_REQUIRE_CODE(past.dims == shape, Code::bad_file, "The state {} is not {}.",
                         shape_text(past.dims), shape_text(shape));
    state = c.m.cast(past, DType::f32);
  }
  Term decay, rate;
  if (gated) {
    BOWLINE_TRY_ASSIGN(const Term flat, c.in(4));
    BOWLINE_TRY_ASSIGN(decay, by_heads(c, c.m.cast(flat, DType::f32), heads));
    BOWLINE_REQUIRE_CODE(decay.dims[2] == length, Code::bad_file, "Decay {} does not fit {}.",
                         shape_text(flat.dims), shape_text(x.dims));
    decay = c.m.unary("Exp", decay);
  }
  if (delta) {
    BOWLINE_TRY_ASSIGN(const Term flat, c.in(5));
    BOWLINE_REQUIRE_CODE(flat.rank() == 3, Code::bad_file, "Beta {} does not fit {}.",
                         shape_text(flat.dims), shape_text(x.dims));
    BOWLINE_TRY_ASSIGN(rate, by_heads(c, c.m.cast(flat, DType::f32), flat.dims[2]));
  }
  const auto at = [&](const Term& values, int64_t t) { return c.m.slice(values, 2, t, 1); };
  Terms steps;
  for (int64_t t = 0; t < length; ++t) {
    const Term key = at(k, t);
    Term value = at(v, t);
    if (gated) {
      state = c.m.mul(state, c.m.transpose(at(decay, t), {0, 1, 3, 2}));
    }
    if (delta) {
      value = c.m.mul(c.m.sub(value, c.m.matmul(key, state)), at(rate, t));
    }
    state = c.m.add(state, c.m.mul(c.m.transpose(key, {0, 1, 3, 2}), value));
    const Term query = c.m.reshape(at(q, t), {q.dims[0], heads, q_heads / heads, q.dims[3]});
    steps.push_back(c.m.reshape(c.m.matmul(query, state), {q.dims[0], 1, q_heads * v.dims[3]}));
  }
  c.out(0, c.m.cast(c.m.mul(c.m.concat(steps, 1), scale), x.dtype));
  c.out(1, c.m.cast(state, x.dtype));
  return {};
}

// Rotates pairs of the first `turned` elements of the last axis of [batch, .., size]. The cosines
// and sines of the angles broadcast.
Term rotated(Context& c, const Term& x, const Term& cosine, const Term& sine, int64_t turned,
             bool interleaved) {
  const auto last = static_cast<int64_t>(x.rank()) - 1;
  const int64_t half = turned / 2;
  const Term part = c.m.slice(x, last, 0, turned);
  Dims dims = x.dims;
  dims.back() = half;
  Term a, b;
  if (interleaved) {
    Dims pairs = dims;
    pairs.push_back(2);
    const Term both = c.m.reshape(part, pairs);
    a = c.m.reshape(c.m.slice(both, last + 1, 0, 1), dims);
    b = c.m.reshape(c.m.slice(both, last + 1, 1, 1), dims);
  } else {
    a = c.m.slice(part, last, 0, half);
    b = c.m.slice(part, last, half, half);
  }
  const Term real = c.m.sub(c.m.mul(a, cosine), c.m.mul(b, sine));
  const Term imaginary = c.m.add(c.m.mul(a, sine), c.m.mul(b, cosine));
  Term y;
  if (interleaved) {
    Dims single = dims;
    single.push_back(1);
    Dims whole = dims;
    whole.back() = turned;
    y = c.m.reshape(
        c.m.concat({c.m.reshape(real, single), c.m.reshape(imaginary, single)}, last + 1), whole);
  } else {
    y = c.m.concat({real, imaginary}, last);
  }
  if (turned == x.dims.back()) {
    return y;
  }
  return c.m.concat({y, c.m.slice(x, last, turned, x.dims.back() - turned)}, last);
}

// ONNX passes the optional positions after the tables. ONNX Runtime passes them before the tables,
// and may pass only the first position.
Status rotary_embedding(Context& c, const Term& x, Term cosine, Term sine, const Term* positions) {
  BOWLINE_TRY_ASSIGN(const int64_t heads, c.integer("num_heads", 0));
  BOWLINE_TRY_ASSIGN(const int64_t interleaved, c.integer("interleaved", 0));
  BOWLINE_TRY_ASSIGN(const int64_t given, c.integer("rotary_embedding_dim", 0));
  const bool flat = x.rank() == 3;
  BOWLINE_REQUIRE_CODE(flat || x.rank() == 4, Code::bad_file, "{} does not have 3 or 4 axes.",
                       shape_text(x.dims));
  const int64_t length = flat ? x.dims[1] : x.dims[2];
  Term rows = x;
  if (flat) {
    // Without a head count the width of the tables gives the head size.
    const int64_t size = given == 0 && heads == 0 ? 2 * cosine.dims.back() : 0;
    const int64_t count = heads > 0 ? heads : size > 0 ? x.dims[2] / size : 0;
    BOWLINE_TRY_ASSIGN(rows, by_heads(c, x, count));
  }
  const int64_t turned = given == 0 ? rows.dims[3] : given;
  if (positions != nullptr) {
    BOWLINE_REQUIRE_CODE(cosine.rank() == 2 && sine.dims == cosine.dims, Code::bad_file,
                         "Tables {} and {} do not have 2 axes.", shape_text(cosine.dims),
                         shape_text(sine.dims));
    const Term i = i32_indices(c, *positions, cosine.dims[0]);
    cosine = c.m.gather(cosine, i, 0);
    sine = c.m.gather(sine, i, 0);
  }
  const bool fits = cosine.rank() == 3 && cosine.dims == sine.dims && turned >= 2 &&
                    turned <= rows.dims[3] && turned == 2 * cosine.dims[2] &&
                    cosine.dims[1] == length &&
                    (cosine.dims[0] == 1 || cosine.dims[0] == x.dims[0]);
  BOWLINE_REQUIRE_CODE(fits, Code::bad_file, "Cosines {} and sines {} do not fit {}.",
                       shape_text(cosine.dims), shape_text(sine.dims), shape_text(x.dims));
  const Dims beside = {cosine.dims[0], 1, length, cosine.dims[2]};
  Term y = rotated(c, rows, c.m.reshape(cosine, beside), c.m.reshape(sine, beside), turned,
                   interleaved != 0);
  if (flat) {
    y = c.m.reshape(rows_of_heads(c, y), x.dims);
  }
  c.out(0, y);
  return {};
}

Status rotary_embedding_of_onnx(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const Term cosine, c.in(1));
  BOWLINE_TRY_ASSIGN(const Term sine, c.in(2));
  Term positions;
  if (c.has(3)) {
    BOWLINE_TRY_ASSIGN(positions, c.in(3));
  }
  return rotary_embedding(c, x, cosine, sine, c.has(3) ? &positions : nullptr);
}

Status rotary_embedding_of_runtime(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(Term positions, c.in(1));
  BOWLINE_TRY_ASSIGN(const Term cosine, c.in(2));
  BOWLINE_TRY_ASSIGN(const Term sine, c.in(3));
  BOWLINE_TRY_ASSIGN(const double scale, c.real("scale", 1));
  BOWLINE_TRY_ASSIGN(const int64_t packed, c.integer("is_packed_batching", 0));
  BOWLINE_REQUIRE_CODE(scale == 1 && packed == 0, Code::unsupported,
                       "A scale of {} or packed batches ({}) are not supported.", scale, packed);
  BOWLINE_REQUIRE_CODE(x.rank() == 3 || x.rank() == 4, Code::bad_file,
                       "{} does not have 3 or 4 axes.", shape_text(x.dims));
  if (positions.elements() == 1) {
    const int64_t length = x.rank() == 3 ? x.dims[1] : x.dims[2];
    positions = c.m.add(c.m.reshape(c.m.cast(positions, DType::i32), {1, 1}),
                        c.m.reshape(c.m.count(DType::i32, length), {1, length}));
  }
  return rotary_embedding(c, x, cosine, sine, &positions);
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
