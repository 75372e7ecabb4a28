// Suite optimizers: many steps of clip and update on the device, against the formulas in double
// precision, written once more here. A step with an infinite gradient in the middle must change
// nothing.
#include <cmath>
#include <cstring>
#include <limits>

#include "conformance/suite.h"
#include "core/checked.h"
#include "exec/step_values.h"

namespace bowline::conformance {
namespace {

using device::Operand;
using device::Record;

constexpr int kSteps = 24;
constexpr int kBrokenStep = 9;
constexpr uint64_t kEntries[] = {1, 7, 64, 0, 1021, 4099};

struct Recipe {
  std::string_view name;
  Op op = Op::AdamW;
  double learning_rate = 1e-2;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double momentum = 0;
  bool nesterov = false;
  double decay = 0;
  double clip = 0;
  double gradient_scale = 1;
};

constexpr Recipe kRecipes[] = {
    {.name = "AdamW plain"},
    {.name = "AdamW decay", .decay = 0.1},
    {.name = "AdamW clipped, 4 micro-batches", .decay = 0.01, .clip = 0.5, .gradient_scale = 0.25},
    {.name = "AdamW short memory", .learning_rate = 1e-3, .beta1 = 0.5, .beta2 = 0.9, .eps = 1e-3},
    {.name = "Sgd plain", .op = Op::Sgd},
    {.name = "Sgd decay, clipped", .op = Op::Sgd, .decay = 0.1, .clip = 1},
    {.name = "Sgd momentum", .op = Op::Sgd, .momentum = 0.9},
    {.name = "Sgd Nesterov, decay",
     .op = Op::Sgd,
     .momentum = 0.9,
     .nesterov = true,
     .decay = 0.05},
    {.name = "Sgd momentum, clipped, 2 micro-batches",
     .op = Op::Sgd,
     .momentum = 0.5,
     .clip = 2,
     .gradient_scale = 0.5},
};

double rounded(double v) { return static_cast<double>(static_cast<float>(v)); }

Attributes attributes_of(const Recipe& r) {
  if (r.op == Op::AdamW) {
    AdamWAttributesT t;
    t.beta1 = static_cast<float>(r.beta1);
    t.beta2 = static_cast<float>(r.beta2);
    t.eps = static_cast<float>(r.eps);
    t.weight_decay = static_cast<float>(r.decay);
    return Attributes::of(t);
  }
  SgdAttributesT t;
  t.momentum = static_cast<float>(r.momentum);
  t.nesterov = r.nesterov;
  t.weight_decay = static_cast<float>(r.decay);
  return Attributes::of(t);
}

// The state of the formulas: one number per element and what its roundings may add up to.
struct Reference {
  std::vector<double> w, m, v, travelled, m_size;
  int updates = 0;

  // Returns the norm.
  double step(const Recipe& r, std::span<const double> gradients, double learning_rate) {
    double sum = 0;
    for (const double g : gradients) {
      sum += g * g;
    }
    const double norm = r.gradient_scale * std::sqrt(sum);
    if (!std::isfinite(norm)) {
      return norm;
    }
    const double clip = rounded(r.clip);
    const double scale = r.gradient_scale * (clip > 0 && norm > clip ? clip / norm : 1);
    ++updates;
    for (size_t i = 0; i < w.size(); ++i) {
      const double g = gradients[i] * scale;
      r.op == Op::AdamW ? adamw(r, i, g, learning_rate) : sgd(r, i, g, learning_rate);
    }
    return norm;
  }

 private:
  void adamw(const Recipe& r, size_t i, double g, double learning_rate) {
    const double beta1 = rounded(r.beta1), beta2 = rounded(r.beta2);
    m[i] = beta1 * m[i] + (1 - beta1) * g;
    v[i] = beta2 * v[i] + (1 - beta2) * g * g;
    m_size[i] = beta1 * m_size[i] + (1 - beta1) * std::abs(g);
    const double bias1 = 1 - std::pow(beta1, updates), bias2 = 1 - std::pow(beta2, updates);
    const double root = std::sqrt(v[i] / bias2) + rounded(r.eps);
    w[i] -= learning_rate * rounded(r.decay) * w[i];
    w[i] -= learning_rate * m[i] / bias1 / root;
    travelled[i] += learning_rate * (m_size[i] / bias1 / root + std::abs(w[i]) * r.decay);
  }

  void sgd(const Recipe& r, size_t i, double g, double learning_rate) {
    const double momentum = rounded(r.momentum);
    double size = std::abs(g) + r.decay * std::abs(w[i]);
    g += rounded(r.decay) * w[i];
    if (momentum != 0) {
      m[i] = updates == 1 ? g : momentum * m[i] + g;
      m_size[i] = updates == 1 ? size : momentum * m_size[i] + size;
      g = r.nesterov ? g + momentum * m[i] : m[i];
      size += momentum * m_size[i];
    }
    w[i] -= learning_rate * g;
    travelled[i] += learning_rate * size;
  }
};

// The lists on the device: slot 3 + k holds list k.
class Rig {
 public:
  explicit Rig(std::shared_ptr<device::OpenDevice> device) : device_(std::move(device)) {
    alignment_ = device_->capabilities().alignment;
    for (const uint64_t n : kEntries) {
      offsets_.push_back(bytes_);
      bytes_ = round_up(bytes_ + n * sizeof(float) + 1, alignment_);
      elements_ += n;
    }
  }

  uint64_t elements() const { return elements_; }

  Status build(const Recipe& r) {
    const size_t lists = r.op == Op::AdamW ? 4 : r.momentum != 0 ? 3 : 2;
    program_ = {};
    layout_ = {};
    program_.slots = device::kFirstStorageSlot + static_cast<uint32_t>(lists);
    std::vector<Operand> list;
    for (size_t k = 0; k < lists; ++k) {
      list.push_back(list_operand(static_cast<uint32_t>(k)));
    }
    Operand scale;
    scale.shape = Shape{1};
    ClipByGlobalNormAttributesT clip;
    clip.max_norm = static_cast<float>(r.clip);
    add(Op::ClipByGlobalNorm, Attributes::of(clip), {list[1]}, {scale}, 0);
    if (r.op == Op::AdamW) {
      add(r.op, attributes_of(r), {list[0], list[1], list[2], list[3], scale},
          {list[0], list[2], list[3]}, 1);
    } else if (lists == 3) {
      add(r.op, attributes_of(r), {list[0], list[1], scale, list[2]}, {list[0], list[2]}, 1);
    } else {
      add(r.op, attributes_of(r), {list[0], list[1], scale}, {list[0]}, 1);
    }
    uint64_t arena = alignment_;
    for (Record& record : program_.records) {
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

  Status write_list(size_t k, std::span<const double> values) {
    std::vector<std::byte> bytes(bytes_);
    size_t from = 0;
    for (size_t e = 0; e < offsets_.size(); ++e) {
      for (uint64_t i = 0; i < kEntries[e]; ++i) {
        const auto f = static_cast<float>(values[from++]);
        std::memcpy(bytes.data() + offsets_[e] + i * sizeof(f), &f, sizeof(f));
      }
    }
    return device_->copy_in(blocks_[device::kFirstStorageSlot + k]->buffer(), 0, bytes);
  }

  Result<std::vector<float>> read_list(size_t k) {
    std::vector<std::byte> bytes(bytes_);
    BOWLINE_TRY(device_->copy_out(bytes, blocks_[device::kFirstStorageSlot + k]->buffer(), 0));
    std::vector<float> out(elements_);
    size_t to = 0;
    for (size_t e = 0; e < offsets_.size(); ++e) {
      if (kEntries[e] > 0) {
        std::memcpy(out.data() + to, bytes.data() + offsets_[e], kEntries[e] * sizeof(float));
        to += kEntries[e];
      }
    }
    return out;
  }

  // Of the layout of its records.
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
  Operand list_operand(uint32_t k) {
    device::Table table;
    for (size_t e = 0; e < offsets_.size(); ++e) {
      table.entries.push_back({device::kFirstStorageSlot + k, offsets_[e], kEntries[e], false});
    }
    Operand o;
    o.slot = device::kFirstStorageSlot + k;
    o.shape = Shape{4099};
    o.table = static_cast<uint32_t>(program_.tables.size());
    program_.tables.push_back(std::move(table));
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
      const uint64_t bytes = s == device::kArenaSlot         ? arena_bytes
                             : s < device::kFirstStorageSlot ? layout_.bytes()
                                                             : bytes_;
      const auto kind = s == device::kArenaSlot || s >= device::kFirstStorageSlot
                            ? device::MemoryKind::device
                            : device::MemoryKind::io;
      BOWLINE_ASSIGN(auto block, device::Block::allocate(device_, bytes, kind));
      BOWLINE_TRY(device_->fill(block->buffer(), 0, bytes, std::byte{0}));
      buffers.push_back(block->buffer());
      blocks_.push_back(std::move(block));
    }
    BOWLINE_ASSIGN(recording_, device_->record(program_, buffers));
    return {};
  }

  std::shared_ptr<device::OpenDevice> device_;
  uint64_t alignment_ = 64;
  uint64_t bytes_ = 0;
  uint64_t elements_ = 0;
  std::vector<uint64_t> offsets_;
  device::Program program_;
  plan::StepLayout layout_;
  std::vector<std::shared_ptr<device::Block>> blocks_;
  std::unique_ptr<device::Recording> recording_;
};

void fill(exec::StepValues& s, const Recipe& r, const Reference& reference, double learning_rate) {
  const int t = reference.updates + 1;
  s.set("learning_rate", static_cast<float>(learning_rate));
  s.set("gradient_scale", static_cast<float>(r.gradient_scale));
  s.set("bias_correction1", static_cast<float>(1 - std::pow(rounded(r.beta1), t)));
  s.set("bias_correction2", static_cast<float>(1 - std::pow(rounded(r.beta2), t)));
  s.set("first_update", t == 1 ? 1u : 0u);
}

Result<std::string> steps(Run& run, Rig& rig, const Recipe& r) {
  const std::string where(r.name);
  const uint64_t key = hash_of(where) ^ run.options.seed * 0x9E3779B97F4A7C15ull;
  const size_t n = rig.elements();
  Reference reference{draw(Values::normal, n, key, 0), std::vector<double>(n),
                      std::vector<double>(n),          std::vector<double>(n),
                      std::vector<double>(n),          0};
  BOWLINE_TRY(rig.write_list(0, reference.w));
  std::vector<double> largest(n);
  for (int s = 0; s < kSteps; ++s) {
    std::vector<double> gradients = draw(Values::normal, n, key, static_cast<uint32_t>(s + 1));
    if (s == kBrokenStep) {
      gradients[n / 2] = std::numeric_limits<double>::infinity();
    }
    const double learning_rate = rounded(r.learning_rate * (1 - 0.5 * s / kSteps));
    exec::StepValues values = rig.values();
    fill(values, r, reference, learning_rate);
    BOWLINE_TRY(rig.write_list(1, gradients));
    BOWLINE_TRY(rig.submit(values));
    const double norm = reference.step(r, gradients, learning_rate);
    const Tolerance tolerance = Tolerance::of_reduction(static_cast<int64_t>(n), 4);
    const auto got_norm = values.get<float>("grad_norm");
    const auto non_finite = values.get<uint32_t>("non_finite");
    if (error_units(tolerance, norm, norm, static_cast<double>(got_norm)) > 1 ||
        (non_finite != 0) == std::isfinite(norm)) {
      return format("step {}: norm {} and non_finite {} at a norm of {}", s, got_norm, non_finite,
                    norm);
    }
    for (size_t i = 0; i < n; ++i) {
      largest[i] = std::max(largest[i], std::abs(reference.w[i]));
    }
  }
  BOWLINE_ASSIGN(const std::vector<float> got, rig.read_list(0));
  for (size_t i = 0; i < n; ++i) {
    // Roundings of w once per step, of the update about ten times, the scale with the error of its
    // norm.
    const double bound = std::ldexp(
        4 * std::sqrt(kSteps) * largest[i] + (16 + 4 * std::sqrt(n)) * reference.travelled[i], -24);
    const double units = std::abs(static_cast<double>(got[i]) - reference.w[i]) / bound;
    run.note_error(units, where);
    if (!(units <= 1)) {
      return format("element {} is {} instead of {} after {} steps", i, got[i], reference.w[i],
                    kSteps);
    }
  }
  return std::string();
}

}  // namespace

Status run_optimizers(Run& run) {
  for (const Recipe& r : kRecipes) {
    if (!matches(run.options.filter, bowline::name_of(r.op))) {
      continue;
    }
    run.one(bowline::name_of(r.op), std::string(r.name), [&] {
      Rig rig(run.device);
      Result<std::string> problem = std::string();
      if (Status built = rig.build(r); !built.ok()) {
        problem = std::move(built);
      } else {
        problem = steps(run, rig, r);
      }
      rig.release();
      return problem.ok() ? problem.value() : problem.status().message();
    });
  }
  return {};
}

}  // namespace bowline::conformance
