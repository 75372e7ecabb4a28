#include "conformance/bench.h"

#include <cstring>

#include "base/checked.h"
#include "conformance/elements.h"
#include "core/code_rows.h"
#include "exec/step_values.h"

namespace bowline::conformance {
namespace {

using device::kArenaSlot;
using device::kFirstStorageSlot;
using device::kStepSlot;
using device::Operand;
using device::Record;

constexpr uint64_t kGuard = 256;
constexpr uint64_t kTailGuard = 4096;
constexpr uint32_t kSentinel = 0x7FC1A5A5;  // a NaN
constexpr uint32_t kSlots = 5;

// The image of one slot: sentinels, with the operands between them.
class Image {
 public:
  explicit Image(uint64_t alignment) : alignment_(alignment) {}

  // Reserves `bytes` at an odd multiple of the alignment.
  uint64_t place(uint64_t bytes) {
    uint64_t at = round_up(bytes_.size() + kGuard, alignment_);
    at += at / alignment_ % 2 == 0 ? alignment_ : 0;
    resize(round_up(at + bytes, 4));
    return at;
  }
  void finish() { resize(round_up(bytes_.size(), 4) + kTailGuard); }
  std::span<std::byte> at(uint64_t offset, uint64_t bytes) {
    return std::span(bytes_).subspan(offset, bytes);
  }
  std::vector<std::byte>& bytes() { return bytes_; }
  // Allows these bytes to change.
  void release(uint64_t offset, uint64_t bytes) {
    if (bytes > 0) {
      free_.push_back({offset, bytes});
    }
  }
  // Returns the first changed byte that belongs to no output.
  std::optional<uint64_t> first_change(std::span<const std::byte> now) const {
    std::vector<std::byte> expected = bytes_;
    for (const auto& [offset, bytes] : free_) {
      std::memcpy(expected.data() + offset, now.data() + offset, bytes);
    }
    const auto [a, b] = std::ranges::mismatch(expected, now);
    return a == expected.end() ? std::nullopt : std::optional<uint64_t>(a - expected.begin());
  }

 private:
  void resize(uint64_t bytes) {
    const size_t old = bytes_.size();
    bytes_.resize(bytes);
    for (size_t i = old; i + sizeof(kSentinel) <= bytes; i += sizeof(kSentinel)) {
      std::memcpy(bytes_.data() + i, &kSentinel, sizeof(kSentinel));
    }
  }

  uint64_t alignment_;
  std::vector<std::byte> bytes_;
  std::vector<std::pair<uint64_t, uint64_t>> free_;
};

// Returns a layout of the per-step scalars of all operators in reverse order. No operator finds its
// scalars at the beginning or in its own order.
plan::StepLayout layout_of_all() {
  plan::StepLayout layout;
  for (int i = kOps; i-- > 0;) {
    layout.add(op_at(i));
  }
  return layout;
}

exec::StepValues values_of(const Case& c, const plan::StepLayout& layout) {
  exec::StepValues values(layout);
  values.head().error = c.step.facts.error ? 1 : 0;
  values.head().accumulate = c.step.facts.accumulate ? 1 : 0;
  for (const StepScalar& value : c.step.words) {
    (void)values.give(value).ok();  // the oracle has refused invalid values
  }
  return values;
}

std::string count_name(size_t input) { return format("count of input {}", input); }

// Adds a count per dynamic input and returns the offsets. The offset of an input without count is
// 0.
std::vector<uint32_t> add_counts(std::span<const Array> inputs, plan::StepLayout& layout) {
  std::vector<uint32_t> out(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].counted_axis >= 0) {
      const int64_t capacity = inputs[i].shape[inputs[i].counted_axis];
      out[i] = layout.add_count(count_name(i), capacity).value();
    }
  }
  return out;
}

// The place of an operand: one part, or a part per entry of a list. For a Repeat, the parts have
// copies at a fixed distance.
struct Placed {
  uint32_t slot = kArenaSlot;
  std::vector<std::pair<uint64_t, uint64_t>> parts;  // offset, elements
  uint64_t step_bytes = 0;
  bool as_table = false;
  DType dtype = DType::f32;
  std::vector<CodePlace> codes;  // for quantized operands instead of the parts, one per copy
};

// A Program of one operator, and the memory that is bound to it.
class Setup {
 public:
  Setup(const Case& c, std::span<const Array> inputs, const Expected& expected,
        const Placement& placement, uint64_t alignment)
      : c_(c),
        def_(op_def(c.op)),
        placement_(placement),
        alignment_(alignment),
        images_(kSlots, Image(alignment)) {
    program_.slots = kSlots;
    record_.op = c.op;
    record_.attributes = c.attributes;
    record_.node = kBenchNode;
    plan::StepLayout layout = layout_of_all();
    record_.step = layout.add(c.op);
    const std::vector<uint32_t> counts = add_counts(inputs, layout);
    exec::StepValues values = values_of(c, layout);
    for (size_t i = 0; i < inputs.size(); ++i) {
      values.set(count_name(i), static_cast<uint32_t>(inputs[i].count));
    }
    steps_.assign(values.bytes().begin(), values.bytes().end());
    for (size_t i = 0; i < inputs.size(); ++i) {
      add_input(i, inputs[i]);
    }
    for (size_t i = 0; i < expected.outputs.size(); ++i) {
      add_output(i, expected.outputs[i]);
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      record_.inputs[i].counted_axis = inputs[i].counted_axis;
      record_.inputs[i].count_at = counts[i];
    }
    std::vector<DType> in, out;
    std::ranges::transform(record_.inputs, std::back_inserter(in), &Operand::dtype);
    std::ranges::transform(record_.outputs, std::back_inserter(out), &Operand::dtype);
    record_.type = storage_type(def_.types, in, out);
  }

  const Record& record() const { return record_; }

  void finish(uint32_t candidate, uint64_t workspace_bytes) {
    record_.candidate = candidate;
    record_.workspace.dtype = DType::u8;
    record_.workspace.shape = Shape{static_cast<int64_t>(workspace_bytes)};
    record_.workspace.offset = images_[kArenaSlot].place(workspace_bytes);
    images_[kArenaSlot].release(record_.workspace.offset, workspace_bytes);
    images_[kStepSlot].bytes() = steps_;
    images_[kStepSlot].release(0, offsetof(device::StepHead, accumulate));
    const std::span<const StepWordInfo> words = step_words(c_.op);
    for (size_t i = 0; i < words.size(); ++i) {
      images_[kStepSlot].release(record_.step[i], words[i].written ? size_of(words[i].type) : 0);
    }
    for (Image& image : images_) {
      image.finish();
    }
    if (placement_.repeat == 0) {
      program_.records = {record_};
      return;
    }
    Record begin, end;
    begin.kind = Record::Kind::repeat_begin;
    begin.count = placement_.repeat;
    begin.reverse = placement_.reverse;
    end.kind = Record::Kind::repeat_end;
    program_.records = {begin, record_, end};
  }

  const device::Program& program() const { return program_; }
  Image& image(size_t slot) { return images_[slot]; }

  // Returns output i from `slots`. In a Repeat, returns the output of the last iteration.
  std::vector<double> output(size_t i, std::span<const std::vector<std::byte>> slots) const {
    const Placed& p = outputs_[i];
    if (!p.codes.empty()) {
      const Operand& o = record_.outputs[i];
      std::vector<float> numbers(static_cast<size_t>(o.shape.elements()));
      decode_codes(*o.encoding.layout(o.shape), slots[p.slot], p.codes[last_copy(p.as_table)], 0,
                   numbers);
      return {numbers.begin(), numbers.end()};
    }
    std::vector<double> out;
    const uint64_t last = last_copy(p.as_table) * p.step_bytes;
    for (const auto& [offset, elements] : p.parts) {
      const auto part = load(slots[p.slot].data() + offset + last, elements, p.dtype);
      out.insert(out.end(), part.begin(), part.end());
    }
    return out;
  }

 private:
  uint32_t copies() const { return placement_.repeat == 0 ? 1 : placement_.repeat; }
  // Returns the index of the copy that the last iteration uses.
  uint32_t last_copy(bool as_table) const {
    return !placement_.reverse ? copies() - 1 : as_table ? 0 : 1;
  }

  // Odd inputs are in separate slots, like weights.
  static uint32_t slot_for(size_t i) {
    return i % 2 == 0 ? kArenaSlot : kFirstStorageSlot + (i % 4) / 2;
  }

  Operand operand(const Placed& p, const Shape& shape, bool as_table, bool is_list) {
    Operand o;
    o.dtype = p.dtype;
    o.shape = shape;
    o.slot = p.slot;
    o.offset = p.parts[0].first;
    if (as_table) {
      device::Table table;
      uint64_t largest = 0;
      for (uint32_t k = 0; k < copies(); ++k) {
        for (const auto& [offset, elements] : p.parts) {
          table.entries.push_back(
              {p.slot, offset + k * p.step_bytes, elements, c_.step.facts.first_contribution});
          largest = std::max(largest, elements);
        }
      }
      o.table = static_cast<uint32_t>(program_.tables.size());
      o.shape = is_list ? Shape{static_cast<int64_t>(largest)} : shape;
      program_.tables.push_back(std::move(table));
    } else if (placement_.repeat != 0) {
      o.modulo = placement_.repeat;
      o.shift = placement_.reverse ? 1 : 0;
      o.step_bytes = p.step_bytes;
    }
    return o;
  }

  Placed room_for(std::span<const uint64_t> elements, uint32_t slot, DType dtype) {
    Placed p;
    p.slot = slot;
    p.dtype = dtype;
    const uint64_t size = size_of(dtype);
    for (const uint64_t n : elements) {
      // The copies for the iterations of a Repeat follow each other at a multiple of the alignment.
      p.step_bytes = copies() == 1 ? 0 : round_up(n * size + kGuard, alignment_);
      const uint64_t before = placement_.rows && slot != kArenaSlot ? size : 0;
      const uint64_t at = images_[slot].place(before + n * size + (copies() - 1) * p.step_bytes);
      p.parts.push_back({at + before, n});
    }
    return p;
  }

  bool is_updated(size_t input) const {
    return std::ranges::any_of(
        def_.updates, [&](const InPlace& u) { return u.input == static_cast<int>(input); });
  }

  // Adds a quantized storage for every iteration. If the operand shows rows, the storage has one
  // row before them.
  void add_codes(const Encoding& encoding, const Array& array) {
    const bool as_table = placement_.repeat != 0;
    const uint64_t before =
        placement_.rows ? static_cast<uint64_t>(array.shape.elements(1, array.shape.rank())) : 0;
    Shape stored = array.shape;
    stored[0] += placement_.rows ? 1 : 0;
    std::vector<float> numbers(before);
    numbers.insert(numbers.end(), array.values.begin(), array.values.end());
    const std::vector<float> zeros(numbers.size());
    Image& image = images_[kFirstStorageSlot];
    const CodePlace place = encoding.place(array.dtype, stored, before);
    Operand o;
    o.dtype = array.dtype;
    o.shape = array.shape;
    o.encoding = encoding.simplest(stored);
    o.slot = kFirstStorageSlot;
    Placed placed;
    placed.slot = o.slot;
    placed.as_table = as_table;
    device::Table table;
    for (uint32_t k = 0; k < copies(); ++k) {
      const uint64_t bytes = encoding.bytes(array.dtype, stored);
      const uint64_t at = image.place(bytes);
      encoding.encode(k == last_copy(as_table) ? numbers : zeros, array.dtype, stored,
                      image.at(at, bytes));
      o.offset = at + place.codes;
      o.scales = at + place.scales;
      o.zeros = at + place.zeros;
      table.entries.push_back(
          {o.slot, o.offset, array.values.size(), false, encoding, o.scales, o.zeros});
      placed.codes.push_back({o.offset, o.scales, o.zeros});
    }
    if (as_table) {
      o.table = static_cast<uint32_t>(program_.tables.size());
      program_.tables.push_back(std::move(table));
    }
    record_.inputs.push_back(std::move(o));
    inputs_.push_back(std::move(placed));
  }

  void add_input(size_t i, const Array& array) {
    const Input& in = c_.inputs[i];
    if (in.codes) {
      add_codes(encoding_of_input(c_, i), array);
      return;
    }
    std::vector<uint64_t> elements;
    if (in.is_list) {
      elements.assign(in.entries.begin(), in.entries.end());
    } else {
      elements = {static_cast<uint64_t>(array.shape.elements())};
    }
    // A value that only this node updates is one storage. A gradient is always an entry of a table.
    const bool in_table = placement_.repeat != 0 || def_.gradient_rows != GradientRows::none;
    const bool as_table = in.is_list || (is_updated(i) && in_table);
    Placed p = room_for(elements, as_table || is_updated(i) ? kFirstStorageSlot : slot_for(i),
                        array.dtype);
    p.as_table = as_table;
    size_t from = 0;
    for (const auto& [offset, n] : p.parts) {
      // The last iteration uses the values of the case. The other iterations use zeros.
      const std::vector<double> zeros(n);
      for (uint32_t k = 0; k < copies(); ++k) {
        const std::span<const double> values = k == last_copy(as_table)
                                                   ? std::span(array.values).subspan(from, n)
                                                   : std::span<const double>(zeros);
        store(values, p.dtype, images_[p.slot].bytes().data() + offset + k * p.step_bytes);
      }
      from += n;
    }
    record_.inputs.push_back(operand(p, array.shape, as_table, in.is_list));
    inputs_.push_back(std::move(p));
  }

  void add_output(size_t i, const Array& array) {
    for (const InPlace& u : def_.updates) {
      if (u.output == static_cast<int>(i)) {
        share(i, static_cast<size_t>(u.input), array.shape, true);
        return;
      }
    }
    if (placement_.in_place && placement_.in_place->output == static_cast<int>(i)) {
      share(i, static_cast<size_t>(placement_.in_place->input), array.shape, false);
      return;
    }
    const uint64_t elements = static_cast<uint64_t>(array.shape.elements());
    const bool is_gradient = placement_.gradient && i == 0;
    Placed p = room_for({&elements, 1}, is_gradient ? kFirstStorageSlot : kArenaSlot, array.dtype);
    p.as_table = is_gradient;
    release(p);
    if (is_gradient) {
      record_.accumulate = 1;
      store(*placement_.gradient, p.dtype, images_[p.slot].bytes().data() + p.parts[0].first);
    }
    record_.outputs.push_back(operand(p, array.shape, is_gradient, false));
    outputs_.push_back(std::move(p));
  }

  // Places output i on input `input`.
  void share(size_t, size_t input, const Shape& shape, bool keep_shape) {
    Operand o = record_.inputs[input];
    o.shape = keep_shape ? o.shape : shape;
    release(inputs_[input]);
    for (const CodePlace& at : inputs_[input].codes) {  // of quantized storages that take rows
      const CodeLayout l = *o.encoding.layout(o.shape);
      const auto rows = static_cast<uint64_t>(o.shape.rows());
      images_[o.slot].release(at.codes, rows * l.row_bytes);
      images_[o.slot].release(at.scales, rows * l.scale_row);
    }
    record_.outputs.push_back(o);
    outputs_.push_back(inputs_[input]);
  }

  void release(const Placed& p) {
    for (const auto& [offset, elements] : p.parts) {
      for (uint32_t k = 0; k < copies(); ++k) {
        images_[p.slot].release(offset + k * p.step_bytes, elements * size_of(p.dtype));
      }
    }
  }

  const Case& c_;
  const OpDef& def_;
  Placement placement_;
  uint64_t alignment_;
  std::vector<Image> images_;
  std::vector<std::byte> steps_;
  device::Program program_;
  Record record_;
  std::vector<Placed> inputs_, outputs_;
};

}  // namespace

Status Bench::reserve(std::span<const uint64_t> bytes) {
  blocks_.resize(std::max(blocks_.size(), bytes.size()));
  for (size_t slot = 0; slot < bytes.size(); ++slot) {
    if (!blocks_[slot] || blocks_[slot]->bytes() < bytes[slot]) {
      blocks_[slot].reset();
      const auto kind = slot == kStepSlot || slot == device::kIoSlot ? device::MemoryKind::io
                                                                     : device::MemoryKind::device;
      BOWLINE_TRY_ASSIGN(blocks_[slot], device::Block::allocate(device_, 2 * bytes[slot], kind));
    }
  }
  return {};
}

device::NodeAnswer Bench::query(const Case& c, std::span<const Array> inputs,
                                const Expected& expected) {
  const Setup setup(c, inputs, expected, {}, device_->capabilities().alignment);
  const Record& r = setup.record();
  return device_->query({r.op, r.type, r.attributes, r.inputs, r.outputs});
}

Result<Observed> Bench::run(const Case& c, std::span<const Array> inputs, const Expected& expected,
                            const Placement& placement) {
  Setup setup(c, inputs, expected, placement, device_->capabilities().alignment);
  const Record& r = setup.record();
  device::NodeQuery node{r.op, r.type, r.attributes, r.inputs, r.outputs};
  node.candidate = device_->choose(device::node_key(node), device_->query(node).candidates);
  setup.finish(node.candidate, device_->query(node).workspace_bytes);

  std::vector<uint64_t> sizes;
  for (size_t s = 0; s < kSlots; ++s) {
    sizes.push_back(setup.image(s).bytes().size());
  }
  BOWLINE_TRY(reserve(sizes));
  std::vector<device::Buffer> buffers;
  for (size_t s = 0; s < kSlots; ++s) {
    BOWLINE_TRY(device_->copy_in(blocks_[s]->buffer(), 0, setup.image(s).bytes()));
    buffers.push_back(blocks_[s]->buffer());
  }
  BOWLINE_TRY_ASSIGN(std::unique_ptr<device::Recording> recording,
                     device_->record(setup.program(), buffers));
  device::Recording* const one = recording.get();
  Status status = device_->submit({&one, 1});
  if (status.ok()) {
    status = device_->wait();
  }
  device_->release(std::move(recording));
  BOWLINE_TRY(std::move(status));

  std::vector<std::vector<std::byte>> slots;
  for (size_t s = 0; s < kSlots; ++s) {
    std::vector<std::byte> now(sizes[s]);
    BOWLINE_TRY(device_->copy_out(now, blocks_[s]->buffer(), 0));
    const auto changed = setup.image(s).first_change(now);
    BOWLINE_REQUIRE_CODE(!changed, Code::internal,
                         "Byte {} of slot {} changed, which belongs to no output.", *changed, s);
    slots.push_back(std::move(now));
  }
  Observed out;
  std::memcpy(&out.head, slots[kStepSlot].data(), sizeof(out.head));
  const std::span<const StepWordInfo> words = step_words(c.op);
  for (size_t i = 0; i < words.size(); ++i) {
    const std::byte* const at = slots[kStepSlot].data() + setup.record().step[i];
    out.words.push_back(load_step(words[i].type, at));
  }
  for (size_t i = 0; i < expected.outputs.size(); ++i) {
    out.outputs.push_back(setup.output(i, slots));
  }
  return out;
}

}  // namespace bowline::conformance
