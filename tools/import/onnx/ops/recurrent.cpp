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
  Term w, r, b, h;       // b is optional

  bool backwards(int64_t d) const { return reverse || d == 1; }
};

struct Outputs {
  Terms y, h, c;  // by direction: [steps, batch, units], [batch, units]
};

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char ch) { return std::tolower(ch); });
  return text;
}

void check_activations(Context& c, std::vector<std::string> usual, int64_t directions) {
  const std::vector<std::string> given = c.texts("activations");
  for (size_t i = 0; i < given.size(); ++i) {
    support(lower(given[i]) == usual[i % usual.size()],
            "Activation {} is \"{}\"; only \"{}\" is supported.", i, escaped(given[i]),
            usual[i % usual.size()]);
  }
  const size_t expected = usual.size() * static_cast<size_t>(directions);
  require(given.empty() || given.size() == expected, "It has {} activations, not {}.", given.size(),
          expected);
}

// Returns a state [directions, batch, units], or zeros if the input is missing.
Term state(Context& c, size_t input, const Layer& l) {
  const Dims dims = {l.directions, l.batch, l.units};
  if (!c.has(input)) {
    return c.m.filled(l.x.dtype, dims, 0);
  }
  Term t = c.in(input);
  if (l.batch_first && t.rank() == 3) {
    t = c.m.transpose(t, {1, 0, 2});
  }
  if (c.m.has_batch(l.x) && !c.m.has_batch(t) && t.rank() == 3) {
    t = c.m.for_each_row(t, 1);
  }
  require(t.dims == dims, "State {} is not {}.", t.dims, dims);
  return t;
}

// Returns the weights of x or of the states.
using Weights = Term (*)(Context& c, size_t input);

Term plain_weights(Context& c, size_t input) { return c.in(input); }

Layer layer_of(Context& c, int64_t gates, const std::vector<std::string>& activations,
               Weights weights = plain_weights) {
  const double clip = c.real("clip", 0);
  support(clip == 0, "Attribute clip is {}, which is not supported.", clip);
  Layer l;
  l.gates = gates;
  l.x = c.in(0);
  l.w = weights(c, 1);
  l.r = weights(c, 2);
  l.batch_first = c.flag("layout", false);
  const std::string direction =
      c.choice("direction", "forward", "forward reverse bidirectional", "Direction");
  const bool both = direction == "bidirectional";
  l.reverse = direction == "reverse";
  l.directions = both ? 2 : 1;
  check_activations(c, activations, l.directions);
  require(l.x.rank() == 3 && l.r.rank() == 3, "X {} and R {} do not have rank 3.", l.x.dims,
          l.r.dims);
  if (l.batch_first) {
    l.x = c.m.transpose(l.x, {1, 0, 2});
  }
  l.steps = l.x.dims[0];
  l.batch = l.x.dims[1];
  l.units = l.r.dims[2];
  const int64_t hidden = c.integer("hidden_size", l.units);
  const bool fits = hidden == l.units && l.units <= INT32_MAX &&
                    l.w.dims == Dims{l.directions, gates * l.units, l.x.dims[2]} &&
                    l.r.dims == Dims{l.directions, gates * l.units, l.units};
  require(fits, "W {} and R {} do not fit {} units of {}.", l.w.dims, l.r.dims, hidden, l.x.dims);
  if (c.has(3)) {
    l.b = c.in(3);
    require((l.b.dims == Dims{l.directions, 2 * gates * l.units}), "B {} does not fit {} units.",
            l.b.dims, l.units);
  }
  if (c.has(4)) {
    const std::vector<int64_t> lengths = c.integers(4);
    const bool whole = std::ranges::all_of(lengths, [&](int64_t n) { return n == l.steps; });
    support(whole, "Sequence lengths differ from the {} steps, which is not supported.", l.steps);
  }
  require(l.steps > 0, "The sequence has no steps.");
  l.h = state(c, 5, l);
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
  const Term y = c.m.matmul(rows, w, false, true);
  return c.m.reshape(bias ? y + bias : y, {l.steps, l.batch, w.dims[0]});
}

Term last_state(Context& c, const Layer& l, const Term& y, int64_t d) {
  return c.m.at(y, 0, l.backwards(d) ? 0 : l.steps - 1);
}

// Returns Y [steps, directions, batch, units] in the layout of the node, and sets the final states.
Term write(Context& c, const Layer& l, const Outputs& o) {
  const auto state = [&](const Terms& parts) {
    const Term t = c.m.stack(parts, 0);
    return l.batch_first ? c.m.transpose(t, {1, 0, 2}) : t;
  };
  c.out(1, state(o.h));
  if (!o.c.empty()) {
    c.out(2, state(o.c));
  }
  const Term y = c.m.stack(o.y, 1);
  return l.batch_first ? c.m.transpose(y, {2, 0, 1, 3}) : y;
}

// Adds nodes for each step of direction d. `step` returns the next state from the gates of a step
// [batch, gates * units] and the state before it.
template <class Step>
void unroll(Context& c, const Layer& l, const Term& gates, int64_t d, Outputs& out,
            const Step& step) {
  support(l.steps <= kMostSteps, "{} steps are more than the limit of {}.", l.steps, kMostSteps);
  Term h = c.m.at(l.h, 0, d);
  Terms states;
  for (int64_t i = 0; i < l.steps; ++i) {
    h = step(c.m.at(gates, 0, l.backwards(d) ? l.steps - 1 - i : i), h);
    states.push_back(h);
  }
  if (l.backwards(d)) {
    std::ranges::reverse(states);
  }
  out.y.push_back(c.m.stack(states, 0));
  out.h.push_back(h);
}

// Returns the sum of both bias halves of direction d.
Term bias_of(Context& c, const Layer& l, int64_t d) {
  if (!l.b) {
    return l.b;
  }
  const Term both = c.m.at(l.b, 0, d);
  const int64_t half = l.gates * l.units;
  return c.m.slice(both, 0, 0, half) + c.m.slice(both, 0, half, half);
}

// h = tanh(x w^T + h r^T + b)
Term rnn(Context& c) {
  const Layer l = layer_of(c, 1, {"tanh"});
  Outputs out;
  for (int64_t d = 0; d < l.directions; ++d) {
    const Term gates = gates_of(c, l, c.m.at(l.w, 0, d), bias_of(c, l, d));
    const Term r = c.m.at(l.r, 0, d);
    unroll(c, l, gates, d, out,
           [&](const Term& g, const Term& h) { return tanh(g + c.m.matmul(h, r, false, true)); });
  }
  return write(c, l, out);
}

// Gate order: ONNX z, r, h; Bowline r, z, n.
Term gru(Context& c) {
  const Layer l = layer_of(c, 3, {"sigmoid", "tanh"});
  const bool after = c.flag("linear_before_reset", false);
  const std::vector<int64_t> order = {1, 0, 2};
  Outputs out;
  for (int64_t d = 0; d < l.directions; ++d) {
    const Term w = reordered(c, c.m.at(l.w, 0, d), l.units, order);
    const Term r = reordered(c, c.m.at(l.r, 0, d), l.units, order);
    Term bias = l.b;
    Terms in = {Term{}, r, c.m.at(l.h, 0, d)};
    if (l.b) {
      const Term both = c.m.at(l.b, 0, d);
      const int64_t n = l.units;
      const Term ours = reordered(c, c.m.slice(both, 0, 0, 3 * n), n, order);
      const Term theirs = reordered(c, c.m.slice(both, 0, 3 * n, 3 * n), n, order);
      const Term reset = c.m.slice(ours, 0, 0, 2 * n) + c.m.slice(theirs, 0, 0, 2 * n);
      bias = c.m.concat({reset, c.m.slice(ours, 0, 2 * n, n)}, 0);
      in.push_back(c.m.slice(theirs, 0, 2 * n, n));
    }
    in[0] = gates_of(c, l, w, bias);
    const Dims states = {l.steps, l.batch, l.units};
    const Terms y = c.m.ops("Gru", in, {{"reverse", l.backwards(d)}, {"reset_after", after}},
                            {{l.x.dtype, states}, {l.x.dtype, in[0].dims}, {l.x.dtype, states}});
    out.y.push_back(y[0]);
    out.h.push_back(last_state(c, l, y[0], d));
  }
  return write(c, l, out);
}

// Adds an LSTM step by step. `product` multiplies a state with the weights r. With peepholes
// [directions, 3 * units] of i, o and f (optional), the gates also read the cell; the output gate
// reads the new cell. Gate order i, o, f, c.
template <class Product>
void unroll_lstm(Context& c, const Layer& l, const Term& gates, const Term& cells,
                 const Term& peepholes, int64_t d, Outputs& out, const Product& product) {
  const int64_t n = l.units;
  const Term p = peepholes ? c.m.at(peepholes, 0, d) : peepholes;
  Term cell = c.m.at(cells, 0, d);
  unroll(c, l, gates, d, out, [&](const Term& g, const Term& h) {
    const Terms parts = c.m.split(g + product(h), 1, {n, n, n, n});
    const auto gate = [&](int64_t k, const Term& seen) {
      const Term& part = parts[static_cast<size_t>(k)];
      return sigmoid(p ? part + c.m.slice(p, 0, k * n, n) * seen : part);
    };
    const Term i = gate(0, cell);
    const Term f = gate(2, cell);
    cell = f * cell + i * tanh(parts[3]);
    return gate(1, cell) * tanh(cell);
  });
  out.c.push_back(cell);
}

// Gate order: ONNX i, o, f, c; Bowline i, f, g, o.
Term lstm(Context& c) {
  const Layer l = layer_of(c, 4, {"sigmoid", "tanh", "tanh"});
  const bool forget = c.flag("input_forget", false);
  support(!forget, "Attribute input_forget is 1; only 0 is supported.");
  const Term cells = state(c, 6, l);
  Term peepholes;
  if (c.has(7)) {
    peepholes = c.in(7);
    require((peepholes.dims == Dims{l.directions, 3 * l.units}), "P {} does not fit {} units.",
            peepholes.dims, l.units);
  }
  const std::vector<int64_t> order = {0, 2, 3, 1};
  Outputs out;
  for (int64_t d = 0; d < l.directions; ++d) {
    if (c.has(7)) {
      const Term gates = gates_of(c, l, c.m.at(l.w, 0, d), bias_of(c, l, d));
      const Term r = c.m.at(l.r, 0, d);
      unroll_lstm(c, l, gates, cells, peepholes, d, out,
                  [&](const Term& h) { return c.m.matmul(h, r, false, true); });
      continue;
    }
    const Term w = reordered(c, c.m.at(l.w, 0, d), l.units, order);
    const Term r = reordered(c, c.m.at(l.r, 0, d), l.units, order);
    const Term both = bias_of(c, l, d);
    const Term gates = gates_of(c, l, w, both ? reordered(c, both, l.units, order) : both);
    const Term cell = cast(c.m.at(cells, 0, d), DType::f32);
    const Dims states = {l.steps, l.batch, l.units};
    const Terms y =
        c.m.ops("Lstm", {gates, r, c.m.at(l.h, 0, d), cell}, {{"reverse", l.backwards(d)}},
                {{l.x.dtype, states}, {DType::f32, states}, {l.x.dtype, gates.dims}});
    out.y.push_back(y[0]);
    out.h.push_back(last_state(c, l, y[0], d));
    out.c.push_back(cast(last_state(c, l, y[1], d), l.x.dtype));
  }
  return write(c, l, out);
}

// Quantized weights of DynamicQuantizeLSTM: integers [directions, columns, gates * units], with a
// scale and a zero point per direction or per row. Returns them minus the zero point, in the layout
// of LSTM.
Term quantized_weights(Context& c, size_t input) {
  const Term w = c.in(input);
  Term zero = c.optional(input == 1 ? 9 : 11);
  require(w.rank() == 3, "Weights {} do not have rank 3.", w.dims);
  if (zero && zero.elements() > 0) {
    zero = c.m.reshape(zero, {w.dims[0], 1, zero.elements() / std::max<int64_t>(w.dims[0], 1)});
  }
  return c.m.transpose(centred(w, zero), {0, 2, 1});
}

// Computes a w^T with 8-bit a and w. The scale of w is a scalar or one value per row.
Term quantized_product(Context& c, const Quantized& a, const Term& w, const Term& scale) {
  const Term whole = c.m.matmul(centred(a.whole, a.zero_point), w, false, true);
  return whole * (a.scale * scale);
}

// An LSTM with 8-bit weights. x and the states of each step are quantized over their range, so each
// step becomes separate nodes.
Term dynamic_quantize_lstm(Context& c) {
  const Layer l = layer_of(c, 4, {"sigmoid", "tanh", "tanh"}, quantized_weights);
  const bool forget = c.flag("input_forget", false);
  support(!forget && !c.has(7), "Peepholes (input P) and input_forget = 1 are not supported.");
  const Term cells = state(c, 6, l);
  const Term scale_w = c.in(8);
  const Term scale_r = c.in(10);
  const Quantized x = quantized_by_range(c, c.m.reshape(l.x, {l.steps * l.batch, l.x.dims[2]}));
  Outputs out;
  for (int64_t d = 0; d < l.directions; ++d) {
    const Term r = c.m.at(l.r, 0, d);
    const Term own_scale = c.m.at(scale_r, 0, d);
    Term gates = quantized_product(c, x, c.m.at(l.w, 0, d), c.m.at(scale_w, 0, d));
    const Term bias = bias_of(c, l, d);
    gates = bias ? gates + bias : gates;
    gates = c.m.reshape(gates, {l.steps, l.batch, 4 * l.units});
    unroll_lstm(c, l, gates, cells, {}, d, out, [&](const Term& h) {
      return quantized_product(c, quantized_by_range(c, h), r, own_scale);
    });
  }
  return write(c, l, out);
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
