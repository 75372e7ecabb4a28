#include "train/optimizer.h"

#include <map>

#include "core/optimizers.h"
#include "graph/infer.h"
#include "params/home.h"
#include "train/options.h"
#include "train/together.h"

namespace bowline::detail::train {
namespace {

using Graph = graph::BoundGraph;
using Node = graph::BoundNode;
using graph::StorageUse;
using graph::ValueId;
using ValueInfo = graph::BoundValue;
using params::Role;
using params::Storage;

using WeightCopies = std::map<uint32_t, std::shared_ptr<const params::Form>>;

class UpdateBuilder {
 public:
  explicit UpdateBuilder(const params::Table& table) : table_(table) { graph_.name = "update"; }

  // A list of copies of the storages `ties` in a form.
  ValueId copies(std::span<const uint32_t> ties, const std::shared_ptr<const params::Form>& form) {
    ValueInfo info;
    info.kind = graph::ValueKind::parameter;
    info.name = "copies";
    info.dtype = form->dtype;
    info.form = form;
    for (const uint32_t tie : ties) {
      info.uses.push_back({tie, 0, static_cast<uint64_t>(table_.storages[tie].shape.elements())});
    }
    return graph_.add_value(std::move(info));
  }

  // A list of the storages `ties`, or of their rows with a role. All have one dtype.
  Result<ValueId> list(std::string name, std::span<const uint32_t> ties, std::optional<Role> role,
                       uint32_t slot = 0) {
    ValueInfo info;
    info.kind = graph::ValueKind::parameter;
    info.name = std::move(name);
    for (const uint32_t tie : ties) {
      const auto row = role ? table_.owned(tie, *role, slot) : std::optional(tie);
      BOWLINE_REQUIRE_CODE(row.has_value(), Code::internal,
                           "Storage {} has no storage of its own for {}.", tie, info.name);
      info.uses.push_back({*row, 0, static_cast<uint64_t>(table_.storages[*row].shape.elements())});
      info.dtype = table_.storages[*row].dtype;
    }
    return graph_.add_value(std::move(info));
  }

  ValueId input(std::string name) {
    ValueInfo info;
    info.kind = graph::ValueKind::input;
    info.name = std::move(name);
    graph_.inputs.push_back(graph_.add_value(std::move(info)));
    return graph_.inputs.back();
  }

  Result<ValueId> add(Op op, const Attributes& attributes, std::vector<ValueId> inputs) {
    Node node;
    node.op = op;
    node.attributes = attributes;
    node.inputs = std::move(inputs);
    const int outputs = outputs_of(op_def(op), node.attributes, node.inputs.size());
    for (int i = 0; i < outputs; ++i) {
      ValueInfo info;
      info.node = static_cast<uint32_t>(graph_.nodes.size());
      info.output = static_cast<uint32_t>(i);
      node.outputs.push_back(graph_.add_value(std::move(info)));
    }
    const ValueId first = node.outputs[0];
    graph_.nodes.push_back(std::move(node));
    BOWLINE_TRY(infer_node(graph_, graph_.nodes.size() - 1, {}));
    return first;
  }

  Graph take() { return std::move(graph_); }

 private:
  const params::Table& table_;
  Graph graph_;
};

bool waits(const Storage& row) {
  return params::is_training(row.role) && !row.empty && row.home.block == nullptr;
}

// Storages with the same rule but different dtypes, copies or kinds of moments are in different
// groups.
struct Group {
  UpdateRule rule;
  size_t moments = 0;
  DType dtype = DType::f32;
  DType copies = DType::f32;  // f32: there are none
  auto operator<=>(const Group&) const = default;
};

// The copies of f32 weights that the graph reads in 16 bits, by tie index. The optimizer writes
// them, so nothing has to renew them after a step.
void add_copies(const Graph& graph, const params::Table& table, WeightCopies& to) {
  for (const ValueInfo& v : graph.values) {
    const bool is_cast = v.form != nullptr && v.form->op == Op::Cast && !v.form->packing &&
                         size_of(v.form->dtype) == 2;
    for (const StorageUse& use : v.uses) {
      if (is_cast && table.storages[use.tie].dtype == DType::f32) {
        to.emplace(use.tie, v.form);
      }
    }
  }
  for (const Node& node : graph.nodes) {
    if (node.repeat) {
      add_copies(*node.repeat->body, table, to);
    }
  }
}

Result<Attributes> update_attributes(const OptimizerDef& def, const Optimizer& o,
                                     const UpdateRule& rule) {
  std::vector<Attribute> values = {{"weight_decay", rule.weight_decay},
                                   {"learning_rate_factor", rule.learning_rate_factor}};
  for (const auto& [name, value] : o.settings) {
    if (name != "weight_decay" && name != "decay_all") {
      values.emplace_back(name, value);
    }
  }
  return attributes_from(def.op, values);
}

// `form`: of the copies of the weights, or null.
Status add_group(UpdateBuilder& b, const Optimizer& o, std::span<const uint32_t> ties,
                 const Group& group, const std::shared_ptr<const params::Form>& form,
                 ValueId scale) {
  const OptimizerDef& def = *optimizer_named(o.name);
  BOWLINE_TRY_ASSIGN(const Attributes attributes, update_attributes(def, o, group.rule));
  std::vector<ValueId> inputs;
  BOWLINE_TRY_ASSIGN(const ValueId weights, b.list("weights", ties, {}));
  inputs.push_back(form == nullptr ? weights : b.copies(ties, form));
  BOWLINE_TRY_ASSIGN(inputs.emplace_back(), b.list("gradients", ties, Role::gradient));
  inputs.push_back(scale);
  for (uint32_t slot = 0; slot < group.moments; ++slot) {
    BOWLINE_TRY_ASSIGN(inputs.emplace_back(),
                       b.list(format("moments_{}", slot), ties, Role::moment, slot));
  }
  if (form != nullptr) {
    inputs.push_back(weights);  // they are the masters of the copies
  } else if (group.dtype != DType::f32) {
    BOWLINE_TRY_ASSIGN(inputs.emplace_back(), b.list("masters", ties, Role::master));
  }
  return b.add(def.op, attributes, std::move(inputs)).status();
}

// The shape without one axis, counted from the end.
Shape without(const Shape& shape, int from_end) {
  Shape out;
  for (int a = 0; a < shape.rank(); ++a) {
    if (a != shape.rank() - from_end) {
      out.push_back(shape[a]);
    }
  }
  return out;
}

}  // namespace

std::vector<uint32_t> trained(const params::Table& table) {
  std::vector<uint32_t> out;
  for (uint32_t tie = 0; tie < table.storages.size(); ++tie) {
    const Storage& s = table.storages[tie];
    const bool weight =
        s.role == Role::weight || s.role == Role::adapter_a || s.role == Role::adapter_b;
    const bool has_elements = s.shape.elements() > 0;
    if (!s.empty && s.trainable && weight && is_float(s.dtype) && s.encoding.is_plain() &&
        has_elements) {
      out.push_back(tie);
    }
  }
  return out;
}

bool has_master(const Storage& storage) { return storage.dtype != DType::f32; }

std::vector<Moment> moments(const Optimizer& o, const Shape& weight) {
  const OptimizerDef& def = *optimizer_named(o.name);
  std::vector<Moment> out;
  for (const OptimizerState& state : def.states) {
    if (!state.needs.empty() && setting_of(def, o, state.needs) == 0) {
      continue;
    }
    if (state.factored && weight.rank() >= 2) {
      out.push_back({without(weight, 1), state.squares});
      out.push_back({without(weight, 2), state.squares});
    } else {
      out.push_back({weight, state.squares});
    }
  }
  return out;
}

void add_row(params::Table& table, uint32_t owner, Role role, uint32_t slot, const Shape& shape) {
  if (table.owned(owner, role, slot)) {
    return;
  }
  Storage row;
  row.dtype = DType::f32;
  row.shape = shape;
  row.role = role;
  row.owner = static_cast<int32_t>(owner);
  row.slot = slot;
  row.trainable = false;
  table.add(std::move(row));
}

void add_rows(params::Table& table, const TrainOptions& options) {
  for (const uint32_t tie : trained(table)) {
    add_row(table, tie, Role::gradient, 0, table.storages[tie].shape);
  }
  for (const uint32_t tie : owned_here(table, options)) {
    uint32_t slot = 0;
    for (const Moment& moment : moments(options.optimizer, table.storages[tie].shape)) {
      add_row(table, tie, Role::moment, slot++, moment.shape);
    }
    if (has_master(table.storages[tie])) {
      add_row(table, tie, Role::master, 0, table.storages[tie].shape);
    }
  }
}

void add_waiting(const params::Table& table, device::Demand& demand) {
  for (const Storage& row : table.storages) {
    if (waits(row)) {
      demand.add(row.bytes(), device::MemoryKind::device);
    }
  }
}

Status place_waiting(params::Table& table) {
  std::vector<std::byte> scratch;
  for (uint32_t tie = 0; tie < table.storages.size(); ++tie) {
    if (!waits(table.storages[tie])) {
      continue;
    }
    Storage row = table.storages[tie];
    const params::Home& owner = table.storages[static_cast<size_t>(row.owner)].home;
    const std::shared_ptr<device::OpenDevice>& device = owner.block->device_handle();
    if (row.home.valid()) {
      BOWLINE_TRY_ASSIGN(const params::Bytes bytes, params::read_all(row, scratch));
      BOWLINE_TRY_ASSIGN(params::Home home, params::make_home(device, bytes));
      params::install(row, std::move(home));
    } else {
      BOWLINE_TRY_ASSIGN(row.home.block,
                         device::Block::allocate(device, row.bytes(), device::MemoryKind::device));
      BOWLINE_TRY(row.home.block->fill(std::byte{0}));
    }
    table.put(tie, std::move(row));
  }
  return {};
}

Result<Graph> update_graph(const params::Table& table, const TrainOptions& options,
                           const Graph& training) {
  WeightCopies copies;
  add_copies(training, table, copies);
  const std::vector<uint32_t> all = trained(table);
  std::map<Group, std::vector<uint32_t>, std::greater<>> groups;
  for (const uint32_t tie : owned_here(table, options)) {
    BOWLINE_TRY_ASSIGN(const UpdateRule rule, rule_of(tie, table, options));
    const size_t kept = moments(options.optimizer, table.storages[tie].shape).size();
    const auto copy = copies.find(tie);
    const DType copied = copy == copies.end() ? DType::f32 : copy->second->dtype;
    groups[{rule, kept, table.storages[tie].dtype, copied}].push_back(tie);
  }
  UpdateBuilder b(table);
  BOWLINE_TRY_ASSIGN(const ValueId gradients, b.list("gradients", all, Role::gradient));
  ClipByGlobalNormAttributesT clip;
  clip.max_norm = options.clip_norm;
  BOWLINE_TRY_ASSIGN(const ValueId scale, b.add(Op::ClipByGlobalNorm, Attributes::of(clip),
                                                {gradients, b.input(options.loss)}));
  for (const auto& [group, ties] : groups) {
    const auto copy = copies.find(ties[0]);
    BOWLINE_TRY(add_group(b, options.optimizer, ties, group,
                          copy == copies.end() ? nullptr : copy->second, scale));
  }
  return b.take();
}

}  // namespace bowline::detail::train
