#include "train/optimizer.h"

#include <map>

#include "graph/infer.h"
#include "params/home.h"
#include "train/options.h"

namespace bowline::detail::train {
namespace {

using graph::Graph;
using graph::Node;
using graph::StorageUse;
using graph::ValueId;
using graph::ValueInfo;
using params::Role;
using params::Storage;

constexpr uint32_t kGradientSlots = 1;

class UpdateBuilder {
 public:
  explicit UpdateBuilder(const params::Table& table) : table_(table) { graph_.name = "update"; }

  // The rows that belong to `ties`: themselves, or those of a role. All have one dtype.
  Result<ValueId> list(std::string name, std::span<const uint32_t> ties, std::optional<Role> role,
                       uint32_t slot = 0) {
    ValueInfo info;
    info.kind = graph::ValueKind::parameter;
    info.name = std::move(name);
    for (const uint32_t tie : ties) {
      const auto row = role ? table_.owned(tie, *role, slot) : std::optional(tie);
      BOWLINE_REQUIRE_CODE(row.has_value(), Code::internal,
                           "Storage {} has no row of its own for {}.", tie, info.name);
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

// Where the rule of a storage is the same, but its moments are not of the same kind, it is in
// another group.
struct Group {
  UpdateRule rule;
  size_t moments = 0;
  bool has_masters = false;
  auto operator<=>(const Group&) const = default;
};

template <class Table>
Table with_rule(const UpdateRule& rule) {
  Table t;
  t.weight_decay = rule.weight_decay;
  t.learning_rate_factor = rule.learning_rate_factor;
  return t;
}

// The operator with its attributes, and how many of the moments stand before the scale among its
// operands.
struct Update {
  Op op;
  Attributes attributes;
  size_t before_scale = 0;
};

Update update_of(const Optimizer& o, const UpdateRule& rule) {
  switch (o.kind) {
    case Optimizer::Kind::adamw: {
      auto a = with_rule<AdamWAttributesT>(rule);
      a.beta1 = o.beta1;
      a.beta2 = o.beta2;
      a.eps = o.eps;
      return {Op::AdamW, Attributes::of(a), 2};
    }
    case Optimizer::Kind::adagrad: {
      auto a = with_rule<AdagradAttributesT>(rule);
      a.learning_rate_decay = o.learning_rate_decay;
      a.eps = o.eps;
      return {Op::Adagrad, Attributes::of(a), 1};
    }
    case Optimizer::Kind::rmsprop: {
      auto a = with_rule<RmsPropAttributesT>(rule);
      a.alpha = o.alpha;
      a.momentum = o.momentum;
      a.centered = o.centered;
      a.eps = o.eps;
      return {Op::RmsProp, Attributes::of(a)};
    }
    case Optimizer::Kind::lion: {
      auto a = with_rule<LionAttributesT>(rule);
      a.beta1 = o.beta1;
      a.beta2 = o.beta2;
      return {Op::Lion, Attributes::of(a), 1};
    }
    case Optimizer::Kind::adafactor: {
      auto a = with_rule<AdafactorAttributesT>(rule);
      a.beta2_decay = o.beta2_decay;
      a.eps1 = o.eps;
      a.eps2 = o.eps2;
      a.d = o.update_clip;
      return {Op::Adafactor, Attributes::of(a)};
    }
    case Optimizer::Kind::sgd:
      break;
  }
  auto a = with_rule<SgdAttributesT>(rule);
  a.momentum = o.momentum;
  a.nesterov = o.nesterov;
  return {Op::Sgd, Attributes::of(a)};
}

Status add_group(UpdateBuilder& b, const Optimizer& o, std::span<const uint32_t> ties,
                 const Group& group, ValueId scale) {
  const Update update = update_of(o, group.rule);
  std::vector<ValueId> inputs;
  BOWLINE_TRY_ASSIGN(inputs.emplace_back(), group.has_masters
                                                ? b.list("masters", ties, Role::master)
                                                : b.list("weights", ties, {}));
  BOWLINE_TRY_ASSIGN(inputs.emplace_back(), b.list("gradients", ties, Role::gradient));
  for (uint32_t slot = 0; slot < group.moments; ++slot) {
    BOWLINE_TRY_ASSIGN(inputs.emplace_back(),
                       b.list(format("moments_{}", slot), ties, Role::moment, slot));
  }
  inputs.insert(inputs.begin() + 2 + static_cast<std::ptrdiff_t>(update.before_scale), scale);
  return b.add(update.op, update.attributes, std::move(inputs)).status();
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
  const Moment mean{weight};
  const Moment squares{weight, true};
  std::vector<Moment> out;
  switch (o.kind) {
    case Optimizer::Kind::adamw:
      return {mean, squares};
    case Optimizer::Kind::adagrad:
      return {squares};
    case Optimizer::Kind::lion:
      return {mean};
    case Optimizer::Kind::adafactor:
      if (weight.rank() < 2) {
        return {squares};
      }
      return {{without(weight, 1), true}, {without(weight, 2), true}};
    case Optimizer::Kind::rmsprop:
      out.push_back(squares);
      if (o.centered) {
        out.push_back(mean);
      }
      break;
    case Optimizer::Kind::sgd:
      break;
  }
  if (o.momentum != 0) {
    out.push_back(mean);
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

void add_rows(params::Table& table, const Optimizer& optimizer) {
  for (const uint32_t tie : trained(table)) {
    for (uint32_t slot = 0; slot < kGradientSlots; ++slot) {
      add_row(table, tie, Role::gradient, slot, table.storages[tie].shape);
    }
    uint32_t slot = 0;
    for (const Moment& moment : moments(optimizer, table.storages[tie].shape)) {
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

Result<Graph> update_graph(const params::Table& table, const TrainOptions& options) {
  const std::vector<uint32_t> all = trained(table);
  std::map<Group, std::vector<uint32_t>, std::greater<>> groups;
  std::map<DType, std::vector<uint32_t>> rounded;
  for (const uint32_t tie : all) {
    BOWLINE_TRY_ASSIGN(const UpdateRule rule, rule_of(tie, table, options));
    const size_t kept = moments(options.optimizer, table.storages[tie].shape).size();
    const bool master = has_master(table.storages[tie]);
    groups[{rule, kept, master}].push_back(tie);
    if (master) {
      rounded[table.storages[tie].dtype].push_back(tie);
    }
  }
  UpdateBuilder b(table);
  BOWLINE_TRY_ASSIGN(const ValueId gradients, b.list("gradients", all, Role::gradient));
  ClipByGlobalNormAttributesT clip;
  clip.max_norm = options.clip_norm;
  BOWLINE_TRY_ASSIGN(const ValueId scale, b.add(Op::ClipByGlobalNorm, Attributes::of(clip),
                                                {gradients, b.input(options.loss)}));
  for (const auto& [group, ties] : groups) {
    BOWLINE_TRY(add_group(b, options.optimizer, ties, group, scale));
  }
  for (const auto& [dtype, ties] : rounded) {
    BOWLINE_TRY_ASSIGN(const ValueId masters, b.list("masters", ties, Role::master));
    BOWLINE_TRY_ASSIGN(const ValueId weights, b.list("weights", ties, {}));
    BOWLINE_TRY(
        b.add(Op::RoundWeights, Attributes::of(NoAttributesT{}), {masters, weights}).status());
  }
  return b.take();
}

}  // namespace bowline::detail::train
