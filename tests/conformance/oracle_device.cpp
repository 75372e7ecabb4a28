#include "conformance/oracle_device.h"

#include <cmath>
#include <cstring>
#include <map>
#include <memory>

#include "conformance/elements.h"
#include "core/code_rows.h"

namespace bowline::conformance {
namespace {

using device::Buffer;
using device::kNoTable;
using device::Operand;
using device::Program;
using device::Record;

using Memory = std::vector<std::byte>;

struct OracleRecording : device::Recording {
  Program program;
  std::vector<Memory*> slots;
};

// A contiguous part of an operand.
struct Part {
  std::byte* data;
  uint64_t elements;
};

class OracleDevice : public device::Device {
 public:
  explicit OracleDevice(Fault fault) : fault_(std::move(fault)) {}

  const device::Capabilities& capabilities() const override { return capabilities_; }
  device::NodeAnswer query(const device::NodeQuery&) const override { return {}; }
  Result<device::MemoryInfo> memory_info() override { return device::MemoryInfo{}; }

  Result<Buffer> allocate(uint64_t bytes, device::MemoryKind) override {
    memory_[++last_] = std::make_unique<Memory>(bytes);
    return Buffer{last_};
  }
  void free(Buffer buffer) override { memory_.erase(buffer.id); }
  Status copy_in(Buffer to, uint64_t offset, std::span<const std::byte> from) override {
    std::ranges::copy(from, at(to, offset));
    return {};
  }
  Status copy_out(std::span<std::byte> to, Buffer from, uint64_t offset) override {
    std::copy_n(at(from, offset), to.size(), to.begin());
    return {};
  }
  Status copy(Buffer to, uint64_t to_offset, Buffer from, uint64_t from_offset,
              uint64_t bytes) override {
    std::memmove(&*at(to, to_offset), &*at(from, from_offset), bytes);
    return {};
  }
  Status fill(Buffer to, uint64_t offset, uint64_t bytes, std::byte value) override {
    std::fill_n(at(to, offset), bytes, value);
    return {};
  }

  Result<std::unique_ptr<device::Recording>> record(const Program& program,
                                                    std::span<const Buffer> buffers) override {
    auto out = std::make_unique<OracleRecording>();
    out->program = program;
    for (const Buffer b : buffers) {
      out->slots.push_back(memory_[b.id].get());
    }
    return std::unique_ptr<device::Recording>(std::move(out));
  }
  Status submit(std::span<device::Recording* const> recordings) override {
    for (device::Recording* r : recordings) {
      BOWLINE_TRY(run(static_cast<OracleRecording&>(*r)));
    }
    return {};
  }
  Status wait() override { return {}; }
  Result<std::vector<device::RecordTime>> timestamps(device::Recording&) override {
    return std::vector<device::RecordTime>();
  }

 private:
  Memory::iterator at(Buffer b, uint64_t offset) {
    return memory_[b.id]->begin() + static_cast<std::ptrdiff_t>(offset);
  }

  Status run(OracleRecording& r) {
    for (size_t i = 0; i < r.program.records.size(); ++i) {
      const Record& begin = r.program.records[i];
      if (begin.kind == Record::Kind::op) {
        BOWLINE_TRY(run_record(r, begin, 0, false));
        continue;
      }
      const size_t body = i + 1;
      for (uint32_t k = 0; k < begin.count; ++k) {
        for (i = body; r.program.records[i].kind == Record::Kind::op; ++i) {
          BOWLINE_TRY(
              run_record(r, r.program.records[i], begin.reverse ? begin.count - 1 - k : k, true));
        }
      }
    }
    return {};
  }

  static std::vector<Part> parts(OracleRecording& r, const Operand& o, uint32_t iteration,
                                 bool in_repeat) {
    if (o.table == kNoTable) {
      const uint64_t step = o.modulo == 0 ? 0 : (iteration + o.shift) % o.modulo * o.step_bytes;
      return {
          {r.slots[o.slot]->data() + o.offset + step, static_cast<uint64_t>(o.shape.elements())}};
    }
    std::vector<Part> out;
    const auto& entries = r.program.tables[o.table].entries;
    for (size_t e = in_repeat ? iteration : 0; e < (in_repeat ? iteration + 1 : entries.size());
         ++e) {
      out.push_back({r.slots[entries[e].slot]->data() + entries[e].offset, entries[e].elements});
    }
    return out;
  }

  static std::pair<uint32_t, CodePlace> place_of_codes(const OracleRecording& r, const Operand& o,
                                                       uint32_t iteration) {
    if (o.table == kNoTable) {
      return {o.slot, {o.offset, o.scales, o.zeros}};
    }
    const device::TableEntry& entry = r.program.tables[o.table].entries[iteration];
    return {entry.slot, {entry.offset, entry.scales, entry.zeros}};
  }

  static Array load_codes(OracleRecording& r, const Operand& o, uint32_t iteration) {
    const auto [slot, place] = place_of_codes(r, o, iteration);
    std::vector<float> numbers(static_cast<size_t>(o.shape.elements()));
    decode_codes(*device::encoding_of(r.program, o, iteration).layout(o.shape), *r.slots[slot],
                 place, 0, numbers);
    return {o.shape, {numbers.begin(), numbers.end()}, o.dtype};
  }

  // Writes rows into a quantized state.
  static void store_codes(OracleRecording& r, const Operand& o, uint32_t iteration,
                          std::span<const double> values) {
    const auto [slot, place] = place_of_codes(r, o, iteration);
    const std::span<const double> all = values.first(static_cast<size_t>(o.shape.elements()));
    const std::vector<float> numbers(all.begin(), all.end());
    const Encoding& encoding = device::encoding_of(r.program, o, iteration);
    std::vector<std::byte> bytes(encoding.bytes(o.dtype, o.shape));
    encoding.encode(numbers, o.dtype, o.shape, bytes);
    const CodeLayout l = *encoding.layout(o.shape);
    const CodePlace from = encoding.place(o.dtype, o.shape, 0);
    const auto rows = static_cast<uint64_t>(o.shape.rows());
    std::byte* const to = r.slots[slot]->data();
    std::copy_n(bytes.data() + from.codes, rows * l.row_bytes, to + place.codes);
    std::copy_n(bytes.data() + from.scales, rows * l.scale_row, to + place.scales);
  }

  static Array load(OracleRecording& r, const Operand& o, uint32_t iteration, bool in_repeat,
                    bool is_list) {
    if (!o.encoding.is_plain()) {
      return load_codes(r, o, iteration);
    }
    Array out;
    out.dtype = o.dtype;
    for (const Part& p : parts(r, o, iteration, in_repeat)) {
      const std::vector<double> part = conformance::load(p.data, p.elements, o.dtype);
      out.values.insert(out.values.end(), part.begin(), part.end());
      out.entries.push_back(static_cast<int64_t>(p.elements));
    }
    out.shape = is_list ? Shape{static_cast<int64_t>(out.values.size())} : o.shape;
    return out;
  }

  static Step step_of(OracleRecording& r, const Record& record, uint32_t iteration) {
    const std::byte* const buffer = r.slots[device::kStepSlot]->data();
    const auto& head = *reinterpret_cast<const device::StepHead*>(buffer);
    Step out;
    out.facts.error = head.error != 0;
    out.facts.accumulate = head.accumulate != 0;
    out.facts.iteration = iteration;
    if (!record.inputs.empty() && record.inputs[0].table != kNoTable) {
      const auto& entries = r.program.tables[record.inputs[0].table].entries;
      out.facts.first_contribution = entries[iteration < entries.size() ? iteration : 0].first;
    }
    const std::span<const StepWordInfo> words = step_words(record.op);
    for (size_t i = 0; i < words.size(); ++i) {
      const uint64_t bits = load_step(words[i].type, buffer + record.step[i]);
      if (words[i].type == StepType::f32) {
        out.words.push_back({words[i].name, step_number<float>(bits)});
      } else {
        out.words.push_back({words[i].name, bits});
      }
    }
    return out;
  }

  Status run_record(OracleRecording& r, const Record& record, uint32_t iteration, bool in_repeat) {
    const OpDef& def = op_def(record.op);
    OracleCall call{record.op, record.attributes, {}, step_of(r, record, iteration), {}};
    for (size_t i = 0; i < record.inputs.size(); ++i) {
      const bool is_list = def.takes_lists && (def.list_inputs >> i & 1) != 0;
      const Operand& o = record.inputs[i];
      call.inputs.push_back(load(r, o, iteration, in_repeat, is_list));
      if (o.counted_axis >= 0) {
        const std::byte* const at = r.slots[device::kStepSlot]->data() + o.count_at;
        call.inputs.back().counted_axis = o.counted_axis;
        call.inputs.back().count = static_cast<int64_t>(load_step(StepType::u32, at));
      }
    }
    fault_.before(call);
    BOWLINE_TRY_ASSIGN(call.result,
                       run_oracle(def.oracle, call.op, call.attributes, call.inputs, call.step));
    fault_.after(call);
    for (size_t i = 0; i < record.outputs.size(); ++i) {
      if (!record.outputs[i].encoding.is_plain()) {
        store_codes(r, record.outputs[i], iteration, call.result.outputs[i].values);
        continue;
      }
      size_t from = 0;
      for (const Part& p : parts(r, record.outputs[i], iteration, in_repeat)) {
        std::vector<double> values(p.elements + (fault_.overruns ? 1 : 0));
        std::copy_n(call.result.outputs[i].values.begin() + static_cast<std::ptrdiff_t>(from),
                    p.elements, values.begin());
        from += p.elements;
        store(values, record.outputs[i].dtype, p.data);
      }
    }
    leave(call.result.outcome, record, r.slots[device::kStepSlot]->data());
    return {};
  }

  static void leave(const OracleContext::Outcome& outcome, const Record& record,
                    std::byte* buffer) {
    if (!outcome.bad_indices.empty()) {
      auto& head = *reinterpret_cast<device::StepHead*>(buffer);
      head.error = static_cast<uint32_t>(device::StepError::index_out_of_range);
      head.error_node = record.node;
      head.error_value = static_cast<int32_t>(outcome.bad_indices[0]);
    }
    const std::span<const StepWordInfo> words = step_words(record.op);
    for (size_t i = 0; i < words.size(); ++i) {
      if (outcome.words[i]) {
        const double number = *outcome.words[i];
        const uint64_t bits = words[i].type == StepType::f32
                                  ? step_bits<float>(static_cast<float>(number))
                                  : static_cast<uint64_t>(number);
        store_step(words[i].type, bits, buffer + record.step[i]);
      }
    }
  }

  Fault fault_;
  device::Capabilities capabilities_;
  std::map<uint64_t, std::unique_ptr<Memory>> memory_;
  uint64_t last_ = 0;
};

}  // namespace

std::shared_ptr<device::OpenDevice> open_oracle_device(Fault fault) {
  DeviceInfo info;
  info.name = "oracles";
  info.for_tests = true;
  return std::make_shared<device::OpenDevice>(info,
                                              std::make_unique<OracleDevice>(std::move(fault)));
}

}  // namespace bowline::conformance
