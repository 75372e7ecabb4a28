#include "conformance/random/reference.h"

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "conformance/oracle_gradient.h"
#include "conformance/random/dice.h"
#include "core/optimizers.h"

namespace bowline::conformance::random {
namespace {

using Weights = std::vector<std::vector<double>>;

constexpr double kHuge = 1e4;

// Runs operators. A lane other than 0 moves the results within their bounds.
class Machine {
 public:
  explicit Machine(int lane) : lane_(lane), dice_(mixed(0xA5, static_cast<uint64_t>(lane))) {}

  Result<std::vector<Array>> run(Op op, const Attributes& attributes, std::span<const Array> inputs,
                                 const Step& step) {
    calls.push_back({op, attributes, {inputs.begin(), inputs.end()}, step});
    BOWLINE_TRY_ASSIGN(Expected e, run_oracle(op_def(op).oracle, op, attributes, inputs, step));
    BOWLINE_REQUIRE_CODE(e.outcome.bad_indices.empty(), Code::unsupported,
                         "{} gets an index that lies outside.", op);
    if (op == Op::ClipByGlobalNorm) {
      norm = e.outcome.words[step::clip_by_global_norm::grad_norm.index].value();
      norm = moved(norm, norm, e.tolerance);
    }
    for (size_t o = 0; o < e.outputs.size(); ++o) {
      std::vector<double>& values = e.outputs[o].values;
      if (!is_float(e.outputs[o].dtype)) {
        continue;
      }
      for (size_t i = 0; i < values.size(); ++i) {
        // Skips the statistics of attention rows without keys, which are infinite.
        if (op == Op::Attention && o == 1 && std::isinf(values[i])) {
          continue;
        }
        const double size = e.magnitude[o].empty() ? 0 : e.magnitude[o][i];
        values[i] = moved(values[i], size, e.tolerance);
      }
    }
    return std::move(e.outputs);
  }

  double moved(double value, double magnitude, const Tolerance& tolerance) {
    finite = finite && std::abs(value) < kHuge;
    if (lane_ == 0) {
      return value;
    }
    const double size = std::max(std::isfinite(magnitude) ? magnitude : 0, std::abs(value));
    const double bound = tolerance.roundings * std::ldexp(size, -24) + tolerance.absolute;
    return value + bound * dice_.normal();
  }

  // Adds `part` to `total` with one rounding per element.
  void add(std::vector<double>& total, std::span<const double> part) {
    for (size_t i = 0; i < part.size(); ++i) {
      const double size = std::abs(total[i]) + std::abs(part[i]);
      total[i] =
          total[i] == 0 ? part[i] : moved(total[i] + part[i], size, Tolerance::of_roundings(1));
    }
  }

  struct Call {
    Op op = Op::Invalid;
    Attributes attributes;
    std::vector<Array> inputs;
    Step step;
  };
  std::vector<Call> calls;
  double norm = 0;
  bool finite = true;

 private:
  int lane_;
  Dice dice_;
};

// The gradient of a line for the inputs that depend on trainable storages. A rule may refuse the
// others.
class NeededGradient : public OracleGradient {
 public:
  NeededGradient(const Tape& tape, const Tape::Line& line, std::span<const Array> inputs,
                 std::span<const Array> outputs, std::vector<Array> douts, Execute execute)
      : OracleGradient(line.attributes, inputs, outputs, std::move(douts), std::move(execute)),
        tape_(tape),
        line_(line) {}
  bool needs(int i) const override {
    return OracleGradient::needs(i) && tape_.values[line_.inputs[static_cast<size_t>(i)]].needed;
  }

 private:
  const Tape& tape_;
  const Tape::Line& line_;
};

// The divisor of the mean in a loss.
struct MeanWeight {
  double sum = 1;       // in this batch
  double terms = 1;     // if every term has weight 1
  bool counts = false;  // the batch determines the sum
  // If `counts`: the labels and their ignored index, and the product of the constant factors.
  std::vector<std::pair<uint32_t, int32_t>> labels = {};
  double constant = 1;

  bool divides_like(const MeanWeight& o) const {
    return counts == o.counts && labels == o.labels && (!counts || constant == o.constant);
  }
};

// A loss in which each mean that depends on the batch has a factor of its own.
struct FactoredTape {
  Tape tape;
  std::vector<uint32_t> means;  // values of the tape
};

// Forward and backward over one tape.
class Pass {
 public:
  Pass(const Recipe& recipe, const Tape& tape, const Graph& graph, Machine& machine, Step step)
      : recipe_(recipe), tape_(tape), graph_(graph), machine_(machine), step_(step) {}

  // Computes the outputs of the tape.
  Result<std::vector<Array>> forward(const Weights& weights, uint32_t batch,
                                     std::span<const double> factors = {}) {
    values_.resize(tape_.values.size());
    of_batch_.assign(tape_.values.size(), 0);
    for (size_t v = 0; v < values_.size(); ++v) {
      const Tape::Value& from = tape_.values[v];
      values_[v].shape = from.shape;
      if (from.input >= 0) {
        of_batch_[v] = 1;
        const Node& input = graph_.nodes[static_cast<size_t>(from.input)];
        values_[v].values = batch_values(recipe_, input, batch);
        values_[v].dtype = input.classes > 0 ? DType::i32 : DType::f32;
      } else if (from.parameter >= 0) {
        const ParameterRow& row = recipe_.parameters[static_cast<size_t>(from.parameter)];
        BOWLINE_TRY_ASSIGN(const auto map, element_map(recipe_.storages[row.storage], row));
        for (const size_t i : map) {
          values_[v].values.push_back(weights[row.storage][i]);
        }
      } else if (from.factor >= 0) {
        values_[v].values = {factors[static_cast<size_t>(from.factor)]};
      }
    }
    for (const Tape::Line& line : tape_.lines) {
      step_.facts.iteration = line.iteration;
      BOWLINE_TRY_ASSIGN(std::vector<Array> made,
                         machine_.run(line.op, line.attributes, all(line.inputs), step_));
      for (size_t o = 0; o < made.size(); ++o) {
        values_[line.outputs[o]] = std::move(made[o]);
        of_batch_[line.outputs[o]] =
            !step_words(line.op).empty() ||
            std::ranges::any_of(line.inputs, [&](uint32_t in) { return of_batch_[in] != 0; });
      }
    }
    return all(tape_.outputs);
  }

  // Call after forward(). Returns the weight as TrainOptions::accumulation defines it, or 1 if the
  // loss is not a mean.
  // Errors  unsupported: the loss is a mean of an operator that this function does not know.
  Result<MeanWeight> loss_weight() const {
    std::set<uint32_t> seen;
    BOWLINE_TRY_ASSIGN(const std::optional<MeanWeight> found, weight_of(tape_.outputs[0], seen));
    return found.value_or(MeanWeight());
  }

  // Returns the weight of one of the means in the loss.
  Result<MeanWeight> weight_of_mean(uint32_t value) const {
    std::set<uint32_t> seen;
    BOWLINE_TRY_ASSIGN(const std::optional<MeanWeight> found, weight_of(value, seen));
    return found.value_or(MeanWeight());
  }

  // Call after forward(). Returns std::nullopt if one weight fits all means.
  Result<std::optional<FactoredTape>> factored() const {
    FactoredTape out;
    std::vector<uint32_t> sums;  // a sum precedes its summands
    BOWLINE_TRY(find_means(tape_.outputs[0], out.means, sums));
    std::vector<MeanWeight> weights;
    for (const uint32_t v : out.means) {
      BOWLINE_TRY_ASSIGN(weights.emplace_back(), weight_of_mean(v));
    }
    if (std::ranges::all_of(weights, [&](const auto& w) { return w.divides_like(weights[0]); })) {
      return std::optional<FactoredTape>();
    }
    out.tape = tape_;
    Tape& t = out.tape;
    std::map<uint32_t, uint32_t> replaced;
    const auto add = [&](Tape::Value value) {
      t.values.push_back(std::move(value));
      return static_cast<uint32_t>(t.values.size() - 1);
    };
    for (size_t i = 0; i < out.means.size(); ++i) {
      const Tape::Value mean = t.values[out.means[i]];
      Tape::Value factor;
      factor.shape = Shape{};
      factor.factor = static_cast<int32_t>(i);
      Tape::Line product;
      product.op = Op::Mul;
      product.attributes = Attributes::of(NoAttributesT{});
      product.inputs = {out.means[i], add(factor)};
      product.outputs = {add({mean.shape, -1, -1, mean.needed})};
      replaced[out.means[i]] = product.outputs[0];
      t.lines.push_back(std::move(product));
    }
    for (const Tape::Line& line : tape_.lines) {
      if (std::ranges::find(sums, line.outputs[0]) == sums.end()) {
        continue;
      }
      Tape::Line copy = line;
      for (uint32_t& in : copy.inputs) {
        in = replaced.contains(in) ? replaced[in] : in;
      }
      copy.outputs = {add(t.values[line.outputs[0]])};
      replaced[line.outputs[0]] = copy.outputs[0];
      t.lines.push_back(std::move(copy));
    }
    t.outputs = {replaced.at(tape_.outputs[0])};
    return std::optional(std::move(out));
  }

  // Adds `seed` times the gradients of the loss to `gradients`, by storage. Marks the storages with
  // a contribution in `reached`.
  Status backward(Weights& gradients, std::vector<char>& reached, double seed = 1) {
    douts_.assign(values_.size(), {});
    douts_[tape_.outputs[0]] = {seed};
    for (size_t n = tape_.lines.size(); n-- > 0;) {
      BOWLINE_TRY(line_backward(tape_.lines[n]));
    }
    for (size_t v = 0; v < values_.size(); ++v) {
      const int32_t p = tape_.values[v].parameter;
      if (p < 0 || douts_[v].empty()) {
        continue;
      }
      const ParameterRow& row = recipe_.parameters[static_cast<size_t>(p)];
      if (recipe_.storages[row.storage].frozen) {
        continue;
      }
      BOWLINE_TRY_ASSIGN(const auto map, element_map(recipe_.storages[row.storage], row));
      std::vector<double> whole(gradients[row.storage].size());
      for (size_t i = 0; i < map.size(); ++i) {
        whole[map[i]] = douts_[v][i];
      }
      machine_.add(gradients[row.storage], whole);
      reached[row.storage] = 1;
    }
    return {};
  }

 private:
  std::vector<Array> all(const std::vector<uint32_t>& ids) const {
    std::vector<Array> out;
    for (const uint32_t v : ids) {
      out.push_back(values_[v]);
    }
    return out;
  }

  const Tape::Line* line_of(uint32_t v) const {
    const auto line = std::ranges::find_if(
        tape_.lines, [&](const Tape::Line& l) { return !l.outputs.empty() && l.outputs[0] == v; });
    return line == tape_.lines.end() ? nullptr : &*line;
  }

  bool is_of_batch(uint32_t v) const { return of_batch_[v] != 0; }

  bool is_stack(uint32_t v) const {
    const Tape::Line* const line = line_of(v);
    return line != nullptr && line->op == Op::Concat &&
           std::ranges::all_of(line->inputs,
                               [&](uint32_t in) { return values_[in].values.size() == 1; });
  }

  bool keeps(const Tape::Line& line, size_t i) const {
    return line.op == Op::Concat      ? is_stack(line.outputs[0])
           : line.op == Op::ReduceSum ? is_stack(line.inputs[0])
                                      : (op_def(line.op).keeps_loss_weight >> i & 1) != 0;
  }

  bool is_one(uint32_t v) const {
    return line_of(v) != nullptr && (values_[v].values.size() == 1 || is_stack(v));
  }

  // Finds the means in the sum `v` that depend on the batch, with any other factors.
  Status find_means(uint32_t v, std::vector<uint32_t>& means, std::vector<uint32_t>& sums) const {
    const auto is_in = [&](const std::vector<uint32_t>& list) {
      return std::ranges::find(list, v) != list.end();
    };
    if (is_in(means) || is_in(sums) || !is_of_batch(v)) {
      return {};
    }
    std::vector<uint32_t> added;
    if (is_one(v)) {
      const Tape::Line& line = *line_of(v);
      BOWLINE_TRY_ASSIGN(const std::optional<MeanWeight> own, own_weight(line));
      std::vector<size_t> of_batch;
      for (size_t i = 0; i < line.inputs.size(); ++i) {
        if (is_of_batch(line.inputs[i])) {
          of_batch.push_back(i);
        }
      }
      const bool sum = line.op == Op::Add || line.op == Op::Sub || line.op == Op::Concat;
      for (const size_t i : of_batch) {
        if (!own && (sum || (of_batch.size() == 1 && keeps(line, i)))) {
          added.push_back(line.inputs[i]);
        }
      }
    }
    (added.empty() ? means : sums).push_back(v);
    for (const uint32_t in : added) {
      BOWLINE_TRY(find_means(in, means, sums));
    }
    return {};
  }

  Result<std::optional<MeanWeight>> own_weight(const Tape::Line& line) const {
    const auto elements = [&](size_t i) {
      return static_cast<double>(values_[line.inputs[i]].values.size());
    };
    if (line.op == Op::ReduceMean && is_stack(line.inputs[0])) {
      return std::optional<MeanWeight>();
    }
    if (line.op == Op::ReduceMean) {
      return std::optional(MeanWeight{elements(0), elements(0), false, {}, elements(0)});
    }
    if (line.op == Op::CrossEntropy) {
      const auto& t = line.attributes.as<CrossEntropyAttributes>();
      if (t.reduction() != file::Reduction::mean) {
        return std::optional<MeanWeight>();
      }
      const auto ignored =
          std::ranges::count(values_[line.inputs[1]].values, static_cast<double>(t.ignore_index()));
      return std::optional(MeanWeight{elements(1) - static_cast<double>(ignored),
                                      elements(1),
                                      true,
                                      {{line.inputs[1], t.ignore_index()}}});
    }
    BOWLINE_REQUIRE_CODE(op_def(line.op).loss_weight == nullptr, Code::unsupported,
                         "The weight of a loss that is {} is not known here.", line.op);
    return std::optional<MeanWeight>();
  }

  // For a sum of several means, returns the first whose weights depend on the batch, or else the
  // first.
  Result<std::optional<MeanWeight>> weight_of(uint32_t v, std::set<uint32_t>& seen) const {
    const Tape::Line* const line = line_of(v);
    if (!is_one(v) || !seen.insert(v).second) {
      return std::optional<MeanWeight>();
    }
    std::optional<MeanWeight> inner;
    for (size_t i = 0; i < line->inputs.size() && !(inner && inner->counts); ++i) {
      if (keeps(*line, i)) {
        BOWLINE_TRY_ASSIGN(const std::optional<MeanWeight> found, weight_of(line->inputs[i], seen));
        inner = found && (!inner || found->counts) ? found : inner;
      }
    }
    BOWLINE_TRY_ASSIGN(const std::optional<MeanWeight> own, own_weight(*line));
    if (!own || !inner) {
      return own ? own : inner;
    }
    MeanWeight both{own->sum * inner->sum, own->terms * inner->terms, own->counts || inner->counts,
                    own->labels, own->constant * inner->constant};
    both.labels.insert(both.labels.end(), inner->labels.begin(), inner->labels.end());
    return std::optional(std::move(both));
  }

  Status line_backward(const Tape::Line& line) {
    const bool reached =
        std::ranges::any_of(line.outputs, [&](uint32_t v) { return !douts_[v].empty(); });
    // The library differentiates the body of a Repeat as a whole. A rule that refuses does so even
    // if no gradient flows.
    const bool refusable = reached || op_def(line.op).gradient != nullptr;
    if (!refusable || !tape_.values[line.outputs[0]].needed) {
      return {};
    }
    step_.facts.iteration = line.iteration;
    std::vector<Array> douts;
    for (const uint32_t v : line.outputs) {
      douts.push_back({values_[v].shape, douts_[v]});
    }
    // Output 0 always has a gradient. The other outputs have one if the loss depends on them.
    douts[0].values.resize(values_[line.outputs[0]].values.size());
    NeededGradient context(tape_, line, all(line.inputs), all(line.outputs), std::move(douts),
                           [&](Op op, const Attributes& attributes, std::span<const Array> inputs) {
                             return machine_.run(op, attributes, inputs, step_);
                           });
    BOWLINE_REQUIRE_CODE(op_def(line.op).gradient != nullptr, Code::unsupported,
                         "A weight is behind {}, which has no gradient.", line.op);
    BOWLINE_TRY(op_def(line.op).gradient(context));
    if (!reached) {
      return {};
    }
    for (size_t i = 0; i < line.inputs.size(); ++i) {
      const uint32_t v = line.inputs[i];
      const auto& gradient = context.gradient(i);
      if (gradient) {
        douts_[v].resize(gradient->size());
        machine_.add(douts_[v], *gradient);
      }
    }
    return {};
  }

  const Recipe& recipe_;
  const Tape& tape_;
  const Graph& graph_;
  Machine& machine_;
  Step step_;
  std::vector<Array> values_;
  std::vector<char> of_batch_;  // the value depends on an input, or on a per-step scalar
  std::vector<std::vector<double>> douts_;
};

Weights first_weights(const Recipe& recipe) {
  Weights out;
  for (const StorageRow& s : recipe.storages) {
    out.emplace_back(s.values.begin(), s.values.end());
  }
  return out;
}

Weights zeros_like(const Weights& weights) {
  Weights out;
  for (const auto& w : weights) {
    out.emplace_back(w.size(), 0.0);
  }
  return out;
}

double as_float(double v) { return static_cast<double>(static_cast<float>(v)); }

// One training run.
class Run {
 public:
  Run(const Recipe& recipe, const Tape& loss, const Tape& probe, int lane)
      : recipe_(recipe),
        loss_(loss),
        probe_(probe),
        machine(lane),
        weights_(first_weights(recipe)),
        gradients_(zeros_like(weights_)),
        reached_(weights_.size()) {
    for (const StorageRow& row : recipe.storages) {
      std::vector<Array>& moments = moments_.emplace_back();
      for (const Shape& shape : moments_of(recipe.options.optimizer, row.shape)) {
        moments.push_back(entry(std::vector<double>(static_cast<size_t>(shape.elements()))));
      }
    }
  }

  Result<Observation> observe() {
    Observation out;
    const TrainOptions& o = recipe_.options;
    std::optional<FactoredTape> factored;
    if (o.accumulation > 1) {
      Machine quiet(0);
      Pass pass(recipe_, loss_, recipe_.loss, quiet, step());
      BOWLINE_TRY(pass.forward(weights_, 0).status());
      BOWLINE_TRY_ASSIGN(factored, pass.factored());
      has_one_weight_ = !factored.has_value();
    }
    for (uint32_t s = 0; s < recipe_.steps; ++s) {
      if (factored) {
        BOWLINE_TRY(factored_step(*factored, s, out));
        continue;
      }
      double terms = 0;
      double weights = 0;
      double unit = 1;
      gradients_ = zeros_like(weights_);
      for (uint32_t k = 0; k < o.accumulation; ++k, ++batch_) {
        Pass pass(recipe_, loss_, recipe_.loss, machine, step());
        BOWLINE_TRY_ASSIGN(const std::vector<Array> loss, pass.forward(weights_, batch_));
        MeanWeight weight;
        if (o.accumulation > 1) {
          BOWLINE_TRY_ASSIGN(weight, pass.loss_weight());
        }
        unit = std::max(weight.terms, 1.0);
        terms += weight.sum * loss[0].values[0];
        weights += weight.sum;
        BOWLINE_TRY(
            pass.backward(gradients_, reached_,
                          machine.moved(weight.sum / unit, 0,
                                        Tolerance::of_roundings(weight.sum == unit ? 0 : 2))));
      }
      BOWLINE_TRY(update(weights == 0 ? 1.0 / o.accumulation : unit / weights));
      note_step(weights == 0 ? 0 : terms / weights, s, out);
    }
    BOWLINE_TRY(evaluate(out));
    for (size_t p = 0; p < recipe_.parameters.size(); ++p) {
      const ParameterRow& row = recipe_.parameters[p];
      BOWLINE_TRY_ASSIGN(const auto map, element_map(recipe_.storages[row.storage], row));
      Series& series = out.emplace_back();
      series.name = format("values of {}", parameter_name(p));
      for (const size_t i : map) {
        series.values.push_back(weights_[row.storage][i]);
      }
    }
    list_owned(out);
    return out;
  }

  bool has_one_weight() const { return has_one_weight_; }
  bool all_reached() const {
    for (size_t s = 0; s < reached_.size(); ++s) {
      if (reached_[s] == 0 && !recipe_.storages[s].frozen) {
        return false;
      }
    }
    return true;
  }

 private:
  const Recipe& recipe_;
  const Tape& loss_;
  const Tape& probe_;

 public:
  Machine machine;

 private:
  void note_step(double loss, uint32_t number, Observation& out) {
    out.push_back({format("loss of step {}", number + 1),
                   {machine.moved(loss, 0, Tolerance::of_roundings(1))}});
    out.push_back({format("norm of step {}", number + 1), {machine.norm}});
  }

  // Each mean gets its share of the sum over all micro-batches. The factor compensates for the mean
  // over the micro-batches.
  Status factored_step(const FactoredTape& f, uint32_t number, Observation& out) {
    const uint32_t count = recipe_.options.accumulation;
    const uint32_t first = batch_;
    std::vector<std::vector<double>> sums;
    std::vector<double> all(f.means.size());
    for (; batch_ < first + count; ++batch_) {
      Machine quiet(0);
      Pass pass(recipe_, loss_, recipe_.loss, quiet, step());
      BOWLINE_TRY(pass.forward(weights_, batch_).status());
      std::vector<double>& of_batch = sums.emplace_back();
      for (size_t m = 0; m < f.means.size(); ++m) {
        BOWLINE_TRY_ASSIGN(const MeanWeight weight, pass.weight_of_mean(f.means[m]));
        of_batch.push_back(weight.sum);
        all[m] += weight.sum;
      }
    }
    gradients_ = zeros_like(weights_);
    double loss = 0;
    for (batch_ = first; batch_ < first + count; ++batch_) {
      std::vector<double> factors;
      for (size_t m = 0; m < all.size(); ++m) {
        factors.push_back(all[m] == 0 ? 0 : as_float(count * (sums[batch_ - first][m] / all[m])));
      }
      Pass pass(recipe_, f.tape, recipe_.loss, machine, step());
      BOWLINE_TRY_ASSIGN(const std::vector<Array> made, pass.forward(weights_, batch_, factors));
      loss += made[0].values[0] / count;
      BOWLINE_TRY(pass.backward(gradients_, reached_));
    }
    BOWLINE_TRY(update(1.0 / count));
    note_step(loss, number, out);
    return {};
  }

  Step step() const {
    Step out;
    out.words = {{"training", 1}, {"seed", recipe_.options.seed}, {"counter", batch_}};
    return out;
  }

  Status evaluate(Observation& out) {
    const Step quiet;
    Pass pass(recipe_, loss_, recipe_.loss, machine, quiet);
    BOWLINE_TRY_ASSIGN(std::vector<Array> loss, pass.forward(weights_, batch_));
    out.push_back({"evaluated loss", std::move(loss[0].values)});
    if (!recipe_.probe.nodes.empty()) {
      Pass other(recipe_, probe_, recipe_.probe, machine, quiet);
      BOWLINE_TRY_ASSIGN(std::vector<Array> made, other.forward(weights_, batch_));
      out.push_back({"output of the second entry point", std::move(made[0].values)});
    }
    return {};
  }

  void list_owned(Observation& out) const {
    for (size_t s = 0; s < weights_.size(); ++s) {
      if (recipe_.storages[s].frozen) {
        continue;
      }
      out.push_back({format("gradient of {}", storage_name(s)), gradients_[s]});
      for (size_t k = 0; k < moments_[s].size(); ++k) {
        out.push_back({format("moment {} of {}", k, storage_name(s)), moments_[s][k].values});
      }
    }
  }

  Status update(double gradient_scale) {
    const TrainOptions& o = recipe_.options;
    Step s = step();
    ++updates_;
    s.words = {{"learning_rate", o.schedule.learning_rate},
               {"gradient_scale", as_float(gradient_scale)},
               {"update", updates_}};
    const OptimizerDef& def = *optimizer_named(o.optimizer.name);
    for (const OptimizerCorrection& c : def.corrections) {
      const auto beta = static_cast<double>(setting_of(def, o.optimizer, c.setting));
      s.words.emplace_back(c.word, as_float(1 - std::pow(beta, static_cast<double>(updates_))));
    }
    Array all{Shape{}, {}};
    for (size_t k = 0; k < gradients_.size(); ++k) {
      all.values.insert(all.values.end(), gradients_[k].begin(), gradients_[k].end());
    }
    all.shape = Shape{static_cast<int64_t>(all.values.size())};
    ClipByGlobalNormAttributesT clip;
    clip.max_norm = o.clip_norm;
    BOWLINE_TRY_ASSIGN(const std::vector<Array> scale,
                       machine.run(Op::ClipByGlobalNorm, Attributes::of(clip), {&all, 1}, s));
    for (size_t k = 0; k < weights_.size(); ++k) {
      if (!recipe_.storages[k].frozen) {
        BOWLINE_TRY(update_storage(k, scale[0], s));
      }
    }
    return {};
  }

  // Returns a list with one storage.
  static Array entry(std::vector<double> values) {
    const auto n = static_cast<int64_t>(values.size());
    return {Shape{n}, std::move(values), DType::f32, -1, 0, {n}};
  }

  Status update_storage(size_t k, const Array& scale, const Step& s) {
    const Optimizer& p = recipe_.options.optimizer;
    const OptimizerDef& def = *optimizer_named(p.name);
    const bool decays =
        setting_of(def, p, "decay_all") != 0 || recipe_.storages[k].shape.rank() >= 2;
    std::vector<Attribute> values;
    for (const auto& [name, value] : p.settings) {
      if (name != "decay_all") {
        values.emplace_back(name, value);
      }
    }
    // The last value of an attribute counts.
    values.emplace_back("weight_decay", decays ? setting_of(def, p, "weight_decay") : 0.0f);
    BOWLINE_TRY_ASSIGN(const Attributes attributes, attributes_from(def.op, values));
    std::vector<Array> in = {entry(weights_[k]), entry(gradients_[k]), scale};
    in.insert(in.end(), moments_[k].begin(), moments_[k].end());
    BOWLINE_TRY_ASSIGN(std::vector<Array> made, machine.run(def.op, attributes, in, s));
    weights_[k] = std::move(made[0].values);
    for (size_t m = 0; m < moments_[k].size(); ++m) {
      moments_[k][m] = entry(std::move(made[m + 1].values));
    }
    return {};
  }

  Weights weights_;
  Weights gradients_;
  std::vector<std::vector<Array>> moments_;  // by storage
  std::vector<char> reached_;
  bool has_one_weight_ = true;
  uint32_t batch_ = 0;
  uint64_t updates_ = 0;
};

Status unusable(std::string_view why) { return Status(Code::unsupported, std::string(why)); }

double reach(double exact, std::span<const double> lanes) {
  double sum = 0;
  for (const double v : lanes) {
    sum += v == exact ? 0 : (v - exact) * (v - exact);  // both can be infinite
  }
  return kReach * std::sqrt(sum / kLanes);
}

// At a kink or a jump of a result (Relu at 0, Max of equal operands, a rank of TopK, a sign) a
// device may compute the other side. Therefore every operator is evaluated on both sides of its
// inputs, at the distance that a device may be off, in several directions. Where first order holds,
// the result moves by opposite amounts, up to some curvature.
constexpr int kDirections = 6;
constexpr double kBend = 0.1;       // relative to the movement
constexpr double kCurvature = 1e2;  // times the square of the distance

// Returns the result of a call with its inputs moved by `part` of their distances.
Result<std::vector<Array>> moved_call(const Machine::Call& call,
                                      const std::vector<std::vector<double>>& distances,
                                      double part) {
  std::vector<Array> inputs = call.inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (size_t e = 0; e < inputs[i].values.size(); ++e) {
      inputs[i].values[e] += part * distances[i][e];
    }
  }
  BOWLINE_TRY_ASSIGN(
      Expected e, run_oracle(op_def(call.op).oracle, call.op, call.attributes, inputs, call.step));
  return std::move(e.outputs);
}

bool is_straight(const std::vector<Array>& below, const std::vector<Array>& at,
                 const std::vector<Array>& above, double farthest) {
  for (size_t o = 0; o < at.size(); ++o) {
    for (size_t e = 0; e < at[o].values.size(); ++e) {
      const double a = below[o].values[e], b = at[o].values[e], c = above[o].values[e];
      const double bend = std::abs(a + c - 2 * b);
      const double slack =
          is_float(at[o].dtype) ? kBend * std::abs(c - a) + kCurvature * farthest * farthest : 0;
      // Infinite statistics of rows without keys do not change.
      if (!(bend <= slack) && !(a == b && b == c)) {
        return false;
      }
    }
  }
  return true;
}

// `calls` are the calls of all lanes. Lane 0 is exact.
Status check_bends(const std::vector<std::vector<Machine::Call>>& calls) {
  Dice dice(1);
  for (size_t n = 0; n < calls[0].size(); ++n) {
    const Machine::Call& exact = calls[0][n];
    std::vector<std::vector<double>> distances(exact.inputs.size());
    double farthest = 0;
    for (size_t i = 0; i < exact.inputs.size(); ++i) {
      for (size_t e = 0; e < exact.inputs[i].values.size(); ++e) {
        std::vector<double> lanes;
        for (size_t l = 1; l < calls.size(); ++l) {
          lanes.push_back(calls[l][n].inputs[i].values[e]);
        }
        distances[i].push_back(
            is_float(exact.inputs[i].dtype) ? reach(exact.inputs[i].values[e], lanes) : 0);
        farthest = std::max(farthest, distances[i].back());
      }
    }
    for (int d = 0; d < kDirections && farthest > 0; ++d) {
      for (std::vector<double>& row : distances) {
        for (double& r : row) {
          r = dice.chance(0.5) ? r : -r;
        }
      }
      BOWLINE_TRY_ASSIGN(const auto below, moved_call(exact, distances, -1));
      BOWLINE_TRY_ASSIGN(const auto at, moved_call(exact, distances, 0));
      BOWLINE_TRY_ASSIGN(const auto above, moved_call(exact, distances, 1));
      if (!is_straight(below, at, above, farthest)) {
        return unusable(format("{} is within reach of where its result bends or jumps.", exact.op));
      }
    }
  }
  return {};
}

}  // namespace

Result<Expectation> expect(const Recipe& recipe, bool as_repeat) {
  if (recipe.loss.shape(recipe.loss.outputs[0]).rank() != 0) {
    return unusable("The loss is no scalar.");  // shrinking can cause this
  }
  if (std::ranges::all_of(recipe.storages, [](const StorageRow& s) { return s.frozen; })) {
    return unusable("No storage is trained.");
  }
  BOWLINE_TRY_ASSIGN(const Tape loss, make_tape(recipe, recipe.loss, as_repeat));
  BOWLINE_TRY_ASSIGN(const Tape probe, make_tape(recipe, recipe.probe, as_repeat));
  std::vector<Observation> lanes;
  std::vector<std::vector<Machine::Call>> calls;
  bool has_one_weight = true;
  for (int lane = 0; lane <= kLanes; ++lane) {
    Run run(recipe, loss, probe, lane);
    BOWLINE_TRY_ASSIGN(Observation seen, run.observe());
    if (!run.machine.finite) {
      return unusable("A number is huge or not finite.");
    }
    if (!run.all_reached()) {
      return unusable("A trainable storage gets no gradient.");
    }
    has_one_weight = run.has_one_weight();
    lanes.push_back(std::move(seen));
    calls.push_back(std::move(run.machine.calls));
  }
  Expectation out;
  out.has_one_weight = has_one_weight;
  out.exact = lanes[0];
  for (size_t s = 0; s < lanes[0].size(); ++s) {
    std::vector<double>& bound = out.bound.emplace_back();
    for (size_t i = 0; i < lanes[0][s].values.size(); ++i) {
      std::vector<double> moved;
      for (int l = 1; l <= kLanes; ++l) {
        moved.push_back(lanes[static_cast<size_t>(l)][s].values[i]);
      }
      const double exact = lanes[0][s].values[i];
      bound.push_back(reach(exact, moved));
      if (lanes[0][s].name.starts_with("loss") && bound.back() > 1e-2 * (0.1 + std::abs(exact))) {
        return unusable("The loss is not known to one percent.");
      }
    }
  }
  BOWLINE_TRY(check_bends(calls));
  return out;
}

Result<Slopes> slopes_at(const Recipe& recipe, const std::vector<std::vector<double>>& weights) {
  BOWLINE_TRY_ASSIGN(const Tape tape, make_tape(recipe, recipe.loss, true));
  Machine machine(0);
  Step step;
  step.words = {{"training", 1}, {"seed", recipe.options.seed}};
  Pass pass(recipe, tape, recipe.loss, machine, step);
  BOWLINE_TRY_ASSIGN(const std::vector<Array> loss, pass.forward(weights, 0));
  Slopes out{loss[0].values[0], zeros_like(weights)};
  std::vector<char> reached(weights.size());
  BOWLINE_TRY(pass.backward(out.gradients, reached));
  return out;
}

double units_off(double exact, double bound, double got) {
  const double error = bound == 0 ? std::abs(got - as_float(exact)) : std::abs(got - exact);
  return error == 0 ? 0
         : !(error <= std::numeric_limits<double>::max()) || bound == 0
             ? std::numeric_limits<double>::infinity()
             : error / bound;
}

}  // namespace bowline::conformance::random
