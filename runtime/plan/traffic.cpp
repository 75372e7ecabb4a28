#include "plan/traffic.h"

#include <algorithm>
#include <tuple>

#include "core/optimizers.h"
#include "graph/op_table.h"

namespace bowline::detail::plan {
namespace {

using device::kNoTable;
using device::Operand;
using device::Program;
using device::Record;

bool is_same_place(const Operand& a, const Operand& b) {
  const auto place = [](const Operand& o) {
    return std::tuple(o.slot, o.offset, o.table, o.modulo, o.shift);
  };
  return place(a) == place(b);
}

// Bytes of `elements` elements of an operand, in its encoding.
uint64_t bytes_of_some(const Operand& o, int64_t elements) {
  const int64_t all = o.shape.elements();
  if (elements >= all) {
    return o.bytes();
  }
  return static_cast<uint64_t>(static_cast<double>(o.bytes()) * static_cast<double>(elements) /
                               static_cast<double>(all));
}

class RecordTraffic {
 public:
  RecordTraffic(const Program& program, const Record& record, bool in_repeat)
      : program_(program), record_(record), def_(op_def(record.op)), in_repeat_(in_repeat) {}

  Traffic sum() const {
    Traffic out;
    for (size_t i = 0; i < record_.inputs.size(); ++i) {
      const auto before = std::span(record_.inputs).first(i);
      const bool is_new = std::ranges::none_of(
          before, [&](const Operand& o) { return is_same_place(o, record_.inputs[i]); });
      out.read += is_new ? read(i) : 0;
    }
    for (size_t o = 0; o < record_.outputs.size(); ++o) {
      const uint64_t bytes = written(o);
      out.written += bytes;
      out.read += adds(o) ? bytes : 0;
    }
    out.read += record_.workspace.bytes();
    out.written += record_.workspace.bytes();
    return out;
  }

 private:
  // True if the operator writes rows into input i, instead of computing the state anew. It takes
  // the states first, and then the rows of each.
  bool writes_rows(size_t i) const {
    return def_.writes_rows != nullptr && std::ranges::any_of(def_.updates, [&](const InPlace& u) {
             return std::cmp_equal(u.input, i);
           });
  }
  // True if the record overwrites input i with the rounded masters.
  bool only_rounds(size_t i) const {
    return optimizer_of(record_.op) != nullptr && i == 0 &&
           updated_values(record_.inputs[0].dtype, record_.inputs.size()) != 0;
  }
  const Operand& rows_of(size_t state) const {
    const auto states = static_cast<size_t>(
        std::ranges::count_if(def_.updates, [](const InPlace& u) { return u.output >= 0; }));
    return record_.inputs[state + states];
  }

  uint64_t read(size_t i) const {
    const Operand& o = record_.inputs[i];
    if (writes_rows(i) || only_rounds(i)) {
      return 0;
    }
    return (def_.gathers >> i & 1) != 0 ? bytes_of_some(o, record_.outputs[0].shape.elements())
                                        : all(o);
  }
  uint64_t written(size_t o) const {
    const Operand& out = record_.outputs[o];
    const int state = updated_input(def_, o);
    return state >= 0 && writes_rows(static_cast<size_t>(state))
               ? bytes_of_some(out, rows_of(static_cast<size_t>(state)).shape.elements())
               : all(out);
  }
  // True if output `o` is a gradient that the record adds to.
  bool adds(size_t o) const {
    return (record_.accumulate >> o & 1) != 0 && !entries(record_.outputs[o])[0].first;
  }

  const std::vector<device::TableEntry>& entries(const Operand& o) const {
    return program_.tables[o.table].entries;
  }
  uint64_t all(const Operand& o) const {
    if (o.table == kNoTable) {
      return o.bytes();
    }
    if (in_repeat_) {
      return entries(o).front().elements == 0 ? 0 : o.bytes();
    }
    uint64_t elements = 0;
    for (const device::TableEntry& e : entries(o)) {
      elements += e.elements;
    }
    return elements * size_of(o.dtype);
  }

  const Program& program_;
  const Record& record_;
  const OpDef& def_;
  bool in_repeat_;
};

}  // namespace

std::vector<Traffic> traffic_of(const Program& program) {
  std::vector<Traffic> out;
  bool in_repeat = false;
  for (const Record& r : program.records) {
    if (r.kind == Record::Kind::op) {
      out.push_back(RecordTraffic(program, r, in_repeat).sum());
    } else {
      in_repeat = r.kind == Record::Kind::repeat_begin;
      out.emplace_back();
    }
  }
  return out;
}

}  // namespace bowline::detail::plan
