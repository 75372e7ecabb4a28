// The members of bowline::GraphBuilder, and its state.
#include <atomic>
#include <unordered_set>

#include "api/internals.h"
#include "base/boundary.h"
#include "base/nearest.h"
#include "bowline.h"
#include "core/rules.h"
#include "graph/bind.h"
#include "graph/updates.h"

namespace bowline {

using graph::GenericGraph;
using graph::GenericNode;
using graph::GenericValue;
using graph::ValueKind;

struct GraphBuilder::State {
  std::weak_ptr<graph::ModelState> owner;
  GenericGraph graph;
  State* parent = nullptr;      // of a body: the graph around it
  std::vector<Value> captured;  // of a body: values of the parent, in order of the invariant inputs
  uint32_t carried = 0;
  int count = 1;
  uint32_t id = 0;
  Status status;
  std::string next_name;
  std::vector<Value> last;
  std::unordered_set<std::string> input_names;
  std::unordered_set<std::string> output_names;

  Value value(graph::ValueId v) const { return {v, id}; }
  bool owns(Value v) const { return v.graph == id && v.index < graph.values.size(); }
  Value add_value(GenericValue info) { return value(graph.add_value(std::move(info))); }
  Value add_input(GenericValue info);

  // Each does the work of the builder call with the same name, without a check for earlier errors.
  Result<Value> input(graph::ModelState& model, std::string_view name, DType dtype,
                      const std::vector<GraphDim>& shape);
  Result<Value> parameter(const graph::ModelState& model, const ParameterList& list);
  Result<Value> capture(Value outer);
  Result<std::vector<Value>> op(graph::ModelState& model, Op op, std::string_view name,
                                const std::vector<Value>& inputs,
                                const std::vector<Attribute>& attributes);
  Result<std::vector<Value>> repeat(const graph::ModelState& model, int iterations,
                                    const std::vector<Value>& values, const Body& body);
  Status output(std::string_view name, Value value);
  Status finish(graph::ModelState& model);

  // Keeps the first error. Making its message may fail for lack of memory.
  void keep(const Status& s) {
    if (status.ok() && !s.ok()) {
      status = host_memory_exhausted();
      guarded([&] {
        status = Status(s).at(format("While building graph \"{}\".", graph.name));
        return true;
      });
    }
  }

 private:
  std::vector<Value> add_outputs(GenericNode& node, int outputs);
  Status add_node(const graph::ModelState& model, GenericNode node);
  Status leave(const std::vector<Value>& leaving);
};

namespace {

uint32_t next_graph_id() {
  static std::atomic<uint32_t> next = 1;
  return next++;
}

// Registers the name of a dim, so that it can be bound.
Status declare_dim(graph::ModelState& model, const std::string& name) {
  if (model.entry_points.find_dim(name) == nullptr) {
    BOWLINE_TRY(check_name(name, "A dim"));
    graph::NamedDim dim;
    dim.name = name;
    model.entry_points.dims.push_back(std::move(dim));
  }
  return {};
}

Status check_new_name(std::unordered_set<std::string>& names, std::string_view name,
                      std::string_view what) {
  BOWLINE_TRY(check_name(name, what));
  BOWLINE_REQUIRE(names.emplace(name).second, "{} has the name \"{}\", which is taken.", what,
                  name);
  return {};
}

Status check_free(const graph::ModelState& model, std::string_view graph) {
  BOWLINE_REQUIRE(model.entry_points.find(graph) == nullptr, "There is a graph \"{}\" already.",
                  graph);
  return {};
}

bool is_of_models(Op op) {
  return op != Op::Invalid && !is_internal(op) && op_def(op).role != OpRole::repeat;
}

std::vector<std::string_view> operators_of_models() {
  std::vector<std::string_view> names;
  for (int i = 0; i < kOps; ++i) {
    if (is_of_models(op_at(i))) {
      names.push_back(name_of(op_at(i)));
    }
  }
  return names;
}

// The number of outputs that a failed node would have, from its valid attributes.
size_t outputs_despite(Op op, size_t inputs, const std::vector<Attribute>& attributes) {
  if (!is_of_models(op)) {
    return 1;
  }
  std::vector<Attribute> legal;
  std::ranges::copy_if(attributes, std::back_inserter(legal), [&](const Attribute& a) {
    return attributes_from(op, {&a, 1}).ok();
  });
  const Result<Attributes> made = attributes_from(op, legal);
  return made.ok() ? static_cast<size_t>(outputs_of(op_def(op), made.value(), inputs)) : 1;
}

const Status& status_of(const Status& s) { return s; }
template <class T>
const Status& status_of(const Result<T>& r) {
  return r.status();
}

Value or_none(const Result<Value>& value) { return value.ok() ? value.value() : Value{}; }

// Runs a call on a builder and its model, unless the builder already has an error. Keeps the error
// of the call. `state` is null if there was no memory for it.
template <class State, class F>
auto attempt(State* state, F&& call) -> std::invoke_result_t<F, State&, graph::ModelState&> {
  using R = std::invoke_result_t<F, State&, graph::ModelState&>;
  if (state == nullptr) {
    return host_memory_exhausted();
  }
  R result = guarded([&]() -> R {
    BOWLINE_TRY(Status(state->status));
    const std::shared_ptr<graph::ModelState> model = state->owner.lock();
    BOWLINE_REQUIRE(model != nullptr, "The model of this builder no longer exists.");
    return call(*state, *model);
  });
  state->keep(status_of(result));
  return result;
}

}  // namespace

std::vector<Value> GraphBuilder::State::add_outputs(GenericNode& node, int outputs) {
  node.outputs = graph.add_results(static_cast<size_t>(outputs));
  std::vector<Value> out;
  for (const graph::ValueId v : node.outputs) {
    out.push_back(value(v));
  }
  return out;
}

Status GraphBuilder::State::add_node(const graph::ModelState& model, GenericNode node) {
  node.name = std::exchange(next_name, {});
  BOWLINE_TRY(check_optional_name(node.name, "The node"));
  graph.nodes.push_back(std::move(node));
  return infer_node(graph, graph.nodes.size() - 1, model.entry_points.probes());
}

Value GraphBuilder::State::add_input(GenericValue info) {
  info.kind = ValueKind::input;
  graph.inputs.push_back(graph.add_value(std::move(info)));
  return value(graph.inputs.back());
}

Result<Value> GraphBuilder::State::input(graph::ModelState& model, std::string_view name,
                                         DType dtype, const std::vector<GraphDim>& shape) {
  BOWLINE_REQUIRE(parent == nullptr,
                  "The body of a Repeat cannot call input(): its inputs are the carried values.");
  BOWLINE_TRY(check_new_name(input_names, name, "An input"));
  BOWLINE_REQUIRE(dtype <= DType::boolean, "Input \"{}\" has the unknown dtype {}.", name,
                  static_cast<int>(dtype));
  for (const GraphDim& d : shape) {
    BOWLINE_TRY(d.name.empty() ? Status() : declare_dim(model, d.name));
  }
  GenericValue info;
  info.dtype = dtype;
  info.name = name;
  info.dims = shape;
  BOWLINE_TRY_ASSIGN(info.shape, graph::bind_shape(shape, model.entry_points.probes()));
  return add_input(std::move(info));
}

Result<Value> GraphBuilder::State::parameter(const graph::ModelState& model,
                                             const ParameterList& list) {
  const size_t expected = parent != nullptr ? static_cast<size_t>(count) : 1;
  BOWLINE_REQUIRE(
      list.items.size() == expected || (parent != nullptr && list.items.size() == 1),
      "The list has {} parameters, but {} are needed here (one per iteration of a Repeat).",
      list.items.size(), expected);
  GenericValue info;
  info.kind = ValueKind::parameter;
  for (size_t i = 0; i < expected; ++i) {
    const Parameter p = list.items[list.items.size() == 1 ? 0 : i];
    BOWLINE_TRY_ASSIGN(const uint32_t index, model.number_of(p));
    info.parameters.push_back(index);
  }
  BOWLINE_TRY(set_parameters(info, model.table));
  return add_value(std::move(info));
}

Result<Value> GraphBuilder::State::capture(Value outer) {
  BOWLINE_REQUIRE(parent != nullptr && parent->owns(outer),
                  "capture() takes a value of the enclosing graph.");
  for (size_t i = 0; i < captured.size(); ++i) {
    if (captured[i].index == outer.index) {
      return value(graph.inputs[carried + i]);
    }
  }
  captured.push_back(outer);
  GenericValue info = parent->graph[outer.index];
  info.parameters.clear();
  return add_input(std::move(info));
}

Result<std::vector<Value>> GraphBuilder::State::op(graph::ModelState& model, Op op,
                                                   std::string_view name,
                                                   const std::vector<Value>& inputs,
                                                   const std::vector<Attribute>& attributes) {
  BOWLINE_REQUIRE(is_of_models(op), "Models have no operator \"{}\".{}", name,
                  suggestion(name, operators_of_models()));
  GenericNode node;
  node.op = op;
  for (const Value v : inputs) {
    BOWLINE_REQUIRE(
        owns(v), "An input of {} is not a value of this graph{}.", name,
        parent != nullptr ? " (capture() brings in a value of the enclosing graph)" : "");
    node.inputs.push_back(v.index);
  }
  BOWLINE_TRY_ASSIGN(node.attributes,
                     in_context(attributes_from(op, attributes), format("While adding {}.", name)));
  for (const AttributeDim& d : node.attributes.dims()) {
    BOWLINE_TRY(declare_dim(model, d.dim));
  }
  BOWLINE_TRY(check_inputs(op_def(op), inputs.size()));
  std::vector<Value> out =
      add_outputs(node, outputs_of(op_def(op), node.attributes, inputs.size()));
  BOWLINE_TRY(add_node(model, std::move(node)));
  return out;
}

// Adds the outputs of a body.
Status GraphBuilder::State::leave(const std::vector<Value>& leaving) {
  BOWLINE_TRY(Status(status));
  BOWLINE_REQUIRE(leaving.size() == carried, "The body of a Repeat returns {} values, not {}.",
                  leaving.size(), carried);
  for (const Value v : leaving) {
    BOWLINE_REQUIRE(owns(v), "The body of a Repeat returns a value of another graph.");
    graph.outputs.push_back(v.index);
  }
  return {};
}

Result<std::vector<Value>> GraphBuilder::State::repeat(const graph::ModelState& model,
                                                       int iterations,
                                                       const std::vector<Value>& values,
                                                       const Body& body) {
  BOWLINE_REQUIRE(parent == nullptr, "A Repeat cannot be inside the body of another Repeat.");
  BOWLINE_TRY(check_repeat(iterations, static_cast<int64_t>(values.size())));
  GraphBuilder builder(std::make_unique<State>());
  State& inner = *builder.state_;
  inner.owner = owner;
  inner.parent = this;
  if (graph.name.size() + 5 <= kMaxNameBytes) {
    inner.graph.name = graph.name + ".body";
  }
  inner.id = next_graph_id();
  inner.carried = static_cast<uint32_t>(values.size());
  inner.count = iterations;
  GenericNode node;
  node.op = op_with(OpRole::repeat);
  node.repeat = std::make_shared<graph::GenericRepeat>();
  std::vector<Value> entering;
  for (const Value v : values) {
    BOWLINE_REQUIRE(owns(v), "A carried value of a Repeat is not a value of this graph.");
    node.inputs.push_back(v.index);
    GenericValue info = graph[v.index];
    info.parameters.clear();
    entering.push_back(inner.add_input(std::move(info)));
  }
  BOWLINE_TRY(inner.leave(body(builder, entering)));
  for (const Value v : inner.captured) {
    node.inputs.push_back(v.index);
  }
  RepeatAttributesT attributes;
  attributes.count = static_cast<uint32_t>(iterations);
  attributes.carried = inner.carried;
  node.attributes = Attributes::of(attributes);
  node.repeat->count = attributes.count;
  node.repeat->carried = inner.carried;
  node.repeat->body = std::make_shared<GenericGraph>(std::move(inner.graph));
  std::vector<Value> out = add_outputs(node, static_cast<int>(values.size()));
  BOWLINE_TRY(add_node(model, std::move(node)));
  return out;
}

Status GraphBuilder::State::output(std::string_view name, Value value) {
  BOWLINE_REQUIRE(
      parent == nullptr,
      "The body of a Repeat cannot call output(): its outputs are the values that it returns.");
  BOWLINE_TRY(check_new_name(output_names, name, "An output"));
  BOWLINE_REQUIRE(owns(value), "Output \"{}\" is not a value of this graph.", name);
  graph.outputs.push_back(value.index);
  graph.output_names.emplace_back(name);
  return {};
}

Status GraphBuilder::State::finish(graph::ModelState& model) {
  BOWLINE_REQUIRE(parent == nullptr,
                  "The body of a Repeat cannot call finish(): it ends when the body returns.");
  BOWLINE_REQUIRE(!graph.outputs.empty(), "Graph \"{}\" has no output.", graph.name);
  BOWLINE_TRY(graph::written_storages(graph, model.table).status());
  // Another builder may have taken the name meanwhile.
  BOWLINE_TRY(check_free(model, graph.name));
  Status finished(Code::bad_argument, "The graph is finished already.");
  params::reserve_more(model.entry_points.graphs, 1);
  model.entry_points.graphs.push_back(std::move(graph));
  status = std::move(finished);
  return {};
}

GraphBuilder::GraphBuilder(Model& model, std::string_view name) {
  guarded([&] {
    state_ = std::make_unique<State>();
    state_->owner = Internals::state(model);
    state_->graph.name = name;
    state_->id = next_graph_id();
    return true;
  });
  (void)attempt(state_.get(), [&](State&, graph::ModelState& owner) -> Status {
    BOWLINE_TRY(check_name(name, "A graph"));
    return check_free(owner, name);
  });
}

GraphBuilder::GraphBuilder(std::unique_ptr<State> body_state) : state_(std::move(body_state)) {}
GraphBuilder::~GraphBuilder() = default;

Value GraphBuilder::input(std::string_view name, DType dtype, const std::vector<GraphDim>& shape) {
  return or_none(attempt(state_.get(), [&](State& s, graph::ModelState& model) {
    return s.input(model, name, dtype, shape);
  }));
}

Value GraphBuilder::parameter(Parameter parameter) {
  return or_none(attempt(state_.get(), [&](State& s, graph::ModelState& model) {
    return s.parameter(model, ParameterList{{parameter}});
  }));
}

Value GraphBuilder::parameter(const ParameterList& list) {
  return or_none(attempt(
      state_.get(), [&](State& s, graph::ModelState& model) { return s.parameter(model, list); }));
}

Value GraphBuilder::capture(Value outer) {
  return or_none(
      attempt(state_.get(), [&](State& s, graph::ModelState&) { return s.capture(outer); }));
}

Value GraphBuilder::op(std::string_view name, const std::vector<Value>& inputs,
                       const std::vector<Attribute>& attributes) {
  const Op op = op_named(name);
  return keep_last(attempt(state_.get(),
                           [&](State& s, graph::ModelState& model) {
                             return s.op(model, op, name, inputs, attributes);
                           }),
                   [&] { return outputs_despite(op, inputs.size(), attributes); });
}

std::vector<Value> GraphBuilder::repeat(int count, const std::vector<Value>& carried,
                                        const Body& body) {
  keep_last(attempt(state_.get(),
                    [&](State& s, graph::ModelState& model) {
                      return s.repeat(model, count, carried, body);
                    }),
            [&] { return carried.size(); });
  return last_outputs();
}

// The outputs of a call, or as many empty values if it failed. Returns the first.
template <class Count>
Value GraphBuilder::keep_last(Result<std::vector<Value>> outputs, const Count& count) {
  if (state_ == nullptr) {
    return {};
  }
  auto kept = guarded([&]() -> Result<std::vector<Value>> {
    return outputs.ok() ? std::move(outputs).value() : std::vector<Value>(count());
  });
  state_->keep(kept.status());
  state_->last = kept.ok() ? std::move(kept).value() : std::vector<Value>();
  return state_->last.empty() ? Value{} : state_->last[0];
}

std::vector<Value> GraphBuilder::last_outputs() const {
  if (state_ == nullptr) {
    return {};
  }
  auto copy = guarded([&]() -> Result<std::vector<Value>> { return state_->last; });
  state_->keep(copy.status());
  return copy.ok() ? std::move(copy).value() : std::vector<Value>();
}

GraphBuilder& GraphBuilder::named(std::string_view name) {
  (void)attempt(state_.get(), [&](State& s, graph::ModelState&) -> Status {
    s.next_name = name;
    return {};
  });
  return *this;
}

void GraphBuilder::output(std::string_view name, Value value) {
  (void)attempt(state_.get(), [&](State& s, graph::ModelState&) { return s.output(name, value); });
}

Status GraphBuilder::finish() {
  return attempt(state_.get(), [](State& s, graph::ModelState& model) { return s.finish(model); });
}

}  // namespace bowline
