// Finds the first contribution to each gradient in execution order. It overwrites the gradient of
// the last step, and later contributions add to it.
#include "plan/plan.h"

namespace bowline::detail::plan {
namespace {

using device::Program;
using device::Record;

// Walks a Program in execution order and marks the first contribution to each gradient.
class Contributions {
 public:
  explicit Contributions(Program& program) : program_(program), begun_(program.slots, 0) {}

  void mark() {
    const std::vector<Record>& records = program_.records;
    for (size_t i = 0; i < records.size(); ++i) {
      if (records[i].kind == Record::Kind::op) {
        mark_record(records[i], std::nullopt);
        continue;
      }
      const size_t begin = i;
      std::vector<const Record*> contributing;
      for (++i; records[i].kind != Record::Kind::repeat_end; ++i) {
        if (contributes(records[i])) {
          contributing.push_back(&records[i]);
        }
      }
      for (uint32_t k = 0; k < records[begin].count && !contributing.empty(); ++k) {
        const uint32_t iteration = records[begin].reverse ? records[begin].count - 1 - k : k;
        for (const Record* record : contributing) {
          mark_record(*record, iteration);
        }
      }
    }
  }

 private:
  static bool contributes(const Record& r) {
    return r.accumulate != 0 || op_def(r.op).gradient_rows != GradientRows::none;
  }

  // `iteration`: the iteration of the Repeat around the record. Without it, all entries of the
  // tables count.
  void mark_record(const Record& record, std::optional<uint32_t> iteration) {
    const GradientRows rows = op_def(record.op).gradient_rows;
    for (size_t o = 0; o < record.outputs.size() && contributes(record); ++o) {
      if (rows != GradientRows::none || (record.accumulate >> o & 1) != 0) {
        std::span<device::TableEntry> entries = program_.tables[record.outputs[o].table].entries;
        for (device::TableEntry& e : iteration ? entries.subspan(*iteration, 1) : entries) {
          begin(e, rows == GradientRows::zeroed);
        }
      }
    }
  }

  void begin(device::TableEntry& e, bool zeroed) {
    if (e.elements != 0) {
      e.first = begun_[e.slot] == 0 && !zeroed;
      begun_[e.slot] = 1;
    }
  }

  Program& program_;
  std::vector<char> begun_;  // by slot
};

}  // namespace

void mark_first_contributions(Program& program) { Contributions(program).mark(); }

}  // namespace bowline::detail::plan
