#include "onnx/nodes.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/escape.h"

namespace bowline::onnx {
namespace {

// Nesting depth of subgraphs and function calls.
constexpr int kMostScopes = 32;
// Limit of the names and nodes that are visited. A loop visits its body once per iteration.
constexpr size_t kMostWork = size_t{1} << 26;

// The newest supported version of each domain with its own versions. Other domains are accepted in
// any version.
struct Known {
  std::string_view domain;
  int newest;
};
constexpr Known kDomains[] = {{"", 28}, {kTraining, 1}};

std::string domain_of(const std::string& text) { return text == "ai.onnx" ? "" : text; }

std::string domain_text(std::string_view domain) {
  return domain.empty() ? "ai.onnx" : escaped(domain);
}

// Returns the operator set version of a node's domain. Errors  bad_file, unsupported.
Result<int> version_of(const Opsets& opsets, const std::string& domain) {
  const auto opset = opsets.find(domain);
  BOWLINE_REQUIRE_CODE(opset != opsets.end(), Code::bad_file,
                       "The model imports no operator set \"{}\".", domain_text(domain));
  const auto known = std::ranges::find(kDomains, domain, &Known::domain);
  const int newest = known == std::end(kDomains) ? INT32_MAX : known->newest;
  BOWLINE_REQUIRE_CODE(opset->second >= 1 && opset->second <= newest, Code::unsupported,
                       "The operator set \"{}\" has version {}. Versions 1 to {} are supported.",
                       domain_text(domain), opset->second, newest);
  return static_cast<int>(opset->second);
}

std::string function_key(const std::string& domain, const std::string& name,
                         const std::string& overload) {
  return domain_of(domain) + '\n' + name + '\n' + overload;
}

const file::AttributeProto* attribute_of(const file::NodeProto& node, std::string_view name) {
  const auto found = std::ranges::find(node.attribute(), name, &file::AttributeProto::name);
  return found == node.attribute().end() ? nullptr : &*found;
}

Result<const file::GraphProto*> graph_of(const file::NodeProto& node, std::string_view name) {
  const file::AttributeProto* a = attribute_of(node, name);
  BOWLINE_REQUIRE_CODE(a != nullptr && a->has_g(), Code::bad_file,
                       "Attribute \"{}\" is not a graph.", name);
  return &a->g();
}

// Rejects every attribute that is not in `known`, so that nothing is dropped silently.
Status require_attributes(const file::NodeProto& node, const std::vector<std::string_view>& known) {
  for (const file::AttributeProto& a : node.attribute()) {
    BOWLINE_REQUIRE_CODE(std::ranges::find(known, a.name()) != known.end(), Code::unsupported,
                         "Attribute \"{}\" is not supported for this operator.", escaped(a.name()));
  }
  return {};
}

// Collects every name that the nodes of the graph read, with those of its subgraphs.
void add_reads(const file::GraphProto& graph, std::vector<std::string>& out) {
  for (const file::NodeProto& node : graph.node()) {
    out.insert(out.end(), node.input().begin(), node.input().end());
    for (const file::AttributeProto& a : node.attribute()) {
      if (a.has_g()) {
        add_reads(a.g(), out);
      }
    }
  }
  for (const auto& o : graph.output()) {
    out.push_back(o.name());
  }
}

std::vector<std::string> reads_of(const file::NodeProto& node) {
  std::vector<std::string> out(node.input().begin(), node.input().end());
  for (const file::AttributeProto& a : node.attribute()) {
    if (a.has_g()) {
      add_reads(a.g(), out);
    }
  }
  return out;
}

bool has_references(const Nodes& nodes) {
  return std::ranges::any_of(nodes, [](const file::NodeProto& node) {
    return std::ranges::any_of(node.attribute(), [](const file::AttributeProto& a) {
      return !a.ref_attr_name().empty() || (a.has_g() && has_references(a.g().node()));
    });
  });
}

// Replaces each reference to an attribute of the function by the value of the call, or by the
// default. An attribute without either is removed.
void resolve(Nodes& nodes, const std::map<std::string, const file::AttributeProto*>& values) {
  for (file::NodeProto& node : nodes) {
    for (int i = node.attribute_size(); i-- > 0;) {
      file::AttributeProto& a = *node.mutable_attribute(i);
      if (a.has_g()) {
        resolve(*a.mutable_g()->mutable_node(), values);
      }
      if (a.ref_attr_name().empty()) {
        continue;
      }
      const auto value = values.find(a.ref_attr_name());
      if (value == values.end()) {
        node.mutable_attribute()->DeleteSubrange(i, 1);
        continue;
      }
      const std::string name = a.name();
      a = *value->second;
      a.set_name(name);
    }
  }
}

// Returns a known value with a single element. `what` names the value in the message.
Result<int64_t> known_scalar(const Term& term, std::string_view what) {
  require_known(term, what);
  BOWLINE_REQUIRE_CODE(term.elements() == 1, Code::bad_file, "{} has {} elements, not 1.", what,
                       term.elements());
  BOWLINE_REQUIRE_CODE(term.numbers()->of_batch.empty(), Code::unsupported,
                       "{} depends on the size of the batch.", what);
  return term.numbers()->integers()[0];
}

// An integer list attribute with an entry for each of `count` inputs or outputs.
Result<std::vector<int64_t>> list_for(const file::NodeProto& node, std::string_view name,
                                      size_t count) {
  const file::AttributeProto* a = attribute_of(node, name);
  if (a == nullptr || a->ints().empty()) {
    return std::vector<int64_t>(count, 0);
  }
  BOWLINE_REQUIRE_CODE(static_cast<size_t>(a->ints_size()) == count, Code::bad_file,
                       "Attribute \"{}\" has {} values, not {}.", name, a->ints_size(), count);
  return std::vector<int64_t>(a->ints().begin(), a->ints().end());
}

std::string number_text(int number, std::string_view what) {
  return fmt::format("While reading iteration {} of the {}.", number, what);
}

}  // namespace

std::string node_text(int number, const file::NodeProto& node) {
  const std::string name = node.name().empty() ? "" : fmt::format(" \"{}\"", escaped(node.name()));
  return fmt::format("node {}{} ({})", number, name, escaped(node.op_type()));
}

Result<Opsets> opsets_of(const google::protobuf::RepeatedPtrField<file::OperatorSetIdProto>& sets) {
  Opsets out;
  for (const auto& set : sets) {
    out[domain_of(set.domain())] = set.version();
  }
  BOWLINE_REQUIRE_CODE(!out.empty(), Code::bad_file, "The model names no operator set.");
  return out;
}

namespace {

// True if a Loop with this body ends only by its iteration count: the body returns the condition
// unchanged.
bool hands_on_condition(const file::GraphProto& body) {
  std::string_view name = body.output(0).name();
  for (int n = body.node_size(); n-- > 0;) {
    const file::NodeProto& node = body.node(n);
    if (node.op_type() == "Identity" && node.input_size() == 1 && node.output_size() == 1 &&
        node.output(0) == name) {
      name = node.input(0);
    }
  }
  return body.input_size() > 1 && name == body.input(1).name();
}

}  // namespace

NodeReader::NodeReader(Maker& maker, const file::ModelProto& model, const std::string& folder)
    : maker_(maker), folder_(folder) {
  for (const file::FunctionProto& f : model.functions()) {
    functions_.emplace(function_key(f.domain(), f.name(), f.overload()), &f);
  }
}

Status NodeReader::count_node() {
  BOWLINE_REQUIRE_CODE(++nodes_ <= kMostNodes, Code::over_budget,
                       "The model has more than {} nodes after loops and functions are expanded.",
                       kMostNodes);
  return {};
}

// Checks before the expansion, so that a very long loop costs no time.
Status NodeReader::check_iterations(int64_t count, const file::GraphProto& body) const {
  const int64_t in_each = std::max(body.node_size(), 1);
  BOWLINE_REQUIRE_CODE(count <= (kMostNodes - nodes_) / in_each, Code::over_budget,
                       "The {} iterations expand to more than {} nodes.", count, kMostNodes);
  return {};
}

Status NodeReader::count_work(size_t looked_at) {
  work_ += looked_at;
  BOWLINE_REQUIRE_CODE(work_ <= kMostWork, Code::over_budget,
                       "The expanded loops and functions read more than {} names.", kMostWork);
  return {};
}

Status NodeReader::survey(const Nodes& nodes, const std::vector<std::string>& outputs,
                          Scope& scope) {
  BOWLINE_TRY(count_work(static_cast<size_t>(nodes.size())));
  for (int n = 0; n < nodes.size(); ++n) {
    for (const std::string& name : nodes[n].output()) {
      BOWLINE_REQUIRE_CODE(name.empty() || scope.producers.emplace(name, n).second, Code::bad_file,
                           "Value \"{}\" is computed twice: by {} and by {}.", escaped(name),
                           node_text(scope.producers[name], nodes[scope.producers[name]]),
                           node_text(n, nodes[n]));
    }
  }
  for (const std::string& name : outputs) {
    ++scope.readers[name];
  }
  // Walks backwards. The nodes are in order; otherwise lower() rejects them.
  for (int n = nodes.size(); n-- > 0;) {
    const auto needed = [&](const std::string& name) { return scope.readers.contains(name); };
    if (std::ranges::any_of(nodes[n].output(), needed)) {
      const std::vector<std::string> reads = reads_of(nodes[n]);
      BOWLINE_TRY(count_work(reads.size()));
      for (const std::string& name : reads) {
        ++scope.readers[name];
      }
    }
  }
  return {};
}

Status NodeReader::define(const std::string& name, Term term, Scope& scope) {
  BOWLINE_REQUIRE_CODE(!name.empty(), Code::bad_file, "A value has no name.");
  BOWLINE_REQUIRE_CODE(scope.lowered.values.emplace(name, std::move(term)).second, Code::bad_file,
                       "Two values have the name \"{}\".", escaped(name));
  return {};
}

Status NodeReader::initializers(const file::GraphProto& graph, Scope& scope) {
  BOWLINE_REQUIRE_CODE(graph.sparse_initializer_size() == 0, Code::unsupported,
                       "The graph has {} sparse initializers, which are not supported.",
                       graph.sparse_initializer_size());
  BOWLINE_TRY(count_work(static_cast<size_t>(graph.initializer_size())));
  for (const file::TensorProto& t : graph.initializer()) {
    const auto readers = scope.readers.find(t.name());
    if (readers == scope.readers.end()) {
      continue;
    }
    auto known = initializers_.find(&t);
    if (known == initializers_.end()) {
      Result<ConstantTensor> numbers = numbers_of(t, folder_);
      BOWLINE_TRY(Status(numbers.status())
                      .at(fmt::format("While reading initializer \"{}\".", escaped(t.name()))));
      known = initializers_
                  .emplace(&t, maker_.weight(std::move(numbers).value(), t.name(), readers->second))
                  .first;
    }
    BOWLINE_TRY(define(t.name(), known->second, scope));
  }
  return {};
}

Result<Term> NodeReader::value(const std::string& name, const Nodes& nodes, const Scope& scope) {
  for (const Scope* s = &scope; s != nullptr; s = s->outer) {
    const auto found = s->lowered.values.find(name);
    if (found != s->lowered.values.end()) {
      return found->second;
    }
  }
  const auto by = scope.producers.find(name);
  BOWLINE_REQUIRE_CODE(
      by == scope.producers.end(), Code::bad_file,
      "The node reads \"{}\" before {} computes it: the graph has a cycle or is not "
      "in order.",
      escaped(name), node_text(by->second, nodes[by->second]));
  return Status(
      Code::bad_file,
      fmt::format("The node reads \"{}\", but no node, input or initializer has this name.",
                  escaped(name)));
}

Status NodeReader::lower_all(const Nodes& nodes, Scope& scope, std::vector<std::string>* notes) {
  for (int n = 0; n < nodes.size(); ++n) {
    const file::NodeProto& node = nodes[n];
    const std::string where = node_text(n, node);
    const bool needed = std::ranges::any_of(
        node.output(), [&](const std::string& name) { return scope.readers.contains(name); });
    if (!needed) {
      if (notes != nullptr) {
        notes->push_back(fmt::format("Left out, because no output depends on it: {}.", where));
      }
      continue;
    }
    Status status;
    try {
      status = lower(node, nodes, scope);
    } catch (const Refused& refused) {
      status = refused.status;
    }
    BOWLINE_TRY(std::move(status).at(fmt::format("While reading {}.", where)));
  }
  return {};
}

Status NodeReader::lower(const file::NodeProto& node, const Nodes& nodes, Scope& scope) {
  BOWLINE_TRY(count_node());
  Terms inputs;
  std::vector<bool> present;
  for (const std::string& name : node.input()) {
    present.push_back(!name.empty() && !scope.absent.contains(name));
    inputs.emplace_back();
    if (present.back()) {
      BOWLINE_TRY_ASSIGN(inputs.back(), value(name, nodes, scope));
    }
  }
  maker_.name(node.name().empty() && node.output_size() > 0 ? node.output(0) : node.name());
  BOWLINE_TRY_ASSIGN(const Terms outputs, outputs_of(node, inputs, present, scope));
  for (int i = 0; i < node.output_size(); ++i) {
    const std::string& name = node.output(i);
    if (!name.empty() && scope.readers.contains(name)) {
      BOWLINE_REQUIRE_CODE(static_cast<size_t>(i) < outputs.size(), Code::bad_file,
                           "The operator has no output {}.", i);
      BOWLINE_TRY(define(name, outputs[static_cast<size_t>(i)], scope));
    }
  }
  scope.lowered.nodes.push_back(&node);
  return {};
}

Result<Terms> NodeReader::outputs_of(const file::NodeProto& node, const Terms& inputs,
                                     const std::vector<bool>& present, Scope& scope) {
  const auto function =
      functions_.find(function_key(node.domain(), node.op_type(), node.overload()));
  if (function != functions_.end()) {
    return call(*function->second, node, inputs, present, scope);
  }
  if (domain_of(node.domain()).empty()) {
    if (node.op_type() == "If") {
      return branch(node, inputs, scope);
    }
    if (node.op_type() == "Loop") {
      return loop(node, inputs, present, scope);
    }
    if (node.op_type() == "Scan") {
      return scan(node, inputs, scope);
    }
  }
  return by_lowering(node, inputs, present, scope);
}

Result<Terms> NodeReader::by_lowering(const file::NodeProto& node, const Terms& inputs,
                                      const std::vector<bool>& present, Scope& scope) {
  const bool constant = node.op_type() == "Constant" && domain_of(node.domain()).empty();
  const auto known = constants_.find(&node);
  if (constant && known != constants_.end()) {
    return Terms{known->second};
  }
  const std::string domain = domain_of(node.domain());
  BOWLINE_TRY_ASSIGN(const int opset, version_of(*scope.opsets, domain));
  const Lowering& lowering = find_lowering(domain, node.op_type());
  std::vector<Readers> readers;
  for (const std::string& name : node.output()) {
    const auto count = [&](const std::map<std::string, int>& of) {
      const auto found = of.find(name);
      return name.empty() || found == of.end() ? 0 : found->second;
    };
    readers.push_back({count(scope.readers), count(scope.outputs)});
  }
  Context c(maker_, node, opset, folder_, scope.lowered, inputs, present, std::move(readers));
  c.out(0, lowering.lower(c));
  c.check_leftovers();
  if (constant) {
    constants_.emplace(&node, c.results()[0]);
  }
  return c.results();
}

Result<Terms> NodeReader::graph(const file::GraphProto& graph, const Scope& outer,
                                const Terms& inputs) {
  BOWLINE_TRY(count_node());
  BOWLINE_REQUIRE_CODE(outer.depth < kMostScopes, Code::unsupported,
                       "Graphs and functions are nested deeper than {} levels.", kMostScopes);
  BOWLINE_REQUIRE_CODE(static_cast<size_t>(graph.input_size()) == inputs.size(), Code::bad_file,
                       "The subgraph has {} inputs, not {}.", graph.input_size(), inputs.size());
  Scope scope;
  scope.outer = &outer;
  scope.opsets = outer.opsets;
  scope.depth = outer.depth + 1;
  scope.absent = outer.absent;
  std::vector<std::string> names;
  for (const auto& o : graph.output()) {
    names.push_back(o.name());
  }
  BOWLINE_TRY(survey(graph.node(), names, scope));
  BOWLINE_TRY(initializers(graph, scope));
  for (size_t i = 0; i < inputs.size(); ++i) {
    BOWLINE_TRY(define(graph.input(static_cast<int>(i)).name(), inputs[i], scope));
  }
  BOWLINE_TRY(lower_all(graph.node(), scope, nullptr));
  Terms out;
  for (const std::string& name : names) {
    BOWLINE_TRY_ASSIGN(Term term, value(name, graph.node(), scope));
    out.push_back(std::move(term));
  }
  return out;
}

Result<Terms> NodeReader::call(const file::FunctionProto& function, const file::NodeProto& node,
                               const Terms& inputs, const std::vector<bool>& present,
                               const Scope& outer) {
  BOWLINE_REQUIRE_CODE(outer.depth < kMostScopes, Code::unsupported,
                       "Graphs and functions are nested deeper than {} levels.", kMostScopes);
  BOWLINE_REQUIRE_CODE(
      inputs.size() <= static_cast<size_t>(function.input_size()) &&
          node.output_size() <= function.output_size(),
      Code::bad_file, "The function has {} inputs and {} outputs, but the call has {} and {}.",
      function.input_size(), function.output_size(), inputs.size(), node.output_size());
  std::vector<std::string_view> known(function.attribute().begin(), function.attribute().end());
  std::map<std::string, const file::AttributeProto*> values;
  for (const file::AttributeProto& a : function.attribute_proto()) {
    known.push_back(a.name());
    values[a.name()] = &a;
  }
  BOWLINE_TRY(require_attributes(node, known));
  for (const file::AttributeProto& a : node.attribute()) {
    values[a.name()] = &a;
  }
  BOWLINE_TRY(count_node());
  const Nodes* body = &function.node();
  if (has_references(*body)) {
    resolve(bodies_.emplace_back(*body), values);
    body = &bodies_.back();
  }
  if (!function_opsets_.contains(&function)) {
    BOWLINE_TRY_ASSIGN(function_opsets_[&function], onnx::opsets_of(function.opset_import()));
  }
  Scope scope;
  scope.opsets = &function_opsets_[&function];
  scope.depth = outer.depth + 1;
  const std::vector<std::string> names(function.output().begin(),
                                       function.output().begin() + node.output_size());
  BOWLINE_TRY(survey(*body, names, scope));
  for (int i = 0; i < function.input_size(); ++i) {
    const auto at = static_cast<size_t>(i);
    if (at < inputs.size() && present[at]) {
      BOWLINE_TRY(define(function.input(i), inputs[at], scope));
    } else {
      scope.absent.insert(function.input(i));
    }
  }
  BOWLINE_TRY(lower_all(*body, scope, nullptr));
  Terms out;
  for (const std::string& name : names) {
    BOWLINE_TRY_ASSIGN(Term term, value(name, *body, scope));
    out.push_back(std::move(term));
  }
  return out;
}

Result<Terms> NodeReader::branch(const file::NodeProto& node, const Terms& inputs,
                                 const Scope& scope) {
  BOWLINE_TRY(require_attributes(node, {"then_branch", "else_branch"}));
  BOWLINE_REQUIRE_CODE(inputs.size() == 1, Code::bad_file, "The node has {} inputs, not 1.",
                       inputs.size());
  BOWLINE_TRY_ASSIGN(const int64_t condition, known_scalar(inputs[0], "The condition"));
  const char* const name = condition != 0 ? "then_branch" : "else_branch";
  BOWLINE_TRY_ASSIGN(const file::GraphProto* chosen, graph_of(node, name));
  Result<Terms> out = graph(*chosen, scope, {});
  BOWLINE_TRY(Status(out.status()).at(fmt::format("While reading its {}.", name)));
  return out;
}

Result<Term> NodeReader::stacked(Terms parts, int64_t axis) {
  BOWLINE_REQUIRE_CODE(!parts.empty(), Code::unsupported,
                       "The loop has no iterations, so the shape of an output is not known.");
  const int64_t at = axis_of(axis, parts[0].rank() + 1);
  for (Term& part : parts) {
    Dims dims = part.dims;
    BOWLINE_REQUIRE_CODE(at <= static_cast<int64_t>(dims.size()), Code::bad_file,
                         "The shape of an output differs between iterations.");
    dims.insert(dims.begin() + at, 1);
    part = maker_.reshape(part, dims);
  }
  return maker_.concat(parts, at);
}

Result<Terms> NodeReader::loop(const file::NodeProto& node, const Terms& inputs,
                               const std::vector<bool>& present, const Scope& scope) {
  BOWLINE_TRY(require_attributes(node, {"body"}));
  BOWLINE_TRY_ASSIGN(const file::GraphProto* body, graph_of(node, "body"));
  BOWLINE_REQUIRE_CODE(inputs.size() >= 2, Code::bad_file,
                       "The node has {} inputs, but needs at least 2.", inputs.size());
  const size_t carried = inputs.size() - 2;
  int64_t most = INT64_MAX;
  if (present[0]) {
    BOWLINE_TRY_ASSIGN(most, known_scalar(inputs[0], "The number of iterations"));
  }
  int64_t goes_on = 1;
  if (present[1]) {
    BOWLINE_TRY_ASSIGN(goes_on, known_scalar(inputs[1], "The condition"));
  }
  const int outputs = body->output_size();
  BOWLINE_REQUIRE_CODE(outputs >= 1 + static_cast<int>(carried), Code::bad_file,
                       "The subgraph has {} outputs, fewer than {}.", outputs, 1 + carried);
  if (goes_on != 0 && hands_on_condition(*body)) {
    BOWLINE_TRY(check_iterations(most, *body));
  }
  Terms state(inputs.begin() + 2, inputs.end());
  std::vector<Terms> parts(static_cast<size_t>(outputs) - 1 - carried);
  for (int64_t i = 0; i < most && goes_on != 0; ++i) {
    BOWLINE_TRY(count_node());
    Terms in = {maker_.integers(DType::i64, {}, {i}), maker_.integers(DType::boolean, {}, {1})};
    in.insert(in.end(), state.begin(), state.end());
    Result<Terms> read = graph(*body, scope, in);
    BOWLINE_TRY(Status(read.status()).at(number_text(static_cast<int>(i), "loop")));
    const Terms& out = read.value();
    const bool last = present[0] && i + 1 == most;
    if (!last) {
      BOWLINE_TRY_ASSIGN(goes_on, known_scalar(out[0], "The loop condition"));
    }
    state.assign(out.begin() + 1, out.begin() + 1 + static_cast<std::ptrdiff_t>(carried));
    for (size_t k = 0; k < parts.size(); ++k) {
      parts[k].push_back(out[1 + carried + k]);
    }
  }
  for (size_t k = 0; k < parts.size(); ++k) {
    const auto at = static_cast<int>(carried + k);
    const bool read = at < node.output_size() && scope.readers.contains(node.output(at));
    state.emplace_back();
    if (read) {
      BOWLINE_TRY_ASSIGN(state.back(), stacked(std::move(parts[k]), 0));
    }
  }
  return state;
}

Result<Terms> NodeReader::scan(const file::NodeProto& node, const Terms& inputs,
                               const Scope& scope) {
  BOWLINE_TRY(require_attributes(
      node, {"body", "num_scan_inputs", "scan_input_axes", "scan_input_directions",
             "scan_output_axes", "scan_output_directions"}));
  BOWLINE_TRY_ASSIGN(const int opset, version_of(*scope.opsets, ""));
  BOWLINE_REQUIRE_CODE(opset >= 9, Code::unsupported,
                       "Scan of operator set 8 (with batches) is not supported.");
  BOWLINE_TRY_ASSIGN(const file::GraphProto* body, graph_of(node, "body"));
  const file::AttributeProto* a = attribute_of(node, "num_scan_inputs");
  const int64_t scanned = a == nullptr ? 0 : a->i();
  BOWLINE_REQUIRE_CODE(
      scanned >= 1 && scanned <= static_cast<int64_t>(inputs.size()), Code::bad_file,
      "The attribute num_scan_inputs is {}, but the node has {} inputs.", scanned, inputs.size());
  const size_t carried = inputs.size() - static_cast<size_t>(scanned);
  const auto outputs = static_cast<size_t>(body->output_size());
  BOWLINE_REQUIRE_CODE(outputs >= carried, Code::bad_file,
                       "The subgraph has {} outputs, fewer than {}.", outputs, carried);
  const auto count = static_cast<size_t>(scanned);
  BOWLINE_TRY_ASSIGN(const auto in_axes, list_for(node, "scan_input_axes", count));
  BOWLINE_TRY_ASSIGN(const auto in_back, list_for(node, "scan_input_directions", count));
  BOWLINE_TRY_ASSIGN(const auto out_axes, list_for(node, "scan_output_axes", outputs - carried));
  BOWLINE_TRY_ASSIGN(const auto out_back,
                     list_for(node, "scan_output_directions", outputs - carried));
  std::vector<int64_t> axes;
  int64_t length = -1;
  for (size_t k = 0; k < count; ++k) {
    const Term& x = inputs[carried + k];
    const int64_t axis = axis_of(in_axes[k], x.rank());
    axes.push_back(axis);
    const int64_t dim = x.dims[static_cast<size_t>(axis)];
    BOWLINE_REQUIRE_CODE(length < 0 || dim == length, Code::bad_file,
                         "The scan inputs have different lengths ({} and {}).", length, dim);
    length = dim;
  }
  Terms state(inputs.begin(), inputs.begin() + static_cast<std::ptrdiff_t>(carried));
  std::vector<Terms> parts(outputs - carried);
  BOWLINE_TRY(check_iterations(length, *body));
  for (int64_t i = 0; i < length; ++i) {
    BOWLINE_TRY(count_node());
    Terms in = state;
    for (size_t k = 0; k < count; ++k) {
      const Term& x = inputs[carried + k];
      const Term part = maker_.slice(x, axes[k], in_back[k] != 0 ? length - 1 - i : i, 1);
      Dims dims = part.dims;
      dims.erase(dims.begin() + axes[k]);
      in.push_back(maker_.reshape(part, dims));
    }
    Result<Terms> read = graph(*body, scope, in);
    BOWLINE_TRY(Status(read.status()).at(number_text(static_cast<int>(i), "scan")));
    const Terms& out = read.value();
    state.assign(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(carried));
    for (size_t k = 0; k < parts.size(); ++k) {
      parts[k].push_back(out[carried + k]);
    }
  }
  for (size_t k = 0; k < parts.size(); ++k) {
    const auto at = static_cast<int>(carried + k);
    state.emplace_back();
    if (at < node.output_size() && scope.readers.contains(node.output(at))) {
      if (out_back[k] != 0) {
        std::ranges::reverse(parts[k]);
      }
      BOWLINE_TRY_ASSIGN(state.back(), stacked(std::move(parts[k]), out_axes[k]));
    }
  }
  return state;
}

}  // namespace bowline::onnx
