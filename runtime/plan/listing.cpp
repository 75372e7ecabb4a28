#include "plan/listing.h"

#include "core/escape.h"

namespace bowline::plan {
namespace {

using graph::Graph;
using graph::Node;
using graph::ValueId;
using graph::ValueInfo;
using graph::ValueKind;

// "@w", and "@w:bf16" of a derived copy.
std::string parameter_name(const ValueInfo& v) {
  return format("@{}{}", v.name.empty() ? "list" : listed_name(v.name),
                v.form == nullptr ? "" : format(":{}", v.dtype));
}

class Lister {
 public:
  Lister(const Graph& graph, std::string indent, ListingColumns columns, std::string& out)
      : graph_(graph),
        indent_(std::move(indent)),
        columns_(columns),
        out_(out),
        numbers_(graph.values.size(), 0) {
    uint32_t next = 1;
    for (const Node& node : graph.nodes) {
      for (const ValueId v : node.outputs) {
        numbers_[v] = next++;
      }
    }
  }

  void print(size_t begin, size_t end) {
    for (size_t n = begin; n < end; ++n) {
      print_node(n);
    }
  }

 private:
  std::string name(ValueId v) const {
    const ValueInfo& info = graph_[v];
    if (info.kind == ValueKind::parameter) {
      return parameter_name(info);
    }
    if (info.kind == ValueKind::input) {
      const auto position = std::ranges::find(graph_.inputs, v) - graph_.inputs.begin();
      return format("in{}", position);
    }
    return format("%{}", numbers_[v]);
  }
  std::string names(const std::vector<ValueId>& values) const {
    std::string text;
    for (const ValueId v : values) {
      text += text.empty() ? "" : ", ";
      text += name(v);
    }
    return text;
  }

  void print_node(size_t n) {
    const Node& node = graph_.nodes[n];
    out_ += format("{}{}: {}", indent_, n, names(node.outputs));
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueInfo& v = graph_[node.outputs[i]];
      const bool stacked = node.repeat && i >= node.repeat->carried;
      out_ += stacked ? format(" {} x {}{}", node.repeat->count, v.dtype,
                               Shape(v.shape.dims().subspan(1)))
                      : format(" {}{}", v.dtype, v.shape);
    }
    out_ += format(" = {}({})", node.op, names(node.inputs));
    if (node.repeat) {
      out_ += format(" {} x carried={}{}", node.repeat->count, node.repeat->carried,
                     node.repeat->reverse ? " reverse" : "");
    } else if (const std::string text = attributes_text(node.op, node.attributes); !text.empty()) {
      out_ += " " + text;
    }
    if (columns_.names && !node.name.empty()) {
      out_ += format("  # {}", listed_name(node.name));
    }
    out_ += '\n';
    if (node.repeat) {
      const Graph& body = *node.repeat->body;
      Lister inner(body, indent_ + "  ", columns_, out_);
      inner.print(0, body.nodes.size());
      out_ += format("{}  yields {}\n", indent_, inner.names(body.outputs));
    }
  }

  const Graph& graph_;
  std::string indent_;
  ListingColumns columns_;
  std::string& out_;
  std::vector<uint32_t> numbers_;
};

}  // namespace

std::string list_nodes(const Graph& graph, size_t begin, size_t end, ListingColumns columns) {
  std::string out;
  Lister(graph, "", columns, out).print(begin, end);
  return out;
}

namespace {

std::string slot_text(const StorageSlot& slot) {
  return slot.form == nullptr ? format("storage {}", slot.tie)
                              : format("storage {} as {}", slot.tie, slot.form->dtype);
}

std::string place_text(const Plan& plan, const device::Operand& o) {
  if (o.table != device::kNoTable) {
    return format("table {}", o.table);
  }
  const std::string slot = o.slot == device::kArenaSlot ? "arena"
                           : o.slot == device::kIoSlot  ? "io"
                           : o.slot == device::kStepSlot
                               ? "step"
                               : slot_text(plan.storages[o.slot - device::kFirstStorageSlot]);
  const std::string steps =
      o.modulo == 0 ? "" : format(" step {} of {} x {}", o.shift, o.modulo, o.step_bytes);
  return format("{} {}..{}{}", slot, o.offset, o.offset + o.bytes(), steps);
}

std::string places_text(const Plan& plan, const std::vector<device::Operand>& operands) {
  std::string out;
  for (const device::Operand& o : operands) {
    out += (out.empty() ? "" : ", ") + place_text(plan, o);
  }
  return out;
}

}  // namespace

std::string list_records(const Plan& plan) {
  std::string out;
  for (size_t i = 0; i < plan.program.records.size(); ++i) {
    const device::Record& r = plan.program.records[i];
    if (r.kind == device::Record::Kind::repeat_begin) {
      out += format("{} {}: {} x{} level {}\n", plan.name, i, r.count, r.reverse ? " reverse" : "",
                    r.level);
    } else if (r.kind == device::Record::Kind::repeat_end) {
      out += format("{} {}: end\n", plan.name, i);
    } else {
      out += format("{} {}: {} = {}({}) level {}", plan.name, i, places_text(plan, r.outputs), r.op,
                    places_text(plan, r.inputs), r.level);
      out += r.workspace.bytes() == 0 ? "" : format(" workspace {}", place_text(plan, r.workspace));
      out += format("  # {}\n", escaped(plan.nodes[r.node]));
    }
  }
  for (const StepUse& use : plan.steps) {
    out += format("{} step {}..{}: {} {}{}{}\n", plan.name, use.offset,
                  use.offset + size_of(use.word->type), use.word->type, use.word->name,
                  use.reader != StepUse::kNobody ? " read" : "",
                  use.writer != StepUse::kNobody ? " written" : "");
  }
  return out;
}

std::string list_copies(const Plan& plan) {
  std::string out;
  for (const StorageSlot& slot : plan.storages) {
    if (slot.form != nullptr) {
      out += format("refresh {}: {}, when it was written\n", slot_text(slot), slot.form->op);
    }
  }
  return out;
}

std::string list_repeat_parameters(const Graph& graph) {
  std::string out;
  for (const Node& node : graph.nodes) {
    if (!node.repeat) {
      continue;
    }
    for (const ValueInfo& info : node.repeat->body->values) {
      if (info.kind != ValueKind::parameter) {
        continue;
      }
      out += parameter_name(info) + ':';
      for (const graph::StorageUse& u : info.uses) {
        out += format(" {}", u.tie);
      }
      out += '\n';
    }
  }
  return out;
}

}  // namespace bowline::plan
