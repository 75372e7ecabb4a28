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

std::string function_key(const std::string& domain, const std::string& name,
                         const std::string& overload) {
  return domain_of(domain) + '\n' + name + '\n' + overload;
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

}  // namespace

int version_of(const Opsets& opsets, const std::string& domain) {
  const auto opset = opsets.find(domain);
  require(opset != opsets.end(), "The model imports no operator set \"{}\".", domain_text(domain));
  const auto known = std::ranges::find(kDomains, domain, &Known::domain);
  const int newest = known == std::end(kDomains) ? INT32_MAX : known->newest;
  support(opset->second >= 1 && opset->second <= newest,
          "The operator set \"{}\" has version {}. Versions 1 to {} are supported.",
          domain_text(domain), opset->second, newest);
  return static_cast<int>(opset->second);
}

void require_attributes(const file::NodeProto& node, const std::vector<std::string_view>& known) {
  for (const file::AttributeProto& a : node.attribute()) {
    support(std::ranges::find(known, a.name()) != known.end(),
            "Attribute \"{}\" is not supported for this operator.", escaped(a.name()));
  }
}

std::string node_text(int number, const file::NodeProto& node) {
  const std::string name = node.name().empty() ? "" : fmt::format(" \"{}\"", escaped(node.name()));
  return fmt::format("node {}{} ({})", number, name, escaped(node.op_type()));
}

Opsets opsets_of(const google::protobuf::RepeatedPtrField<file::OperatorSetIdProto>& sets) {
  Opsets out;
  for (const auto& set : sets) {
    out[domain_of(set.domain())] = set.version();
  }
  require(!out.empty(), "The model names no operator set.");
  return out;
}

NodeReader::NodeReader(Maker& maker, const file::ModelProto& model, const std::string& folder,
                       const import::Progress& progress)
    : maker_(maker), folder_(folder), progress_(progress) {
  for (const file::FunctionProto& f : model.functions()) {
    functions_.emplace(function_key(f.domain(), f.name(), f.overload()), &f);
  }
}

void NodeReader::count_node() {
  within_budget(++nodes_ <= kMostNodes,
                "The model has more than {} nodes after loops and functions are expanded.",
                kMostNodes);
  require(progress_.at(ImportProgress::Part::nodes, node_, main_nodes_));
}

// Checks before the expansion, so that a very long loop costs no time.
void NodeReader::check_iterations(int64_t count, const file::GraphProto& body) const {
  const int64_t in_each = std::max(body.node_size(), 1);
  within_budget(count <= (kMostNodes - nodes_) / in_each,
                "The {} iterations expand to more than {} nodes.", count, kMostNodes);
}

void NodeReader::count_work(size_t looked_at) {
  work_ += looked_at;
  within_budget(work_ <= kMostWork, "The expanded loops and functions read more than {} names.",
                kMostWork);
}

void NodeReader::survey(const Nodes& nodes, const std::vector<std::string>& outputs, Scope& scope) {
  count_work(static_cast<size_t>(nodes.size()));
  for (int n = 0; n < nodes.size(); ++n) {
    for (const std::string& name : nodes[n].output()) {
      const auto by = scope.producers.find(name);
      if (by != scope.producers.end()) {
        require(false, "Value \"{}\" is computed twice: by {} and by {}.", escaped(name),
                node_text(by->second, nodes[by->second]), node_text(n, nodes[n]));
      }
      if (!name.empty()) {
        scope.producers.emplace(name, n);
      }
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
      count_work(reads.size());
      for (const std::string& name : reads) {
        ++scope.readers[name];
      }
    }
  }
}

void NodeReader::define(const std::string& name, Term term, Scope& scope) {
  require(!name.empty(), "A value has no name.");
  require(scope.lowered.values.emplace(name, std::move(term)).second,
          "Two values have the name \"{}\".", escaped(name));
}

void NodeReader::initializers(const file::GraphProto& graph, Scope& scope) {
  support(graph.sparse_initializer_size() == 0,
          "The graph has {} sparse initializers, which are not supported.",
          graph.sparse_initializer_size());
  count_work(static_cast<size_t>(graph.initializer_size()));
  uint64_t done = 0;
  for (const file::TensorProto& t : graph.initializer()) {
    require(progress_.at(ImportProgress::Part::tensors, done++,
                         static_cast<uint64_t>(graph.initializer_size())));
    const auto readers = scope.readers.find(t.name());
    if (readers == scope.readers.end()) {
      continue;
    }
    auto known = initializers_.find(&t);
    if (known == initializers_.end()) {
      ConstantTensor numbers =
          located(fmt::format("While reading initializer \"{}\".", escaped(t.name())),
                  [&] { return required(numbers_of(t, folder_)); });
      known =
          initializers_.emplace(&t, maker_.weight(std::move(numbers), t.name(), readers->second))
              .first;
    }
    define(t.name(), known->second, scope);
  }
}

Term NodeReader::value(const std::string& name, const Nodes& nodes, const Scope& scope) {
  for (const Scope* s = &scope; s != nullptr; s = s->outer) {
    const auto found = s->lowered.values.find(name);
    if (found != s->lowered.values.end()) {
      return found->second;
    }
  }
  if (const auto by = scope.producers.find(name); by != scope.producers.end()) {
    require(
        false,
        "The node reads \"{}\" before {} computes it: the graph has a cycle or is not in order.",
        escaped(name), node_text(by->second, nodes[by->second]));
  }
  throw Refused{
      Status(Code::bad_file,
             fmt::format("The node reads \"{}\", but no node, input or initializer has this name.",
                         escaped(name)))};
}

void NodeReader::lower_all(const Nodes& nodes, Scope& scope, std::vector<std::string>* notes) {
  for (int n = 0; n < nodes.size(); ++n) {
    if (scope.depth == 0) {
      node_ = static_cast<uint64_t>(n);
      main_nodes_ = static_cast<uint64_t>(nodes.size());
    }
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
    located(fmt::format("While reading {}.", where), [&] { lower(node, nodes, scope); });
  }
}

void NodeReader::lower(const file::NodeProto& node, const Nodes& nodes, Scope& scope) {
  count_node();
  Terms inputs;
  for (const std::string& name : node.input()) {
    const bool missing = name.empty() || scope.absent.contains(name);
    inputs.push_back(missing ? Term() : value(name, nodes, scope));
  }
  maker_.name(node.name().empty() && node.output_size() > 0 ? node.output(0) : node.name());
  const Terms outputs = outputs_of(node, inputs, scope);
  for (int i = 0; i < node.output_size(); ++i) {
    const std::string& name = node.output(i);
    if (!name.empty() && scope.readers.contains(name)) {
      require(static_cast<size_t>(i) < outputs.size(), "The operator has no output {}.", i);
      define(name, outputs[static_cast<size_t>(i)], scope);
    }
  }
  scope.lowered.nodes.push_back(&node);
}

Terms NodeReader::outputs_of(const file::NodeProto& node, const Terms& inputs, Scope& scope) {
  const auto function =
      functions_.find(function_key(node.domain(), node.op_type(), node.overload()));
  if (function != functions_.end()) {
    return call(*function->second, node, inputs, scope);
  }
  if (domain_of(node.domain()).empty()) {
    if (node.op_type() == "If") {
      return branch(node, inputs, scope);
    }
    if (node.op_type() == "Loop") {
      return loop(node, inputs, scope);
    }
    if (node.op_type() == "Scan") {
      return scan(node, inputs, scope);
    }
  }
  return by_lowering(node, inputs, scope);
}

Terms NodeReader::by_lowering(const file::NodeProto& node, const Terms& inputs, Scope& scope) {
  const bool constant = node.op_type() == "Constant" && domain_of(node.domain()).empty();
  const auto known = constants_.find(&node);
  if (constant && known != constants_.end()) {
    return Terms{known->second};
  }
  const std::string domain = domain_of(node.domain());
  const int opset = version_of(*scope.opsets, domain);
  const Lowering& lowering = find_lowering(domain, node.op_type());
  std::vector<Readers> readers;
  for (const std::string& name : node.output()) {
    const auto count = [&](const std::map<std::string, int>& of) {
      const auto found = of.find(name);
      return name.empty() || found == of.end() ? 0 : found->second;
    };
    readers.push_back({count(scope.readers), count(scope.outputs)});
  }
  Context c(maker_, node, opset, folder_, scope.lowered, inputs, std::move(readers));
  c.out(0, lowering.lower(c));
  c.check_leftovers();
  if (constant) {
    constants_.emplace(&node, c.results()[0]);
  }
  return c.results();
}

Terms NodeReader::lowered(const Nodes& nodes, const std::vector<std::string>& names, Scope& scope) {
  lower_all(nodes, scope, nullptr);
  Terms out;
  for (const std::string& name : names) {
    out.push_back(value(name, nodes, scope));
  }
  return out;
}

Terms NodeReader::graph(const file::GraphProto& graph, const Scope& outer, const Terms& inputs) {
  count_node();
  support(outer.depth < kMostScopes, "Graphs and functions are nested deeper than {} levels.",
          kMostScopes);
  require(static_cast<size_t>(graph.input_size()) == inputs.size(),
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
  survey(graph.node(), names, scope);
  initializers(graph, scope);
  for (size_t i = 0; i < inputs.size(); ++i) {
    define(graph.input(static_cast<int>(i)).name(), inputs[i], scope);
  }
  return lowered(graph.node(), names, scope);
}

Terms NodeReader::call(const file::FunctionProto& function, const file::NodeProto& node,
                       const Terms& inputs, const Scope& outer) {
  support(outer.depth < kMostScopes, "Graphs and functions are nested deeper than {} levels.",
          kMostScopes);
  require(inputs.size() <= static_cast<size_t>(function.input_size()) &&
              node.output_size() <= function.output_size(),
          "The function has {} inputs and {} outputs, but the call has {} and {}.",
          function.input_size(), function.output_size(), inputs.size(), node.output_size());
  std::vector<std::string_view> known(function.attribute().begin(), function.attribute().end());
  std::map<std::string, const file::AttributeProto*> values;
  for (const file::AttributeProto& a : function.attribute_proto()) {
    known.push_back(a.name());
    values[a.name()] = &a;
  }
  require_attributes(node, known);
  for (const file::AttributeProto& a : node.attribute()) {
    values[a.name()] = &a;
  }
  count_node();
  const Nodes* body = &function.node();
  if (has_references(*body)) {
    resolve(bodies_.emplace_back(*body), values);
    body = &bodies_.back();
  }
  if (!function_opsets_.contains(&function)) {
    function_opsets_[&function] = onnx::opsets_of(function.opset_import());
  }
  Scope scope;
  scope.opsets = &function_opsets_[&function];
  scope.depth = outer.depth + 1;
  const std::vector<std::string> names(function.output().begin(),
                                       function.output().begin() + node.output_size());
  survey(*body, names, scope);
  for (int i = 0; i < function.input_size(); ++i) {
    const auto at = static_cast<size_t>(i);
    if (at < inputs.size() && inputs[at]) {
      define(function.input(i), inputs[at], scope);
    } else {
      scope.absent.insert(function.input(i));
    }
  }
  return lowered(*body, names, scope);
}

}  // namespace bowline::onnx
