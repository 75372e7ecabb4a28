// Recurrent layers: LSTM, GRU and RNN, in one or both directions.
//
// LSTM and GRU become Bowline's Lstm and Gru for each direction, with reordered weight rows. RNN
// and LSTM with peepholes have no operator: each step becomes separate nodes.
#include <algorithm>
#include <cctype>

#include "base/escape.h"
#include "onnx/lowering.h"

namespace bowline::onnx {
namespace {

constexpr int64_t kMostSteps = 512;  // limit for layers whose steps become separate nodes

// The inputs of a layer, time first and batch second, by direction.
struct Layer {
  int64_t gates = 1;
  int64_t steps = 0, batch = 0, units = 0, directions = 1;
  bool batch_first = false;
  bool reverse = false;  // of the first direction
  Term x;                // [steps, batch, inputs]
  Term w, r, b, h;       // b has rank 0 if it is missing

  bool backwards(int64_t d) const { return reverse || d == 1; }
};

struct Outputs {
  Terms y, h, c;  // by direction: [steps, batch, units], [batch, units]
};

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char ch) { return std::tolower(ch); });
  return text;
}

Status check_activations(Context& c, std::vector<std::string> usual, int64_t directions) {
  BOWLINE_TRY_ASSIGN(const std::vector<std::string> given, c.texts("activations"));
  for (size_t i = 0; i < given.size(); ++i) {
    BOWLINE_REQUIRE_CODE(lower(given[i]) == usual[i % usual.size()], Code::unsupported,
                         "Activation {} is \"{}\"; only \"{}\" is supported.", i, escaped(given[i]),
                         usual[i % usual.size()]);
  }
  const size_t expected = usual.size() * static_cast<size_t>(directions);
  BOWLINE_REQUIRE_CODE(given.empty() || given.size() == expected, Code::bad_file,
                       "It has {} activations, not {}.", given.size(), expected);
  return {};
}

// Returns entry d of the first axis and removes the axis.
Term entry(Context& c, const Term& t, int64_t d) {
  return c.m.reshape(c.m.slice(t, 0, d, 1), {t.dims.begin() + 1, t.dims.end()});
}

// Returns a state [directions, batch, units], or zeros if the input is missing.
Result<Term> state(Context& c, size_t input, const Layer& l) {
  const Dims dims = {l.directions, l.batch, l.units};
  if (!c.has(input)) {
    return c.m.filled(l.x.dtype, dims, 0);
  }
  BOWLINE_TRY_ASSIGN(Term t, c.in(input));
  if (l.batch_first && t.rank() == 3) {
    t = c.m.transpose(t, {1, 0, 2});
  }
  if (c.m.has_batch(l.x) && !c.m.has_batch(t) && t.rank() == 3) {
    t = c.m.for_each_row(t, 1);
  }
  BOWLINE_REQUIRE_CODE(t.dims == dims, Code::bad_file, "State {} is not {}.", shape_text(t.dims),
                       shape_text(dims));
  return t;
}

// Returns the weights of x or of the states.
using Weights = Result<Term> (*)(Context& c, size_t input);

Result<Term> plain_weights(Context& c, size_t input) { return c.in(input); }

Result<Layer> layer_of(Context& c, int64_t gates, const std::vector<std::string>& activations,
                       Weights weights = plain_weights) {
  Layer l;
  l.gates = gates;
  BOWLINE_TRY_ASSIGN(l.x, c.in(0));
  BOWLINE_TRY_ASSIGN(l.w, weights(c, 1));
  BOWLINE_TRY_ASSIGN(l.r, weights(c, 2));
  BOWLINE_TRY_ASSIGN(const int64_t layout, c.integer("layout", 0));
  BOWLINE_TRY_ASSIGN(const std::string direction, c.text("direction", "forward"));
  const bool both = direction == "bidirectional";
  l.reverse = direction == "reverse";
  BOWLINE_REQUIRE_CODE(both || l.reverse || direction == "forward", Code::bad_file,
                       "Direction \"{}\" is not supported.", escaped(direction));
  l.directions = both ? 2 : 1;
  l.batch_first = layout != 0;
  BOWLINE_TRY(check_activations(c, activations, l.directions));
  BOWLINE_REQUIRE_CODE(l.x.rank() == 3 && l.r.rank() == 3, Code::bad_file,
                       "X {} and R {} do not have rank 3.", shape_text(l.x.dims),
                       shape_text(l.r.dims));
  if (l.batch_first) {
    l.x = c.m.transpose(l.x, {1, 0, 2});
  }
  l.steps = l.x.dims[0];
  l.batch = l.x.dims[1];
  l.units = l.r.dims[2];
  BOWLINE_TRY_ASSIGN(const int64_t hidden, c.integer("hidden_size", l.units));
  const bool fits = hidden == l.units && l.units <= INT32_MAX &&
                    l.w.dims == Dims{l.directions, gates * l.units, l.x.dims[2]} &&
                    l.r.dims == Dims{l.directions, gates * l.units, l.units};
  BOWLINE_REQUIRE_CODE(fits, Code::bad_file, "W {} and R {} do not fit {} units of {}.",
                       shape_text(l.w.dims), shape_text(l.r.dims), hidden, shape_text(l.x.dims));
  if (c.has(3)) {
    BOWLINE_TRY_ASSIGN(l.b, c.in(3));
    BOWLINE_REQUIRE_CODE((l.b.dims == Dims{l.directions, 2 * gates * l.units}), Code::bad_file,
                         "B {} does not fit {} units.", shape_text(l.b.dims), l.units);
  }
  if (c.has(4)) {
    BOWLINE_TRY_ASSIGN(const std::vector<int64_t> lengths, c.integers(4));
    const bool whole = std::ranges::all_of(lengths, [&](int64_t n) { return n == l.steps; });
    BOWLINE_REQUIRE_CODE(whole, Code::unsupported,
                         "Sequence lengths differ from the {} steps, which is not supported.",
                         l.steps);
  }
  BOWLINE_TRY_ASSIGN(l.h, state(c, 5, l));
  return l;
}

// Reorders the gate blocks of the first axis.
Term reordered(Context& c, const Term& t, int64_t units, const std::vector<int64_t>& order) {
  Terms parts;
  for (const int64_t block : order) {
    parts.push_back(c.m.slice(t, 0, block * units, units));
  }
  return c.m.concat(parts, 0);
}

// Computes x w^T + bias for all steps.
Term gates_of(Context& c, const Layer& l, const Term& w, const Term& bias) {
  const Term rows = c.m.reshape(l.x, {l.steps * l.batch, l.x.dims[2]});
  Term y = c.m.matmul(rows, w, false, true);
  if (bias.rank() != 0) {
    y = c.m.add(y, bias);
  }
  return c.m.reshape(y, {l.steps, l.batch, w.dims[0]});
}

Term last_state(Context& c, const Layer& l, const Term& y, int64_t d) {
  return entry(c, y, l.backwards(d) ? 0 : l.steps - 1);
}

// Writes Y [steps, directions, batch, units] and the final states in the layout of the node.
void write(Context& c, const Layer& l, const Outputs& o) {
  const auto stacked = [&](const Terms& parts, int64_t axis) {
    Terms out;
    for (const Term& t : parts) {
      Dims dims = t.dims;
      dims.insert(dims.begin() + axis, 1);
      out.push_back(c.m.reshape(t, dims));
    }
    return c.m.concat(out, axis);
  };
  const auto state = [&](const Terms& parts) {
    const Term t = stacked(parts, 0);
    return l.batch_first ? c.m.transpose(t, {1, 0, 2}) : t;
  };
  const Term y = stacked(o.y, 1);
  c.out(0, l.batch_first ? c.m.transpose(y, {2, 0, 1, 3}) : y);
  c.out(1, state(o.h));
  if (!o.c.empty()) {
    c.out(2, state(o.c));
  }
}

// Adds nodes for each step. `step` takes the gates of a step [batch, gates * units].
template <class Step>
Status unrolled(Context& c, const Layer& l, const Term& gates, int64_t d, const Step& step) {
  BOWLINE_REQUIRE_CODE(l.steps <= kMostSteps, Code::unsupported,
                       "{} steps are more than the limit of {}.", l.steps, kMostSteps);
  for (int64_t i = 0; i < l.steps; ++i) {
    step(entry(c, gates, l.backwards(d) ? l.steps - 1 - i : i));
  }
  return {};
}

// Returns the states [steps, batch, units] in time order.
Term in_order(Context& c, const Layer& l, Terms states, int64_t d) {
  if (l.backwards(d)) {
    std::ranges::reverse(states);
  }
  for (Term& t : states) {
    t = c.m.reshape(t, {1, l.batch, l.units});
  }
  return c.m.concat(states, 0);
}

Status refuse_clip(Context& c) {
  BOWLINE_TRY_ASSIGN(const double clip, c.real("clip", 0));
  BOWLINE_REQUIRE_CODE(clip == 0, Code::unsupported,
                       "Attribute clip is {}, which is not supported.", clip);
  return {};
}

// Returns the sum of both bias halves of direction d.
Term bias_of(Context& c, const Layer& l, int64_t d) {
  if (l.b.rank() == 0) {
    return l.b;
  }
  const Term both = entry(c, l.b, d);
  const int64_t half = l.gates * l.units;
  return c.m.add(c.m.slice(both, 0, 0, half), c.m.slice(both, 0, half, half));
}

// h = tanh(x w^T + h r^T + b)
Status rnn(Context& c) {
  BOWLINE_TRY(refuse_clip(c));
  BOWLINE_TRY_ASSIGN(const Layer l, layer_of(c, 1, {"tanh"}));
  Outputs out;
  for (int64_t d = 0; d < l.directions; ++d) {
    const Term gates = gates_of(c, l, entry(c, l.w, d), bias_of(c, l, d));
    const Term r = entry(c, l.r, d);
    Term h = entry(c, l.h, d);
    Terms states;
    BOWLINE_TRY(unrolled(c, l, gates, d, [&](const Term& g) {
      h = c.m.unary("Tanh", c.m.add(g, c.m.matmul(h, r, false, true)));
      states.push_back(h);
    }));
    BOWLINE_REQUIRE_CODE(!states.empty(), Code::bad_file, "The sequence has no steps.");
    out.y.push_back(in_order(c, l, states, d));
    out.h.push_back(h);
  }
  write(c, l, out);
  return {};
}

// Gate order: ONNX z, r, h; Bowline r, z, n.
Status gru(Context& c) {
  BOWLINE_TRY(refuse_clip(c));
  BOWLINE_TRY_ASSIGN(const Layer l, layer_of(c, 3, {"sigmoid", "tanh"}));
  BOWLINE_TRY_ASSIGN(const int64_t after, c.integer("linear_before_reset", 0));
  BOWLINE_REQUIRE_CODE(l.steps > 0, Code::bad_file, "The sequence has no steps.");
  const std::vector<int64_t> order = {1, 0, 2};
  Outputs out;
  for (int64_t d = 0; d < l.directions; ++d) {
    const Term w = reordered(c, entry(c, l.w, d), l.units, order);
    const Term r = reordered(c, entry(c, l.r, d), l.units, order);
    Term bias = l.b;
    Terms in = {Term{}, r, entry(c, l.h, d)};
    if (l.b.rank() != 0) {
      const Term both = entry(c, l.b, d);
      const int64_t n = l.units;
      const Term ours = reordered(c, c.m.slice(both, 0, 0, 3 * n), n, order);
      const Term theirs = reordered(c, c.m.slice(both, 0, 3 * n, 3 * n), n, order);
      const Term reset = c.m.add(c.m.slice(ours, 0, 0, 2 * n), c.m.slice(theirs, 0, 0, 2 * n));
      bias = c.m.concat({reset, c.m.slice(ours, 0, 2 * n, n)}, 0);
      in.push_back(c.m.slice(theirs, 0, 2 * n, n));
    }
    in[0] = gates_of(c, l, w, bias);
    const Dims states = {l.steps, l.batch, l.units};
    const Terms y = c.m.ops("Gru", in, {{"reverse", l.backwards(d)}, {"reset_after", after != 0}},
                            {{l.x.dtype, states}, {l.x.dtype, in[0].dims}, {l.x.dtype, states}});
    out.y.push_back(y[0]);
    out.h.push_back(last_state(c, l, y[0], d));
  }
  write(c, l, out);
  return {};
}

// One direction with peepholes [i, o, f]: the gates also read the cell. The output gate reads the
// new cell. Gate order i, o, f, c.
Status with_peepholes(Context& c, const Layer& l, const Term& peepholes, const Term& cells,
                      int64_t d, Outputs& out) {
  const Term gates = gates_of(c, l, entry(c, l.w, d), bias_of(c, l, d));
  const Term r = entry(c, l.r, d);
  const Term p = entry(c, peepholes, d);
  const int64_t n = l.units;
  Term h = entry(c, l.h, d);
  Term cell = entry(c, cells, d);
  Terms states;
  BOWLINE_TRY(unrolled(c, l, gates, d, [&](const Term& g) {
    const Terms parts = c.m.split(c.m.add(g, c.m.matmul(h, r, false, true)), 1, {n, n, n, n});
    const auto gate = [&](size_t part, int64_t peephole, const Term& seen) {
      return c.m.unary("Sigmoid",
                       c.m.add(parts[part], c.m.mul(c.m.slice(p, 0, peephole * n, n), seen)));
    };
    const Term i = gate(0, 0, cell);
    const Term f = gate(2, 2, cell);
    cell = c.m.add(c.m.mul(f, cell), c.m.mul(i, c.m.unary("Tanh", parts[3])));
    h = c.m.mul(gate(1, 1, cell), c.m.unary("Tanh", cell));
    states.push_back(h);
  }));
  out.y.push_back(in_order(c, l, states, d));
  out.h.push_back(h);
  out.c.push_back(cell);
  return {};
}

// Gate order: ONNX i, o, f, c; Bowline i, f, g, o.
Status lstm(Context& c) {
  BOWLINE_TRY(refuse_clip(c));
  BOWLINE_TRY_ASSIGN(const Layer l, layer_of(c, 4, {"sigmoid", "tanh", "tanh"}));
  BOWLINE_TRY_ASSIGN(const int64_t forget, c.integer("input_forget", 0));
  BOWLINE_REQUIRE_CODE(forget == 0, Code::unsupported,
                       "Attribute input_forget is 1; only 0 is supported.");
  BOWLINE_REQUIRE_CODE(l.steps > 0, Code::bad_file, "The sequence has no steps.");
  BOWLINE_TRY_ASSIGN(const Term cells, state(c, 6, l));
  Term peepholes;
  if (c.has(7)) {
    BOWLINE_TRY_ASSIGN(peepholes, c.in(7));
    BOWLINE_REQUIRE_CODE((peepholes.dims == Dims{l.directions, 3 * l.units}), Code::bad_file,
                         "P {} does not fit {} units.", shape_text(peepholes.dims), l.units);
  }
  const std::vector<int64_t> order = {0, 2, 3, 1};
  Outputs out;
  for (int64_t d = 0; d < l.directions; ++d) {
    if (c.has(7)) {
      BOWLINE_TRY(with_peepholes(c, l, peepholes, cells, d, out));
      continue;
    }
    const Term w = reordered(c, entry(c, l.w, d), l.units, order);
    const Term r = reordered(c, entry(c, l.r, d), l.units, order);
    const Term both = bias_of(c, l, d);
    const Term gates =
        gates_of(c, l, w, both.rank() == 0 ? both : reordered(c, both, l.units, order));
    const Term cell = c.m.cast(entry(c, cells, d), DType::f32);
    const Dims states = {l.steps, l.batch, l.units};
    const Terms y =
        c.m.ops("Lstm", {gates, r, entry(c, l.h, d), cell}, {{"reverse", l.backwards(d)}},
                {{l.x.dtype, states}, {DType::f32, states}, {l.x.dtype, gates.dims}});
    out.y.push_back(y[0]);
    out.h.push_back(last_state(c, l, y[0], d));
    out.c.push_back(c.m.cast(last_state(c, l, y[1], d), l.x.dtype));
  }
  write(c, l, out);
  return {};
}

// Quantized weights of DynamicQuantizeLSTM: integers [directions, columns, gates * units], with a
// scale and a zero point per direction or per row. Returns them minus the zero point, in the layout
// of LSTM.
Result<Term> quantized_weights(Context& c, size_t input) {
  BOWLINE_TRY_ASSIGN(const Term w, c.in(input));
  BOWLINE_TRY_ASSIGN(Term zero, c.optional(input == 1 ? 9 : 11));
  BOWLINE_REQUIRE_CODE(w.rank() == 3, Code::bad_file, "Weights {} do not have rank 3.",
                       shape_text(w.dims));
  if (zero.source != nullptr && zero.elements() > 0) {
    zero = c.m.reshape(zero, {w.dims[0], 1, zero.elements() / std::max<int64_t>(w.dims[0], 1)});
  }
  return c.m.transpose(centred(c, w, zero), {0, 2, 1});
}

// Computes a w^T with 8-bit a and w. The scale of w is a scalar or one value per row.
Term quantized_product(Context& c, const Quantized& a, const Term& w, const Term& scale) {
  const Term whole = c.m.matmul(centred(c, a.whole, a.zero_point), w, false, true);
  return c.m.mul(whole, c.m.mul(a.scale, scale));
}

// An LSTM with 8-bit weights. x and the states of each step are quantized over their range, so each
// step becomes separate nodes.
Status dynamic_quantize_lstm(Context& c) {
  BOWLINE_TRY(refuse_clip(c));
  BOWLINE_TRY_ASSIGN(const Layer l, layer_of(c, 4, {"sigmoid", "tanh", "tanh"}, quantized_weights));
  BOWLINE_TRY_ASSIGN(const int64_t forget, c.integer("input_forget", 0));
  BOWLINE_REQUIRE_CODE(forget == 0 && !c.has(7), Code::unsupported,
                       "Peepholes (input P) and input_forget = 1 are not supported.");
  BOWLINE_REQUIRE_CODE(l.steps > 0, Code::bad_file, "The sequence has no steps.");
  BOWLINE_TRY_ASSIGN(const Term cells, state(c, 6, l));
  BOWLINE_TRY_ASSIGN(const Term scale_w, c.in(8));
  BOWLINE_TRY_ASSIGN(const Term scale_r, c.in(10));
  const Quantized x = quantized_by_range(c, c.m.reshape(l.x, {l.steps * l.batch, l.x.dims[2]}));
  Outputs out;
  for (int64_t d = 0; d < l.directions; ++d) {
    const Term r = entry(c, l.r, d);
    const Term own_scale = entry(c, scale_r, d);
    Term gates = quantized_product(c, x, entry(c, l.w, d), entry(c, scale_w, d));
    const Term bias = bias_of(c, l, d);
    gates = bias.rank() == 0 ? gates : c.m.add(gates, bias);
    gates = c.m.reshape(gates, {l.steps, l.batch, 4 * l.units});
    Term h = entry(c, l.h, d);
    Term cell = entry(c, cells, d);
    Terms states;
    BOWLINE_TRY(unrolled(c, l, gates, d, [&](const Term& g) {
      const int64_t n = l.units;
      const Term all = c.m.add(g, quantized_product(c, quantized_by_range(c, h), r, own_scale));
      const Terms parts = c.m.split(all, 1, {n, n, n, n});  // gate order i, o, f, c
      const auto gate = [&](size_t i) { return c.m.unary("Sigmoid", parts[i]); };
      cell = c.m.add(c.m.mul(gate(2), cell), c.m.mul(gate(0), c.m.unary("Tanh", parts[3])));
      h = c.m.mul(gate(1), c.m.unary("Tanh", cell));
      states.push_back(h);
    }));
    out.y.push_back(in_order(c, l, states, d));
    out.h.push_back(h);
    out.c.push_back(cell);
  }
  write(c, l, out);
  return {};
}

constexpr Lowering kRecurrentLowerings[] = {
    {"LSTM", lstm},
    {"DynamicQuantizeLSTM", dynamic_quantize_lstm, kMicrosoft},
    {"GRU", gru},
    {"RNN", rnn},
};

}  // namespace

std::span<const Lowering> lowerings_of_recurrent() { return kRecurrentLowerings; }

}  // namespace bowline::onnx
