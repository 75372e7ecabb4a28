#include "train/nonfinite.h"

#include "exec/segment.h"
#include "params/home.h"

namespace bowline::detail::train {
namespace {

using graph::BoundGraph;
using graph::BoundNode;
using graph::BoundValue;
using graph::ValueId;
using graph::ValueKind;

// The graph with every Repeat unrolled. The name of each node states its iteration.
class Unrolled {
 public:
  explicit Unrolled(const BoundGraph& from) : from_(from) {
    graph.name = from.name;
    std::vector<ValueId> to(from.values.size());
    for (ValueId v = 0; v < from.values.size(); ++v) {
      if (from[v].kind != ValueKind::result) {
        to[v] = graph.add_value(from[v]);
      }
    }
    for (const ValueId v : from.inputs) {
      graph.inputs.push_back(to[v]);
    }
    for (size_t n = 0; n < from.nodes.size(); ++n) {
      if (from.nodes[n].repeat) {
        add_repeat(n, to);
      } else {
        add_node(from, n, graph::describe(from, n), to);
      }
    }
  }

  BoundGraph graph;

 private:
  void add_node(const BoundGraph& from, size_t n, std::string name, std::vector<ValueId>& to) {
    BoundNode node = from.nodes[n];
    node.name = std::move(name);
    for (ValueId& v : node.inputs) {
      v = to[v];
    }
    for (ValueId& v : node.outputs) {
      BoundValue info = from[v];
      info.node = static_cast<uint32_t>(graph.nodes.size());
      to[v] = graph.add_value(std::move(info));
      v = to[v];
    }
    graph.nodes.push_back(std::move(node));
  }

  void add_repeat(size_t n, std::vector<ValueId>& to) {
    const BoundNode& node = from_.nodes[n];
    const BoundGraph& body = *node.repeat->body;
    std::vector<ValueId> in;
    for (const ValueId v : node.inputs) {
      in.push_back(to[v]);
    }
    for (uint32_t i = 0; i < node.repeat->count; ++i) {
      std::vector<ValueId> inner(body.values.size());
      for (size_t k = 0; k < body.inputs.size(); ++k) {
        inner[body.inputs[k]] = in[k];
      }
      for (ValueId v = 0; v < body.values.size(); ++v) {
        if (body[v].kind == ValueKind::parameter) {
          BoundValue info = body[v];
          info.uses = {info.uses[i]};
          inner[v] = graph.add_value(std::move(info));
        }
      }
      for (size_t k = 0; k < body.nodes.size(); ++k) {
        add_node(body, k,
                 format("{} in iteration {} of {}", graph::describe(body, k), i,
                        graph::describe(from_, n)),
                 inner);
      }
      for (uint32_t k = 0; k < node.repeat->carried; ++k) {
        in[k] = inner[body.outputs[k]];
      }
    }
    for (uint32_t k = 0; k < node.repeat->carried; ++k) {
      to[node.outputs[k]] = in[k];
    }
  }

  const BoundGraph& from_;
};

// The first trainable parameter with a non-finite value or gradient, or "".
Result<std::string> find_parameter(const params::Table& table, bool gradients) {
  for (const params::ParameterRow& p : table.parameters) {
    std::optional<uint32_t> row = p.tie;
    if (gradients) {
      row = table.owned(p.tie, params::Role::gradient, 0);
    }
    if (!row || !is_float(table.storages[*row].dtype) ||
        !table.storages[*row].encoding.is_plain()) {
      continue;
    }
    BOWLINE_TRY_ASSIGN(const std::vector<std::byte> bytes,
                       params::read_bytes(table.storages[*row]));
    if (!params::all_finite(bytes, table.storages[*row].dtype)) {
      return p.name;
    }
  }
  return std::string();
}

// Runs the forward pass again with every value as an output.
Result<std::string> find_node(const BoundGraph& forward, std::span<const Tensor> batch,
                              params::Table& table,
                              const std::shared_ptr<device::OpenDevice>& device,
                              const Planner::Fill& fill) {
  BoundGraph all = std::move(Unrolled(forward).graph);
  for (const BoundNode& node : all.nodes) {
    for (const ValueId v : node.outputs) {
      all.outputs.push_back(v);
      all.output_names.push_back(node.name);
    }
  }
  plan::StepLayout layout;
  BOWLINE_TRY_ASSIGN(plan::Plan plan, plan::lower(std::move(all), "search", *device, layout));
  exec::Workspace::Sizes sizes;
  sizes.cover(plan, layout);
  BOWLINE_TRY_ASSIGN(const exec::Workspace workspace, exec::Workspace::allocate(device, sizes));
  exec::StepValues steps(std::move(layout));
  fill(steps);
  BOWLINE_TRY_ASSIGN(const exec::Segment segment,
                     exec::Segment::record(std::move(plan), table, device, workspace));
  exec::CancelRequest never;
  BOWLINE_TRY(exec::run(*device, workspace, segment, nullptr, table, batch, steps, never).status());
  for (const plan::IoRange& range : segment.plan().outputs) {
    std::vector<std::byte> bytes(range.bytes());
    BOWLINE_TRY(device->copy_out(bytes, workspace.io->buffer(), range.offset));
    if (!params::all_finite(bytes, range.dtype)) {
      return range.name;
    }
  }
  return std::string();
}

}  // namespace

Result<StepReport> NonFinitePolicy::conclude(StepReport report, const params::Table& table,
                                             const std::function<Status()>& roll_back) {
  if (!report.skipped && !report.weights_non_finite) {
    // Repeated steps after a rollback do not reset the count. Otherwise they could lead to the same
    // bad step forever.
    in_row_ = report.step > rolled_back_from_ ? 0 : in_row_;
    report.nonfinite_steps = steps_;
    return report;
  }
  report.nonfinite_in_row = ++in_row_;
  report.nonfinite_steps = ++steps_;
  const std::string what =
      format("Step {}: the loss is {}, the gradient norm {}{}.", report.step, report.loss,
             report.grad_norm,
             report.weights_non_finite ? ", and the update made weights that are not finite"
                                       : "; the update was not applied");
  if (report.weights_non_finite && stops()) {
    BOWLINE_TRY_ASSIGN(const std::string name, find_parameter(table, false));
    return Status(Code::non_finite, format("{} The first is parameter \"{}\".", what, name));
  }
  if (reaction_ == OnNonFinite::rollback) {
    BOWLINE_REQUIRE_CODE(roll_back, Code::non_finite, "{} There is no snapshot to roll back to.",
                         what);
    BOWLINE_TRY(roll_back().at(what));
    report.rolled_back = true;
    rolled_back_from_ = report.step;
  }
  BOWLINE_REQUIRE_CODE(max_in_row_ == 0 || in_row_ < max_in_row_, Code::non_finite,
                       "{} This is non-finite step {} in a row.", what, in_row_);
  return report;
}

std::string describe_non_finite(const Result<BoundLoss>& loss, std::span<const Tensor> batch,
                                params::Table& table,
                                const std::shared_ptr<device::OpenDevice>& device,
                                const Planner::Fill& fill) {
  const Result<std::string> weight = find_parameter(table, false);
  if (weight.ok() && !weight.value().empty()) {
    return format("Parameter \"{}\" has a value that is not finite.", weight.value());
  }
  std::string out;
  const Result<std::string> node = loss.ok()
                                       ? find_node(loss.value().graph, batch, table, device, fill)
                                       : Result<std::string>(loss.status());
  if (!node.ok()) {
    out = format("The node that failed is unknown: {} ", node.status().message());
  } else if (!node.value().empty()) {
    out = format("The first non-finite value comes from {}. ", node.value());
  }
  const Result<std::string> gradient = find_parameter(table, true);
  if (gradient.ok() && !gradient.value().empty()) {
    out += format("The gradient of parameter \"{}\" is not finite.", gradient.value());
  }
  return out;
}

}  // namespace bowline::detail::train
