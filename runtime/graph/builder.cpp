#include <atomic>

#include "graph/bind.h"

namespace bowline {

using graph::Graph;
using graph::kNoValue;
using graph::Node;
using graph::ValueInfo;
using graph::ValueKind;

struct GraphBuilder::State {
  graph::ModelState* model = nullptr;
  Graph graph;
  State* parent = nullptr;      // of a body: the graph around it
  std::vector<Value> captured;  // of a body: values of the parent, in order of the invariant inputs
  uint32_t carried = 0;
  int count = 1;
  uint32_t id = 0;
  Status status;
  std::string next_name;
  std::vector<Value> last;

  void fail(Status s) {
    if (status.ok() && !s.ok()) {
      status = std::move(s).at(format("While building graph \"{}\".", graph.name));
    }
  }
  Value value(graph::ValueId v) const { return {v, id}; }
  bool owns(Value v) const { return v.graph == id && v.index < graph.values.size(); }
  std::vector<Value> add_node(Node node, int outputs);
  Value add_input(ValueInfo info);
};

namespace {

uint32_t next_graph_id() {
  static std::atomic<uint32_t> next = 1;
  return next++;
}

// Registers the names of dims, so that they can be bound.
void declare_dims(graph::ModelState& model, const std::vector<GraphDim>& dims) {
  for (const GraphDim& d : dims) {
    if (!d.name.empty() &&
        std::ranges::find(model.dims, d.name, &graph::NamedDim::name) == model.dims.end()) {
      graph::NamedDim dim;
      dim.name = d.name;
      model.dims.push_back(std::move(dim));
    }
  }
}

}  // namespace

std::vector<Value> GraphBuilder::State::add_node(Node node, int outputs) {
  const auto index = static_cast<uint32_t>(graph.nodes.size());
  std::vector<Value> out;
  for (int i = 0; i < outputs; ++i) {
    ValueInfo info;
    info.node = index;
    info.output = static_cast<uint32_t>(i);
    node.outputs.push_back(graph.add_value(std::move(info)));
    out.push_back(value(node.outputs.back()));
  }
  node.name = std::exchange(next_name, {});
  graph.nodes.push_back(std::move(node));
  fail(infer_node(graph, index, graph::probe_dims(model->dims)));
  return out;
}

Value GraphBuilder::State::add_input(ValueInfo info) {
  info.kind = ValueKind::input;
  graph.inputs.push_back(graph.add_value(std::move(info)));
  return value(graph.inputs.back());
}

GraphBuilder::GraphBuilder(Model& model, std::string_view name)
    : state_(std::make_unique<State>()) {
  state_->model = model.state().get();
  state_->graph.name = name;
  state_->id = next_graph_id();
  if (state_->model->find_graph(name) != nullptr) {
    state_->fail(Status(Code::bad_argument, format("There is a graph \"{}\" already.", name)));
  }
}

GraphBuilder::GraphBuilder(std::unique_ptr<State> body_state) : state_(std::move(body_state)) {}
GraphBuilder::~GraphBuilder() = default;

Value GraphBuilder::input(std::string_view name, DType dtype, const std::vector<GraphDim>& shape) {
  State& s = *state_;
  if (s.parent != nullptr) {
    s.fail(
        Status(Code::bad_argument, "The body of a Repeat has no inputs but the carried values."));
    return {};
  }
  declare_dims(*s.model, shape);
  ValueInfo info;
  info.dtype = dtype;
  info.name = name;
  info.dims = shape;
  auto bound = graph::bind_shape(shape, graph::probe_dims(s.model->dims));
  if (!bound.ok()) {
    s.fail(std::move(bound).status());
    return {};
  }
  info.shape = bound.value();
  return s.add_input(std::move(info));
}

Value GraphBuilder::parameter(Parameter parameter) {
  return this->parameter(ParameterList{{parameter}});
}

Value GraphBuilder::parameter(const ParameterList& list) {
  State& s = *state_;
  const size_t expected = s.parent != nullptr ? static_cast<size_t>(s.count) : 1;
  if (list.items.size() != expected && !(s.parent != nullptr && list.items.size() == 1)) {
    s.fail(
        Status(Code::bad_argument, format("The list has {} parameters, the Repeat {} iterations.",
                                          list.items.size(), expected)));
    return {};
  }
  const params::Table& table = s.model->table;
  ValueInfo info;
  info.kind = ValueKind::parameter;
  for (size_t i = 0; i < expected; ++i) {
    const Parameter p = list.items[list.items.size() == 1 ? 0 : i];
    if (p.index >= table.parameters.size()) {
      s.fail(Status(Code::bad_argument, format("There is no parameter number {}.", p.index)));
      return {};
    }
    const params::ParameterRow& row = table.parameters[p.index];
    auto shape = params::view_shape(row.view, table.storages[row.tie].shape);
    if (!shape.ok() || (i > 0 && !(shape.value() == info.shape))) {
      s.fail(shape.ok()
                 ? Status(Code::bad_argument,
                          format("Parameter {} has another shape than the first of its list.",
                                 row.name))
                 : std::move(shape).status());
      return {};
    }
    info.shape = shape.value();
    info.dtype = table.storages[row.tie].dtype;
    info.name = i == 0 ? row.name : info.name;
    info.parameters.push_back(p.index);
  }
  return s.value(s.graph.add_value(std::move(info)));
}

Value GraphBuilder::op(std::string_view name, const std::vector<Value>& inputs,
                       const std::vector<Attribute>& attributes) {
  State& s = *state_;
  s.last.clear();
  const Op op = op_named(name);
  if (op == Op::Invalid || is_internal(op) || op == Op::Repeat) {
    s.fail(Status(Code::bad_argument, format("There is no operator \"{}\" for models.", name)));
    return {};
  }
  Node node;
  node.op = op;
  for (const Value v : inputs) {
    if (!s.owns(v)) {
      s.fail(Status(
          Code::bad_argument,
          format("An input of {} is not a value of this graph{}.", name,
                 s.parent != nullptr ? " (capture() brings in one of the graph around)" : "")));
      return {};
    }
    node.inputs.push_back(v.index);
  }
  for (const Attribute& a : attributes) {
    declare_dims(*s.model, a.list);
  }
  auto packed = attributes_from(op, attributes);
  if (!packed.ok()) {
    s.fail(std::move(packed).status().at(format("While adding {}.", name)));
    return {};
  }
  node.attributes = packed.value();
  s.last = s.add_node(std::move(node), op_def(op).outputs);
  return s.status.ok() ? s.last[0] : Value{};
}

std::vector<Value> GraphBuilder::last_outputs() const { return state_->last; }

GraphBuilder& GraphBuilder::named(std::string_view name) {
  state_->next_name = name;
  return *this;
}

std::vector<Value> GraphBuilder::repeat(int count, const std::vector<Value>& carried,
                                        const Body& body) {
  State& s = *state_;
  if (count < 1 || s.parent != nullptr) {
    s.fail(Status(Code::bad_argument, s.parent != nullptr
                                          ? "A Repeat does not stand in the body of another."
                                          : format("A Repeat has a count of {}.", count)));
    return {};
  }
  auto inner = std::make_unique<State>();
  inner->model = s.model;
  inner->parent = &s;
  inner->graph.name = s.graph.name + ".body";
  inner->id = next_graph_id();
  inner->carried = static_cast<uint32_t>(carried.size());
  inner->count = count;
  Node node;
  node.op = Op::Repeat;
  std::vector<Value> entering;
  for (const Value v : carried) {
    if (!s.owns(v)) {
      s.fail(
          Status(Code::bad_argument, "A carried value of a Repeat is not a value of this graph."));
      return {};
    }
    node.inputs.push_back(v.index);
    ValueInfo info = s.graph[v.index];
    info.parameters.clear();
    entering.push_back(inner->add_input(std::move(info)));
  }
  GraphBuilder builder(std::move(inner));
  const std::vector<Value> leaving = body(builder, entering);
  State& b = *builder.state_;
  for (const Value v : leaving) {
    if (!b.owns(v)) {
      b.fail(
          Status(Code::bad_argument, "The body of a Repeat returns a value that is not its own."));
      break;
    }
    b.graph.outputs.push_back(v.index);
  }
  if (leaving.size() != carried.size()) {
    b.fail(Status(Code::bad_argument, format("The body of a Repeat returns {} values, not {}.",
                                             leaving.size(), carried.size())));
  }
  if (!b.status.ok()) {
    s.fail(std::move(b.status));
    return {};
  }
  for (const Value v : b.captured) {
    node.inputs.push_back(v.index);
  }
  RepeatAttributesT attributes;
  attributes.count = static_cast<uint32_t>(count);
  attributes.carried = b.carried;
  node.attributes = Attributes::of(attributes);
  node.repeat = std::make_shared<graph::RepeatInfo>();
  node.repeat->count = static_cast<uint32_t>(count);
  node.repeat->carried = b.carried;
  node.repeat->body = std::make_shared<Graph>(std::move(b.graph));
  s.last = s.add_node(std::move(node), static_cast<int>(carried.size()));
  return s.last;
}

Value GraphBuilder::capture(Value outer) {
  State& s = *state_;
  if (s.parent == nullptr || !s.parent->owns(outer)) {
    s.fail(Status(Code::bad_argument, "capture() takes a value of the graph around the body."));
    return {};
  }
  for (size_t i = 0; i < s.captured.size(); ++i) {
    if (s.captured[i].index == outer.index) {
      return s.value(s.graph.inputs[s.carried + i]);
    }
  }
  s.captured.push_back(outer);
  ValueInfo info = s.parent->graph[outer.index];
  info.parameters.clear();
  return s.add_input(std::move(info));
}

void GraphBuilder::output(std::string_view name, Value value) {
  State& s = *state_;
  if (!s.owns(value)) {
    s.fail(Status(Code::bad_argument, format("Output \"{}\" is not a value of this graph.", name)));
    return;
  }
  s.graph.outputs.push_back(value.index);
  s.graph.output_names.emplace_back(name);
}

Status GraphBuilder::finish() {
  State& s = *state_;
  BOWLINE_TRY(Status(s.status));
  BOWLINE_REQUIRE(!s.graph.outputs.empty(), "Graph \"{}\" has no output.", s.graph.name);
  s.model->graphs.push_back(std::move(s.graph));
  s.fail(Status(Code::bad_argument, "The graph is finished already."));
  return {};
}

}  // namespace bowline
