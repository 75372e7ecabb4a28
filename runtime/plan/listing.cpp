#include "plan/listing.h"

#include <map>

#include "base/escape.h"

namespace bowline::detail::plan {
namespace {

using graph::BoundGraph;
using graph::BoundNode;
using graph::BoundValue;
using graph::ValueId;
using graph::ValueKind;

// "@w", or "@w:bf16" for a derived copy.
std::string parameter_name(const BoundValue& v) {
  return format("@{}{}", v.name.empty() ? "list" : listed_name(v.name),
                v.form == nullptr ? "" : format(":{}", v.dtype));
}

class Lister {
 public:
  // `dims`: the dynamic dimensions.
  Lister(const BoundGraph& graph, std::span<const graph::CountedDim> dims, std::string indent,
         ListingColumns columns, std::string& out)
      : graph_(graph),
        dims_(dims),
        indent_(std::move(indent)),
        columns_(columns),
        out_(out),
        numbers_(graph.values.size(), 0) {
    uint32_t next = 1;
    for (const BoundNode& node : graph.nodes) {
      for (const ValueId v : node.outputs) {
        numbers_[v] = next++;
      }
    }
    for (const ValueId v : graph.held.values) {
      held_.emplace(v, held_.size());
    }
  }

  void print(size_t begin, size_t end) {
    for (size_t n = begin; n < end; ++n) {
      print_node(n);
    }
  }

 private:
  std::string name(ValueId v) const {
    const BoundValue& info = graph_[v];
    if (info.kind == ValueKind::parameter) {
      return parameter_name(info);
    }
    if (const auto held = held_.find(v); held != held_.end()) {
      return format("held{}", held->second);
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

  // For example "[1,seq<=16]": a dynamic axis shows its name and its capacity.
  std::string shape_text(const BoundValue& v) const {
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
  std::string updates(const BoundNode& node) const {
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
    const BoundNode& node = graph_.nodes[n];
    out_ += format("{}{}: {}", indent_, n, names(node.outputs));
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const BoundValue& v = graph_[node.outputs[i]];
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
      const BoundGraph& body = *node.repeat->body;
      Lister inner(body, dims_, indent_ + "  ", columns_, out_);
      inner.print(0, body.nodes.size());
      out_ += format("{}  yields {}\n", indent_, inner.names(body.outputs));
    }
  }

  const BoundGraph& graph_;
  std::span<const graph::CountedDim> dims_;
  std::string indent_;
  ListingColumns columns_;
  std::string& out_;
  std::vector<uint32_t> numbers_;
  std::map<ValueId, size_t> held_;
};

}  // namespace

std::string list_nodes(const BoundGraph& graph, size_t begin, size_t end, ListingColumns columns) {
  std::string out;
  Lister(graph, graph.counted, "", columns, out).print(begin, end);
  return out;
}

namespace {

// "storage 3", or "storage 3 as bf16" for its copy.
std::string storage_text(uint32_t tie, std::optional<DType> copy) {
  return format("storage {}{}", tie, copy ? format(" as {}", *copy) : "");
}

std::string place_text(const OperandInfo& o) {
  using Slot = OperandInfo::Slot;
  if (o.slot == Slot::table) {
    return format("table {}", o.number);
  }
  const std::string slot =
      o.slot == Slot::arena ? "arena"
      : o.slot == Slot::io  ? "io"
      : o.slot == Slot::step
          ? "step"
          : storage_text(o.number, o.copy ? std::optional(o.dtype) : std::nullopt);
  const std::string steps =
      o.modulo == 0 ? "" : format(" step {} of {} x {}", o.shift, o.modulo, o.step_bytes);
  return format("{} {}..{}{}", slot, o.offset, o.offset + o.bytes, steps);
}

std::string places_text(const std::vector<OperandInfo>& operands) {
  std::string out;
  for (const OperandInfo& o : operands) {
    out += (out.empty() ? "" : ", ") + place_text(o);
  }
  return out;
}

}  // namespace

std::string list_records(const SegmentInfo& segment) {
  using Kind = RecordInfo::Kind;
  std::string out;
  for (size_t i = 0; i < segment.records.size(); ++i) {
    const RecordInfo& r = segment.records[i];
    if (r.kind == Kind::repeat_begin) {
      out += format("{} {}: {} x{} level {}\n", segment.name, i, r.count,
                    r.reverse ? " reverse" : "", r.level);
    } else if (r.kind == Kind::repeat_end) {
      out += format("{} {}: end\n", segment.name, i);
    } else {
      out += format("{} {}: {} = {}({}) level {}", segment.name, i, places_text(r.outputs), r.op,
                    places_text(r.inputs), r.level);
      out += r.workspace ? format(" workspace {}", place_text(*r.workspace)) : "";
      out += format("  # {}\n", escaped(r.node));
    }
  }
  for (const DynamicDimInfo& dim : segment.dynamic_dims) {
    out += format("{} step {}..{}: u32 {} counted, up to {}\n", segment.name, dim.offset,
                  dim.offset + 4, listed_name(dim.name), dim.max);
  }
  for (const StepScalarInfo& word : segment.scalars) {
    const uint32_t end = word.offset + (word.type == name_of(StepType::u64) ? 8 : 4);
    out += format("{} step {}..{}: {} {}{}{}\n", segment.name, word.offset, end, word.type,
                  word.name, word.read ? " read" : "", word.written ? " written" : "");
  }
  return out;
}

std::string list_copies(const SegmentInfo& segment) {
  std::string out;
  for (const CopyInfo& c : segment.copies) {
    out += format("refresh {}: {}, when it was written\n", storage_text(c.tie, c.dtype), c.op);
  }
  return out;
}

std::string list_repeat_lists(const std::vector<RepeatListInfo>& lists) {
  std::string out;
  for (const RepeatListInfo& list : lists) {
    out += format("@{}{}:", listed_name(list.name), list.copy ? format(":{}", *list.copy) : "");
    for (const uint32_t tie : list.ties) {
      out += format(" {}", tie);
    }
    out += '\n';
  }
  return out;
}

}  // namespace bowline::detail::plan
