// Suite optimizers: compares many steps of clip and update on the device with an independent
// implementation in double precision. A step with an infinite gradient in the middle must change
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
constexpr uint64_t kEntries[] = {1, 7, 64, 0, 1022, 4102};

struct OptimizerRecipe {
  std::string_view name;
  Op op = Op::AdamW;
  double learning_rate = 1e-2;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double momentum = 0;
  bool nesterov = false;
  double decay = 0;
  double clip = 0;
  double gradient_scale = 1;
  double alpha = 0.99;  // RmsProp
  bool centered = false;
  double rate_decay = 0;      // Adagrad
  double beta2_decay = -0.8;  // Adafactor
  double eps2 = 1e-3, update_clip = 1;
  bool matrices = false;
};

constexpr OptimizerRecipe kOptimizerRecipes[] = {
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
    {.name = "Adagrad plain", .op = Op::Adagrad, .eps = 1e-10},
    {.name = "Adagrad decay of weights and rate, clipped",
     .op = Op::Adagrad,
     .eps = 1e-10,
     .decay = 0.1,
     .clip = 1,
     .rate_decay = 0.01},
    {.name = "RmsProp plain", .op = Op::RmsProp, .decay = 0.05},
    {.name = "RmsProp momentum, clipped, 2 micro-batches",
     .op = Op::RmsProp,
     .momentum = 0.5,
     .clip = 2,
     .gradient_scale = 0.5},
    {.name = "RmsProp centered", .op = Op::RmsProp, .eps = 1e-2, .alpha = 0.9, .centered = true},
    {.name = "RmsProp centered, momentum",
     .op = Op::RmsProp,
     .eps = 1e-2,
     .momentum = 0.5,
     .alpha = 0.9,
     .centered = true},
    {.name = "Lion plain", .op = Op::Lion, .learning_rate = 1e-3, .beta2 = 0.99},
    {.name = "Lion decay, clipped", .op = Op::Lion, .beta2 = 0.99, .decay = 0.1, .clip = 0.5},
    {.name = "Adafactor vectors", .op = Op::Adafactor, .eps = 1e-7, .decay = 0.1},
    {.name = "Adafactor matrices", .op = Op::Adafactor, .eps = 1e-7, .clip = 1, .matrices = true},
};

double rounded(double v) { return static_cast<double>(static_cast<float>(v)); }

Attributes attributes_of(const OptimizerRecipe& r) {
  const auto decay = static_cast<float>(r.decay);
  const auto eps = static_cast<float>(r.eps);
  const auto beta1 = static_cast<float>(r.beta1);
  const auto beta2 = static_cast<float>(r.beta2);
  const auto momentum = static_cast<float>(r.momentum);
  switch (r.op) {
    case Op::AdamW: {
      AdamWAttributesT t;
      t.beta1 = beta1;
      t.beta2 = beta2;
      t.eps = eps;
      t.weight_decay = decay;
      return Attributes::of(t);
    }
    case Op::Adagrad: {
      AdagradAttributesT t;
      t.learning_rate_decay = static_cast<float>(r.rate_decay);
      t.eps = eps;
      t.weight_decay = decay;
      return Attributes::of(t);
    }
    case Op::RmsProp: {
      RmsPropAttributesT t;
      t.alpha = static_cast<float>(r.alpha);
      t.momentum = momentum;
      t.centered = r.centered;
      t.eps = eps;
      t.weight_decay = decay;
      return Attributes::of(t);
    }
    case Op::Lion: {
      LionAttributesT t;
      t.beta1 = beta1;
      t.beta2 = beta2;
      t.weight_decay = decay;
      return Attributes::of(t);
    }
    case Op::Adafactor: {
      AdafactorAttributesT t;
      t.beta2_decay = static_cast<float>(r.beta2_decay);
      t.eps1 = eps;
      t.eps2 = static_cast<float>(r.eps2);
      t.d = static_cast<float>(r.update_clip);
      t.weight_decay = decay;
      return Attributes::of(t);
    }
    default:
      SgdAttributesT t;
      t.momentum = momentum;
      t.nesterov = r.nesterov;
      t.weight_decay = decay;
      return Attributes::of(t);
  }
}

// Returns the rows of an entry with n elements as a matrix.
uint64_t rows_of(uint64_t n) { return n % 7 == 0 && n > 0 ? 7 : n % 8 == 0 && n > 0 ? 8 : 1; }

// The sizes of the moment lists, and the number of lists that precede the scale.
struct Moments {
  std::vector<std::vector<uint64_t>> sizes;
  size_t before_scale = 0;
};
Moments moments_of(const OptimizerRecipe& r) {
  const std::vector<uint64_t> whole(std::begin(kEntries), std::end(kEntries));
  switch (r.op) {
    case Op::AdamW:
      return {{whole, whole}, 2};
    case Op::Adagrad:
    case Op::Lion:
      return {{whole}, 1};
    case Op::Adafactor:
      if (r.matrices) {
        std::vector<uint64_t> rows, columns;
        for (const uint64_t n : whole) {
          rows.push_back(n == 0 ? 0 : rows_of(n));
          columns.push_back(n / rows_of(n));
        }
        return {{rows, columns}, 0};
      }
      return {{whole}, 0};
    default: {
      const size_t count =
          (r.op == Op::RmsProp ? 1u : 0u) + (r.centered ? 1u : 0u) + (r.momentum != 0 ? 1u : 0u);
      return {std::vector(count, whole), 0};
    }
  }
}

// The state of the formulas: one value per element and the bound of its rounding errors.
struct Reference {
  std::vector<double> w, m, v, b, travelled, m_size, b_size;
  int updates = 0;

  explicit Reference(std::vector<double> weights) : w(std::move(weights)) {
    for (auto* list : {&m, &v, &b, &travelled, &m_size, &b_size}) {
      list->resize(w.size());
    }
  }

  // Takes a step and returns the norm.
  double step(const OptimizerRecipe& r, std::span<const double> gradients, double learning_rate) {
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
    if (r.op == Op::Adafactor) {
      adafactor(r, gradients, scale, learning_rate);
      return norm;
    }
    for (size_t i = 0; i < w.size(); ++i) {
      const double g = gradients[i] * scale;
      switch (r.op) {
        case Op::AdamW:
          adamw(r, i, g, learning_rate);
          break;
        case Op::Adagrad:
          adagrad(r, i, g, learning_rate);
          break;
        case Op::RmsProp:
          rms_prop(r, i, g, learning_rate);
          break;
        case Op::Lion:
          lion(r, i, g, learning_rate);
          break;
        default:
          sgd(r, i, g, learning_rate);
      }
    }
    return norm;
  }

 private:
  void adamw(const OptimizerRecipe& r, size_t i, double g, double learning_rate) {
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

  void sgd(const OptimizerRecipe& r, size_t i, double g, double learning_rate) {
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

  void adagrad(const OptimizerRecipe& r, size_t i, double g, double learning_rate) {
    const double size = std::abs(g) + r.decay * std::abs(w[i]);
    g += rounded(r.decay) * w[i];
    v[i] += g * g;
    const double rate = learning_rate / (1 + (updates - 1) * rounded(r.rate_decay));
    const double root = std::sqrt(v[i]) + rounded(r.eps);
    w[i] -= rate * g / root;
    travelled[i] += rate * 2 * size / root;
  }

  void rms_prop(const OptimizerRecipe& r, size_t i, double g, double learning_rate) {
    const double alpha = rounded(r.alpha), momentum = rounded(r.momentum);
    const double size = std::abs(g) + r.decay * std::abs(w[i]);
    g += rounded(r.decay) * w[i];
    v[i] = alpha * v[i] + (1 - alpha) * g * g;
    m[i] = alpha * m[i] + (1 - alpha) * g;
    m_size[i] = alpha * m_size[i] + (1 - alpha) * size;
    const double variance = r.centered ? std::max(v[i] - m[i] * m[i], 0.0) : v[i];
    const double shaken = r.centered ? v[i] + 2 * std::abs(m[i]) * m_size[i] : v[i];
    const double root = std::sqrt(variance) + rounded(r.eps);
    // The share of the root that eps allows to move.
    const double share = variance > 0 ? std::sqrt(variance) / root * shaken / variance : 1;
    b[i] = momentum * b[i] + g / root;
    b_size[i] = momentum * b_size[i] + size / root * (1 + share);
    w[i] -= learning_rate * b[i];
    travelled[i] += learning_rate * b_size[i];
  }

  void lion(const OptimizerRecipe& r, size_t i, double g, double learning_rate) {
    const double beta1 = rounded(r.beta1), beta2 = rounded(r.beta2);
    const double direction = beta1 * m[i] + (1 - beta1) * g;
    const double size = beta1 * m_size[i] + (1 - beta1) * std::abs(g);
    w[i] *= 1 - learning_rate * rounded(r.decay);
    w[i] -= learning_rate * (direction > 0 ? 1 : direction < 0 ? -1 : 0);
    m[i] = beta2 * m[i] + (1 - beta2) * g;
    m_size[i] = beta2 * m_size[i] + (1 - beta2) * std::abs(g);
    travelled[i] += learning_rate * (1 + std::abs(w[i]) * r.decay);
    // If the direction is smaller than its rounding error, its sign is arbitrary.
    const double error =
        (16 + 4 * std::sqrt(static_cast<double>(w.size()))) * std::ldexp(size, -24);
    travelled[i] +=
        direction != 0 && std::abs(direction) < error ? std::ldexp(learning_rate, 22) : 0;
  }

  // For matrices, m holds the moments of rows and b the moments of columns, from the first element
  // of the entry on. For vectors, v holds the moments.
  void adafactor(const OptimizerRecipe& r, std::span<const double> gradients, double scale,
                 double learning_rate) {
    const double beta = std::pow(updates, rounded(r.beta2_decay));
    const double eps = rounded(r.eps);
    const auto mixed = [&](double before, double square) {
      return (1 - beta) * before + beta * square;
    };
    size_t first = 0;
    for (const uint64_t n : kEntries) {
      const uint64_t rows = r.matrices ? rows_of(n) : 1;
      const uint64_t columns = n / rows;
      std::vector<double> row(rows), column(columns), u(n);
      double w_squares = 0;
      for (size_t i = 0; i < n; ++i) {
        u[i] = gradients[first + i] * scale;
        w_squares += w[first + i] * w[first + i];
        row[i / columns] += u[i] * u[i] / static_cast<double>(columns);
        column[i % columns] += u[i] * u[i] / static_cast<double>(rows);
        v[first + i] = mixed(v[first + i], u[i] * u[i]);
      }
      double mean = 0;
      for (size_t k = 0; k < rows && n > 0; ++k) {
        m[first + k] = mixed(m[first + k], row[k]);
        mean += m[first + k] / static_cast<double>(rows);
      }
      for (size_t k = 0; k < columns; ++k) {
        b[first + k] = mixed(b[first + k], column[k]);
      }
      double u_squares = 0;
      for (size_t i = 0; i < n; ++i) {
        const double square =
            r.matrices ? m[first + i / columns] * b[first + i % columns] / std::max(mean, eps)
                       : v[first + i];
        u[i] /= std::sqrt(std::max(square, eps * eps));
        u_squares += u[i] * u[i];
      }
      const auto rms = [&](double squares) { return std::sqrt(squares / static_cast<double>(n)); };
      const double alpha = std::max(rounded(r.eps2), rms(w_squares)) *
                           std::min(learning_rate, 1 / std::sqrt(updates));
      const double denominator = std::max(1.0, rms(u_squares) / rounded(r.update_clip));
      for (size_t i = 0; i < n; ++i) {
        const double step = alpha * u[i] / denominator;
        w[first + i] = w[first + i] * (1 - learning_rate * rounded(r.decay)) - step;
        // The tolerance of the operator counts sums under square roots in the same way.
        travelled[first + i] += 4 * std::abs(step);
        travelled[first + i] += learning_rate * r.decay * std::abs(w[first + i]);
      }
      first += n;
    }
  }
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

  Status build(const OptimizerRecipe& r) {
    const std::vector<uint64_t> whole(std::begin(kEntries), std::end(kEntries));
    const Moments moments = moments_of(r);
    program_ = {};
    layout_ = {};
    std::vector<Operand> inputs = {list_operand(whole), list_operand(whole)};
    Operand scale;
    scale.shape = Shape{1};
    ClipByGlobalNormAttributesT clip;
    clip.max_norm = static_cast<float>(r.clip);
    add(Op::ClipByGlobalNorm, Attributes::of(clip), {inputs[1]}, {scale}, 0);
    std::vector<Operand> outputs = {inputs[0]};
    for (const std::vector<uint64_t>& sizes : moments.sizes) {
      inputs.push_back(list_operand(sizes));
      outputs.push_back(inputs.back());
    }
    inputs.insert(inputs.begin() + 2 + static_cast<std::ptrdiff_t>(moments.before_scale), scale);
    add(r.op, attributes_of(r), std::move(inputs), std::move(outputs), 1);
    program_.slots = device::kFirstStorageSlot + static_cast<uint32_t>(lists_.size());
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

  // Writes a list of weights or gradients.
  Status write_list(size_t k, std::span<const double> values) {
    std::vector<std::byte> bytes(lists_[k].bytes);
    size_t from = 0;
    for (size_t e = 0; e < std::size(kEntries); ++e) {
      for (uint64_t i = 0; i < kEntries[e]; ++i) {
        const auto f = static_cast<float>(values[from++]);
        std::memcpy(bytes.data() + lists_[k].offsets[e] + i * sizeof(f), &f, sizeof(f));
      }
    }
    return device_->copy_in(blocks_[device::kFirstStorageSlot + k]->buffer(), 0, bytes);
  }

  Result<std::vector<float>> read_list(size_t k) {
    std::vector<std::byte> bytes(lists_[k].bytes);
    BOWLINE_TRY(device_->copy_out(bytes, blocks_[device::kFirstStorageSlot + k]->buffer(), 0));
    std::vector<float> out(elements_);
    size_t to = 0;
    for (size_t e = 0; e < std::size(kEntries); ++e) {
      if (kEntries[e] > 0) {
        std::memcpy(out.data() + to, bytes.data() + lists_[k].offsets[e],
                    kEntries[e] * sizeof(float));
        to += kEntries[e];
      }
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
    std::vector<uint64_t> offsets;
    uint64_t bytes = 0;
  };

  Operand list_operand(const std::vector<uint64_t>& sizes) {
    const auto slot = static_cast<uint32_t>(device::kFirstStorageSlot + lists_.size());
    List list;
    device::Table table;
    uint64_t largest = 0;
    for (const uint64_t n : sizes) {
      table.entries.push_back({slot, list.bytes, n, false});
      list.offsets.push_back(list.bytes);
      list.bytes = round_up(list.bytes + n * sizeof(float) + 1, alignment_);
      largest = std::max(largest, n);
    }
    Operand o;
    o.slot = slot;
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

void fill(exec::StepValues& s, const OptimizerRecipe& r, const Reference& reference,
          double learning_rate) {
  const int t = reference.updates + 1;
  s.set("learning_rate", static_cast<float>(learning_rate));
  s.set("gradient_scale", static_cast<float>(r.gradient_scale));
  s.set("bias_correction1", static_cast<float>(1 - std::pow(rounded(r.beta1), t)));
  s.set("bias_correction2", static_cast<float>(1 - std::pow(rounded(r.beta2), t)));
  s.set("first_update", t == 1 ? 1u : 0u);
  s.set("update", static_cast<uint32_t>(t));
}

Result<std::string> steps(Run& run, Rig& rig, const OptimizerRecipe& r) {
  const std::string where(r.name);
  const uint64_t key = hash_of(where) ^ run.options.seed * 0x9E3779B97F4A7C15ull;
  const size_t n = rig.elements();
  Reference reference(draw(Values::normal, n, key, 0));
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
  BOWLINE_TRY_ASSIGN(const std::vector<float> got, rig.read_list(0));
  for (size_t i = 0; i < n; ++i) {
    // One rounding of w per step, about ten of the update, and the error of the norm in the scale.
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
  for (const OptimizerRecipe& r : kOptimizerRecipes) {
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
