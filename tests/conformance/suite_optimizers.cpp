// Suite optimizers: compares many steps of clip and update on the device with the reference
// implementation in double precision. A step with an infinite gradient in the middle must change
// nothing. Weights of 16 bits must have the bits of the rounded masters after every step. The
// recipes follow from the descriptor of each optimizer.
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/checked.h"
#include "conformance/elements.h"
#include "conformance/evaluate.h"
#include "conformance/suite.h"
#include "core/optimizers.h"
#include "exec/step_values.h"
#include "ops/optimizer_reference.h"

namespace bowline::conformance {
namespace {

using device::Operand;
using device::Record;
using reference::Bounded;

constexpr int kSteps = 24;
constexpr int kBrokenStep = 9;
constexpr float kLearningRate = 1e-2f;
constexpr uint64_t kEntries[] = {1, 7, 64, 0, 1022, 4102};

struct OptimizerRecipe {
  const OptimizerDef* def;
  std::string name;
  decltype(Optimizer::settings) settings = {};
  float clip = 0;
  float gradient_scale = 1;
  bool matrices = false;
  DType dtype = DType::f32;  // of the weights

  Op op() const { return def->op; }
};

// Inside the range of the setting, and not its default.
float another_value(const OptimizerSetting& s) {
  if (s.is_flag) {
    return 1;
  }
  const bool bounded = std::isfinite(s.min) && std::isfinite(s.max);
  return bounded ? (s.min + s.max) / 2 : std::isfinite(s.min) ? 1e-2f : -0.5f;
}

// The defaults; decay and clipping; each optional state alone, and with all settings changed; the
// defaults and the last settings with masters.
std::vector<OptimizerRecipe> recipes_of(const OptimizerDef& def) {
  const std::string name(bowline::name_of(def.op));
  std::vector<OptimizerRecipe> out = {
      {&def, name + " plain"},
      {&def, name + " decay, clipped, 4 micro-batches", {{"weight_decay", 0.1f}}, 0.5f, 0.25f}};
  OptimizerRecipe all = {&def, name + " all settings changed", {}, 2, 0.5f};
  for (const OptimizerSetting& s : def.info.settings) {
    if (s.name != "decay_all") {
      all.settings.emplace(s.name, another_value(s));
    }
  }
  for (const OptimizerState& state : def.states) {
    if (!state.needs.empty()) {
      const float value = all.settings.find(state.needs)->second;
      out.push_back({&def, format("{} with {}", name, state.name)});
      out.back().settings.emplace(state.needs, value);
    }
    if (state.factored) {
      out.push_back({&def, name + " matrices", {}, 1, 1, true});
    }
  }
  out.push_back(std::move(all));
  const size_t of_f32 = out.size();
  for (const DType dtype : {DType::f16, DType::bf16}) {
    for (const size_t i : {size_t{0}, of_f32 - 2, of_f32 - 1}) {
      OptimizerRecipe& r = out.emplace_back(out[i]);
      r.name += format(", {} weights", dtype);
      r.dtype = dtype;
    }
  }
  return out;
}

Result<Attributes> attributes_of(const OptimizerRecipe& r) {
  std::vector<Attribute> values;
  for (const auto& [name, value] : r.settings) {
    values.emplace_back(name, value);
  }
  return attributes_from(r.op(), values);
}

// Returns the rows of an entry with n elements as a matrix.
uint64_t rows_of(uint64_t n) { return n % 7 == 0 && n > 0 ? 7 : n % 8 == 0 && n > 0 ? 8 : 1; }

// The sizes of the entries of each list behind the scale.
std::vector<std::vector<uint64_t>> states_of(const OptimizerRecipe& r) {
  const std::vector<uint64_t> whole(std::begin(kEntries), std::end(kEntries));
  std::vector<std::vector<uint64_t>> out;
  for (const OptimizerState& state : r.def->states) {
    const auto needed = r.settings.find(state.needs);
    if (!state.needs.empty() && (needed == r.settings.end() || needed->second == 0)) {
      continue;
    }
    if (!state.factored || !r.matrices) {
      out.push_back(whole);
      continue;
    }
    std::vector<uint64_t> rows, columns;
    for (const uint64_t n : whole) {
      rows.push_back(n == 0 ? 0 : rows_of(n));
      columns.push_back(n / rows_of(n));
    }
    out.insert(out.end(), {rows, columns});
  }
  return out;
}

// The weights and states in double precision.
class Reference {
 public:
  Reference(const OptimizerRecipe& r, Attributes attributes, std::vector<double> weights)
      : r_(r), attributes_(std::move(attributes)), w_(weights.begin(), weights.end()) {
    for (const std::vector<uint64_t>& sizes : states_of(r)) {
      states_.emplace_back(std::accumulate(sizes.begin(), sizes.end(), uint64_t{0}));
    }
    largest_.resize(w_.size());
    moved_.resize(w_.size());
  }

  int updates() const { return updates_; }
  double weight(size_t i) const { return w_[i].value; }
  // How far f32 arithmetic may be from it: with a formula, what its arithmetic adds up to; else a
  // rounding of the weight in each step, and some of each move, with the error of the norm.
  double bound(size_t i) const {
    const auto n = static_cast<double>(w_.size());
    return std::ldexp(
        has_formula_ ? w_[i].error
                     : 4 * std::sqrt(kSteps) * largest_[i] + (16 + 4 * std::sqrt(n)) * moved_[i],
        -24);
  }

  // Returns the norm. `values` are what the device gets.
  double step(std::span<const double> gradients, const exec::StepValues& values) {
    double sum = 0;
    for (const double g : gradients) {
      sum += g * g;
    }
    const double norm = static_cast<double>(r_.gradient_scale) * std::sqrt(sum);
    if (!std::isfinite(norm)) {
      return norm;
    }
    const double clip = static_cast<double>(r_.clip);
    const bool clips = clip > 0 && norm > clip;
    const double scale = static_cast<double>(r_.gradient_scale) * (clips ? clip / norm : 1);
    const double roundings = 4 + 4 * std::sqrt(static_cast<double>(w_.size()));
    update(gradients, Bounded(scale, clips ? roundings * scale : 0), values);
    ++updates_;
    return norm;
  }

 private:
  void update(std::span<const double> gradients, Bounded scale, const exec::StepValues& values) {
    switch (r_.op()) {
#define BOWLINE_OPTIMIZER(Name, stem) \
  case Op::Name:                      \
    return update_by<optimizer::formulas::Name>(gradients, scale, values);
#include "generated/optimizers.inc"
      default:
        update_by_oracle(gradients, scale.value, values);
    }
  }

  template <class Formula>
  void update_by(std::span<const double> gradients, Bounded scale, const exec::StepValues& values) {
    optimizer::Reading in{update_operands(r_.op(), attributes_), {}};
    for (const StepWordInfo& word : step_words(r_.op())) {
      in.words.push_back(word.type == StepType::f32
                             ? static_cast<double>(values.get<float>(word.name))
                             : static_cast<double>(values.get<uint32_t>(word.name)));
    }
    const Formula formula(in);
    for (size_t i = 0; i < w_.size(); ++i) {
      Bounded states[kMostOptimizerStates];
      for (size_t s = 0; s < Formula::kStates; ++s) {
        states[s] = in.operands.states[s] ? state(in, s)[i] : Bounded();
      }
      formula.apply_to(w_[i], Bounded(gradients[i]) * scale, states[0], states[1], states[2]);
      for (size_t s = 0; s < Formula::kStates; ++s) {
        if (in.operands.states[s]) {
          state(in, s)[i] = states[s];
        }
      }
    }
    has_formula_ = true;
  }
  std::vector<Bounded>& state(const optimizer::Reading& in, size_t s) {
    return states_[*in.operands.states[s] - kUpdateInputs];
  }

  static Array array_of(const std::vector<Bounded>& values, std::vector<int64_t> entries) {
    Array out;
    for (const Bounded& v : values) {
      out.values.push_back(v.value);
    }
    out.shape = Shape{static_cast<int64_t>(values.size())};
    out.entries = std::move(entries);
    return out;
  }

  void update_by_oracle(std::span<const double> gradients, double scale,
                        const exec::StepValues& values) {
    const std::vector<int64_t> whole(std::begin(kEntries), std::end(kEntries));
    std::vector<Array> in = {array_of(w_, whole),
                             array_of({gradients.begin(), gradients.end()}, whole),
                             array_of({scale}, {})};
    const std::vector<std::vector<uint64_t>> sizes = states_of(r_);
    for (size_t s = 0; s < states_.size(); ++s) {
      in.push_back(array_of(states_[s], {sizes[s].begin(), sizes[s].end()}));
    }
    Step step;
    for (const StepWordInfo& word : step_words(r_.op())) {
      if (!word.written) {
        step.words.push_back(word.type == StepType::f32
                                 ? StepScalar(word.name, values.get<float>(word.name))
                                 : StepScalar(word.name, values.get<uint32_t>(word.name)));
      }
    }
    const Expected made =
        run_oracle(op_def(r_.op()).oracle, r_.op(), attributes_, in, step).value();
    for (size_t i = 0; i < w_.size(); ++i) {
      const double next = made.outputs[0].values[i];
      largest_[i] = std::max({largest_[i], std::abs(w_[i].value), std::abs(next)});
      moved_[i] += 4 * std::abs(next - w_[i].value);
      w_[i] = next;
    }
    for (size_t s = 0; s < states_.size(); ++s) {
      states_[s].assign(made.outputs[s + 1].values.begin(), made.outputs[s + 1].values.end());
    }
  }

  const OptimizerRecipe& r_;
  Attributes attributes_;
  std::vector<Bounded> w_;
  std::vector<std::vector<Bounded>> states_;
  std::vector<double> largest_, moved_;
  bool has_formula_ = false;
  int updates_ = 0;
};

// The lists on the device. Slot 3 + k holds list k.
class Rig {
 public:
  explicit Rig(std::shared_ptr<device::OpenDevice> device) : device_(std::move(device)) {
    alignment_ = device_->capabilities().alignment;
    for (const uint64_t n : kEntries) {
      elements_ += n;
    }
  }

  uint64_t elements() const { return elements_; }

  Status build(const OptimizerRecipe& r, const Attributes& attributes) {
    const std::vector<uint64_t> whole(std::begin(kEntries), std::end(kEntries));
    program_ = {};
    layout_ = {};
    std::vector<Operand> inputs = {list_operand(whole, r.dtype), list_operand(whole)};
    Operand scale;
    scale.shape = Shape{1};
    ClipByGlobalNormAttributesT clip;
    clip.max_norm = r.clip;
    add(Op::ClipByGlobalNorm, Attributes::of(clip), {inputs[1]}, {scale}, 0);
    inputs.push_back(scale);
    std::vector<Operand> outputs = {inputs[0]};
    for (const std::vector<uint64_t>& sizes : states_of(r)) {
      inputs.push_back(list_operand(sizes));
      outputs.push_back(inputs.back());
    }
    if (r.dtype != DType::f32) {
      inputs.push_back(list_operand(whole));
      outputs.push_back(inputs.back());
    }
    add(r.op(), attributes, std::move(inputs), std::move(outputs), 1);
    program_.slots = device::kFirstStorageSlot + static_cast<uint32_t>(lists_.size());
    uint64_t arena = alignment_;
    for (Record& record : program_.records) {
      record.type = &record == &program_.records.back() ? r.dtype : DType::f32;
      const auto answer = device_->query(
          {record.op, record.type, record.attributes, record.inputs, record.outputs});
      BOWLINE_REQUIRE(answer.reason.empty(), "The device cannot run {}: {}", record.op,
                      answer.reason);
      record.workspace.dtype = DType::u8;
      record.workspace.offset = arena;
      record.workspace.shape = Shape{static_cast<int64_t>(answer.workspace_bytes)};
      arena = round_up(arena + answer.workspace_bytes, alignment_);
    }
    return allocate(arena);
  }

  // The list of the values that a step changes.
  size_t values_list() const { return lists_[0].dtype == DType::f32 ? 0 : lists_.size() - 1; }

  // Writes a list of values or gradients.
  Status write_list(size_t k, std::span<const double> values) {
    std::vector<std::byte> bytes(lists_[k].bytes);
    size_t from = 0;
    for (size_t e = 0; e < std::size(kEntries); ++e) {
      store(values.subspan(from, kEntries[e]), lists_[k].dtype,
            bytes.data() + lists_[k].offsets[e]);
      from += kEntries[e];
    }
    return device_->copy_in(blocks_[device::kFirstStorageSlot + k]->buffer(), 0, bytes);
  }

  Result<std::vector<double>> read_list(size_t k) {
    std::vector<std::byte> bytes(lists_[k].bytes);
    BOWLINE_TRY(device_->copy_out(bytes, blocks_[device::kFirstStorageSlot + k]->buffer(), 0));
    std::vector<double> out;
    for (size_t e = 0; e < std::size(kEntries); ++e) {
      const std::vector<double> entry =
          load(bytes.data() + lists_[k].offsets[e], kEntries[e], lists_[k].dtype);
      out.insert(out.end(), entry.begin(), entry.end());
    }
    return out;
  }

  // Returns values for the layout of the records.
  exec::StepValues values() const { return exec::StepValues(layout_); }
  Status submit(exec::StepValues& step) {
    const device::Buffer buffer = blocks_[device::kStepSlot]->buffer();
    BOWLINE_TRY(device_->copy_in(buffer, 0, step.bytes()));
    device::Recording* const one = recording_.get();
    BOWLINE_TRY(device_->submit({&one, 1}));
    BOWLINE_TRY(device_->wait());
    return device_->copy_out(step.bytes(), buffer, 0);
  }

  void release() {
    if (recording_) {
      device_->release(std::move(recording_));
    }
    blocks_.clear();
  }

 private:
  struct List {
    DType dtype = DType::f32;
    std::vector<uint64_t> offsets;
    uint64_t bytes = 0;
  };

  Operand list_operand(const std::vector<uint64_t>& sizes, DType dtype = DType::f32) {
    const auto slot = static_cast<uint32_t>(device::kFirstStorageSlot + lists_.size());
    List list{dtype, {}, 0};
    device::Table table;
    uint64_t largest = 0;
    for (const uint64_t n : sizes) {
      table.entries.push_back({slot, list.bytes, n, false});
      list.offsets.push_back(list.bytes);
      list.bytes = round_up(list.bytes + n * size_of(dtype) + 1, alignment_);
      largest = std::max(largest, n);
    }
    Operand o;
    o.slot = slot;
    o.dtype = dtype;
    o.shape = Shape{static_cast<int64_t>(largest)};
    o.table = static_cast<uint32_t>(program_.tables.size());
    program_.tables.push_back(std::move(table));
    lists_.push_back(std::move(list));
    return o;
  }

  void add(Op op, const Attributes& attributes, std::vector<Operand> inputs,
           std::vector<Operand> outputs, uint32_t level) {
    Record r;
    r.op = op;
    r.attributes = attributes;
    r.inputs = std::move(inputs);
    r.outputs = std::move(outputs);
    r.level = level;
    r.step = layout_.add(op);
    program_.records.push_back(std::move(r));
  }

  Status allocate(uint64_t arena_bytes) {
    std::vector<device::Buffer> buffers;
    for (uint32_t s = 0; s < program_.slots; ++s) {
      const uint64_t bytes = s == device::kArenaSlot ? arena_bytes
                             : s < device::kFirstStorageSlot
                                 ? layout_.bytes()
                                 : lists_[s - device::kFirstStorageSlot].bytes;
      const auto kind = s == device::kArenaSlot || s >= device::kFirstStorageSlot
                            ? device::MemoryKind::device
                            : device::MemoryKind::io;
      BOWLINE_TRY_ASSIGN(auto block, device::Block::allocate(device_, bytes, kind));
      BOWLINE_TRY(device_->fill(block->buffer(), 0, bytes, std::byte{0}));
      buffers.push_back(block->buffer());
      blocks_.push_back(std::move(block));
    }
    BOWLINE_TRY_ASSIGN(recording_, device_->record(program_, buffers));
    return {};
  }

  std::shared_ptr<device::OpenDevice> device_;
  uint64_t alignment_ = 64;
  uint64_t elements_ = 0;
  std::vector<List> lists_;
  device::Program program_;
  plan::StepLayout layout_;
  std::vector<std::shared_ptr<device::Block>> blocks_;
  std::unique_ptr<device::Recording> recording_;
};

void fill(exec::StepValues& s, const OptimizerRecipe& r, int updates, float learning_rate) {
  s.set("learning_rate", learning_rate);
  s.set("gradient_scale", r.gradient_scale);
  s.set("update", static_cast<uint32_t>(updates + 1));
  for (const OptimizerCorrection& c : r.def->corrections) {
    const auto beta = static_cast<double>(setting_of(*r.def, {{}, r.settings}, c.setting));
    s.set(c.word, static_cast<float>(1 - std::pow(beta, updates + 1)));
  }
}

Result<std::string> steps(Run& run, Rig& rig, const OptimizerRecipe& r) {
  BOWLINE_TRY_ASSIGN(const Attributes attributes, attributes_of(r));
  BOWLINE_TRY(rig.build(r, attributes));
  const uint64_t key = hash_of(r.name) ^ run.options.seed * 0x9E3779B97F4A7C15ull;
  const size_t n = rig.elements();
  const std::vector<double> weights = draw(Values::normal, n, key, 0);
  Reference reference(r, attributes, weights);
  BOWLINE_TRY(rig.write_list(rig.values_list(), weights));
  BOWLINE_TRY(rig.write_list(0, weights));
  for (int s = 0; s < kSteps; ++s) {
    std::vector<double> gradients = draw(Values::normal, n, key, static_cast<uint32_t>(s + 1));
    if (s == kBrokenStep) {
      gradients[n / 2] = std::numeric_limits<double>::infinity();
    }
    exec::StepValues values = rig.values();
    fill(values, r, reference.updates(),
         kLearningRate * (1 - 0.5f * static_cast<float>(s) / kSteps));
    BOWLINE_TRY(rig.write_list(1, gradients));
    const double norm = reference.step(gradients, values);
    BOWLINE_TRY(rig.submit(values));
    const Tolerance tolerance = Tolerance::of_reduction(static_cast<int64_t>(n), 4);
    const auto got_norm = values.get<float>("grad_norm");
    const auto non_finite = values.get<uint32_t>("non_finite");
    if (error_units(tolerance, norm, norm, static_cast<double>(got_norm)) > 1 ||
        (non_finite != 0) == std::isfinite(norm)) {
      return format("step {}: norm {} and non_finite {} at a norm of {}", s, got_norm, non_finite,
                    norm);
    }
    BOWLINE_TRY_ASSIGN(const std::vector<double> values_now, rig.read_list(rig.values_list()));
    BOWLINE_TRY_ASSIGN(const std::vector<double> weights_now, rig.read_list(0));
    for (size_t i = 0; i < n; ++i) {
      if (weights_now[i] != round_to(r.dtype, values_now[i])) {
        return format("step {}: weight {} is {}, but its master is {}", s, i, weights_now[i],
                      values_now[i]);
      }
    }
  }
  BOWLINE_TRY_ASSIGN(const std::vector<double> got, rig.read_list(rig.values_list()));
  for (size_t i = 0; i < n; ++i) {
    const double wanted = reference.weight(i);
    const double units = std::abs(got[i] - wanted) / reference.bound(i);
    run.note_error(units, r.name);
    if (!(units <= 1)) {
      return format("element {} is {} instead of {} after {} steps", i, got[i], wanted, kSteps);
    }
  }
  return std::string();
}

}  // namespace

Status run_optimizers(Run& run) {
  for (const OptimizerDef& def : optimizer_defs()) {
    if (!selects(run.options, bowline::name_of(def.op))) {
      continue;
    }
    for (const OptimizerRecipe& r : recipes_of(def)) {
      run.one(bowline::name_of(def.op), r.name, [&] {
        Rig rig(run.device);
        const Result<std::string> problem = steps(run, rig, r);
        rig.release();
        return problem.ok() ? problem.value() : problem.status().message();
      });
    }
  }
  return {};
}

}  // namespace bowline::conformance
