// Derived copies: values that a plan computes from one storage alone. They are made once per
// version of the storage, not once per run.
#include "plan/lowering.h"

namespace bowline::detail::plan {

using device::Operand;
using device::Record;
using graph::BoundGraph;
using graph::BoundNode;
using graph::BoundValue;
using graph::StorageUse;
using graph::ValueKind;

namespace {

bool shows_all(const BoundValue& v, const params::Table& table) {
  return std::ranges::all_of(v.uses, [&](const StorageUse& use) {
    return std::cmp_equal(use.elements, table.storages[use.tie].shape.elements());
  });
}

// Quantized values can be read as any float dtype, so a cast needs no copy.
bool reads_the_codes(const BoundValue& from, const BoundValue& result) {
  return !from.encoding.is_plain() && is_float(result.dtype) && from.shape == result.shape;
}

// Replaces the result of the node by a derived copy of a parameter. Returns false if the node
// stays.
bool derive(BoundGraph& graph, const BoundNode& node, const params::Table& table) {
  const DerivedCopy kind = op_def(node.op).derived_copy;
  if (kind == DerivedCopy::none) {
    return false;
  }
  const BoundValue& from = graph[node.inputs[0]];
  if (from.kind != ValueKind::parameter || from.form != nullptr) {
    return false;
  }
  BoundValue copy = from;
  BoundValue& result = graph[node.outputs[0]];
  copy.dtype = result.dtype;
  if (kind == DerivedCopy::by_element && reads_the_codes(from, result)) {
    result = std::move(copy);
    return true;
  }
  if (!shows_all(from, table)) {
    return false;
  }
  copy.encoding = {};
  copy.shape = result.shape;
  params::Form form{node.op, node.attributes, result.dtype, {}};
  if (kind == DerivedCopy::packed) {
    form.packing = {from.shape, result.shape};
  }
  copy.form = std::make_shared<const params::Form>(std::move(form));
  result = std::move(copy);
  return true;
}

}  // namespace

size_t derive_copies(BoundGraph& graph, const params::Table& table, size_t boundary) {
  std::vector<BoundNode> left;
  size_t left_of_first = 0;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    BoundNode& node = graph.nodes[n];
    if (node.repeat) {
      derive_copies(*node.repeat->body, table);
    }
    if (!derive(graph, node, table)) {
      left.push_back(std::move(node));
      left_of_first += n < boundary ? 1 : 0;
    }
  }
  graph.nodes = std::move(left);
  renumber(graph);
  return left_of_first;
}

Result<Plan> refresh(const StorageSlot& copy, const params::Storage& storage,
                     const device::OpenDevice& device) {
  Plan plan;
  plan.name = "refresh";
  plan.nodes = {format("the copy of storage {} as {}", copy.tie, copy.form->dtype)};
  plan.storages = {{copy.tie, nullptr}, copy};
  plan.program.slots = device::kFirstStorageSlot + 2;
  Record record;
  record.op = copy.form->op;
  record.attributes = copy.form->attributes;
  Operand from;
  from.slot = device::kFirstStorageSlot;
  from.dtype = storage.dtype;
  from.encoding = storage.encoding;
  from.shape = copy.form->packing ? copy.form->packing->from : storage.shape;
  Operand to = from;
  to.slot = device::kFirstStorageSlot + 1;
  to.dtype = copy.form->dtype;
  to.encoding = {};
  to.shape = copy.form->packing ? copy.form->packing->to : storage.shape;
  record.inputs = {from};
  record.outputs = {to};
  record.workspace.dtype = DType::u8;
  record.workspace.shape = Shape{0};
  BOWLINE_TRY(set_type(record));
  BOWLINE_TRY(device.check_caller());
  const device::NodeAnswer answer =
      device.query({record.op, record.type, record.attributes, record.inputs, record.outputs});
  BOWLINE_REQUIRE_CODE(answer.reason.empty() && answer.workspace_bytes == 0, Code::unsupported,
                       "Device {} cannot make {}: {}", device.info().name, plan.nodes[0],
                       answer.reason.empty() ? "it needs a workspace." : answer.reason);
  plan.program.records = {record};
  return plan;
}

}  // namespace bowline::detail::plan
