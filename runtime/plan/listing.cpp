#include "plan/listing.h"

#include "core/escape.h"

namespace bowline::plan {
namespace {

using graph::Graph;
using graph::Node;
using graph::ValueId;
using graph::ValueInfo;
using graph::ValueKind;

class Lister {
 public:
  // `dims`: the counted ones.
  Lister(const Graph& graph, std::span<const graph::CountedDim> dims, std::string indent,
         ListingColumns columns, std::string& out)
      : graph_(graph),
        dims_(dims),
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
      return format("@{}", info.name.empty() ? "list" : listed_name(info.name));
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

  // "[1,seq<=16]": of a counted axis the dim and its capacity.
  std::string shape_text(const ValueInfo& v) const {
    if (v.counted.empty()) {
      return format("{}", v.shape);
    }
    std::string text;
    for (int a = 0; a < v.shape.rank(); ++a) {
      const int dim = v.counted[static_cast<size_t>(a)];
      text += text.empty() ? "" : ",";
      text += dim == graph::kNotCounted
                  ? ""
                  : format("{}<=", listed_name(dims_[static_cast<size_t>(dim)].name));
      text += format("{}", v.shape[a]);
    }
    return format("[{}]", text);
  }

  // The storage that the node writes. Lists and gradients have no name here.
  std::string updates(const Node& node) const {
    const OpDef& def = op_def(node.op);
    if (def.takes_lists || def.gradient_rows != GradientRows::none) {
      return "";
    }
    std::string text;
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      if (const int from = updated_input(def, o); from >= 0) {
        text += format("{}{}", text.empty() ? " updates " : ", ",
                       name(node.inputs[static_cast<size_t>(from)]));
      }
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
                      : format(" {}{}", v.dtype, shape_text(v));
    }
    out_ += format(" = {}({})", node.op, names(node.inputs));
    if (node.repeat) {
      out_ += format(" {} x carried={}{}", node.repeat->count, node.repeat->carried,
                     node.repeat->reverse ? " reverse" : "");
    } else if (const std::string text = attributes_text(node.op, node.attributes); !text.empty()) {
      out_ += " " + text;
    }
    out_ += updates(node);
    if (columns_.names && !node.name.empty()) {
      out_ += format("  # {}", listed_name(node.name));
    }
    out_ += '\n';
    if (node.repeat) {
      const Graph& body = *node.repeat->body;
      Lister inner(body, dims_, indent_ + "  ", columns_, out_);
      inner.print(0, body.nodes.size());
      out_ += format("{}  yields {}\n", indent_, inner.names(body.outputs));
    }
  }

  const Graph& graph_;
  std::span<const graph::CountedDim> dims_;
  std::string indent_;
  ListingColumns columns_;
  std::string& out_;
  std::vector<uint32_t> numbers_;
};

}  // namespace

std::string list_nodes(const Graph& graph, size_t begin, size_t end, ListingColumns columns) {
  std::string out;
  Lister(graph, graph.counted, "", columns, out).print(begin, end);
  return out;
}

namespace {

std::string place_text(const Plan& plan, const device::Operand& o) {
  if (o.table != device::kNoTable) {
    return format("table {}", o.table);
  }
  const std::string slot =
      o.slot == device::kArenaSlot ? "arena"
      : o.slot == device::kIoSlot  ? "io"
      : o.slot == device::kStepSlot
          ? "step"
          : format("storage {}", plan.storages[o.slot - device::kFirstStorageSlot]);
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
  for (size_t i = 0; i < plan.counted.size(); ++i) {
    out += format("{} step {}..{}: u32 {} counted, up to {}\n", plan.name, plan.counts[i],
                  plan.counts[i] + size_of(StepType::u32), listed_name(plan.counted[i].name),
                  plan.counted[i].capacity);
  }
  for (const StepUse& use : plan.steps) {
    out += format("{} step {}..{}: {} {}{}{}\n", plan.name, use.offset,
                  use.offset + size_of(use.word->type), use.word->type, use.word->name,
                  use.reader != StepUse::kNobody ? " read" : "",
                  use.writer != StepUse::kNobody ? " written" : "");
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
      out += format("@{}:", listed_name(info.name));
      for (const graph::StorageUse& u : info.uses) {
        out += format(" {}", u.tie);
      }
      out += '\n';
    }
  }
  return out;
}

}  // namespace bowline::plan
