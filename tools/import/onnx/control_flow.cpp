// If, Loop and Scan, which are expanded in place.
#include <fmt/format.h>

#include <algorithm>

#include "onnx/nodes.h"

namespace bowline::onnx {
namespace {

const file::AttributeProto* attribute_of(const file::NodeProto& node, std::string_view name) {
  const auto found = std::ranges::find(node.attribute(), name, &file::AttributeProto::name);
  return found == node.attribute().end() ? nullptr : &*found;
}

const file::GraphProto* graph_of(const file::NodeProto& node, std::string_view name) {
  const file::AttributeProto* a = attribute_of(node, name);
  require(a != nullptr && a->has_g(), "Attribute \"{}\" is not a graph.", name);
  return &a->g();
}

// Returns a known value with a single element. `what` names the value in the message.
int64_t known_scalar(const Term& term, std::string_view what) {
  require_known(term, what);
  require(term.elements() == 1, "{} has {} elements, not 1.", what, term.elements());
  support(term.numbers()->of_batch.empty(), "{} depends on the size of the batch.", what);
  return term.numbers()->integers()[0];
}

// An integer list attribute with an entry for each of `count` inputs or outputs.
std::vector<int64_t> list_for(const file::NodeProto& node, std::string_view name, size_t count) {
  const file::AttributeProto* a = attribute_of(node, name);
  if (a == nullptr || a->ints().empty()) {
    return std::vector<int64_t>(count, 0);
  }
  require(static_cast<size_t>(a->ints_size()) == count, "Attribute \"{}\" has {} values, not {}.",
          name, a->ints_size(), count);
  return std::vector<int64_t>(a->ints().begin(), a->ints().end());
}

std::string number_text(int64_t number, std::string_view what) {
  return fmt::format("While reading iteration {} of the {}.", number, what);
}

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

Terms NodeReader::branch(const file::NodeProto& node, const Terms& inputs, const Scope& scope) {
  require_attributes(node, {"then_branch", "else_branch"});
  require(inputs.size() == 1, "The node has {} inputs, not 1.", inputs.size());
  const int64_t condition = known_scalar(inputs[0], "The condition");
  const char* const name = condition != 0 ? "then_branch" : "else_branch";
  const file::GraphProto* chosen = graph_of(node, name);
  return located(fmt::format("While reading its {}.", name),
                 [&] { return graph(*chosen, scope, {}); });
}

void Iterations::take(std::span<const Term> outputs) {
  const auto carried = outputs.first(state.size()), rest = outputs.subspan(state.size());
  state.assign(carried.begin(), carried.end());
  for (size_t k = 0; k < parts.size(); ++k) {
    parts[k].push_back(rest[k]);
  }
}

Terms NodeReader::outputs_of(const file::NodeProto& node, const Scope& scope, Iterations iterations,
                             const std::vector<int64_t>& axes) {
  Terms out = std::move(iterations.state);
  for (size_t k = 0; k < iterations.parts.size(); ++k) {
    Terms& parts = iterations.parts[k];
    const auto at = static_cast<int>(out.size());
    out.emplace_back();
    if (at >= node.output_size() || !scope.readers.contains(node.output(at))) {
      continue;
    }
    support(!parts.empty(), "The loop has no iterations, so the shape of an output is not known.");
    const int64_t axis = axis_of(axes[k], parts[0].rank() + 1);
    for (const Term& part : parts) {
      require(axis <= static_cast<int64_t>(part.rank()),
              "The shape of an output differs between iterations.");
    }
    out.back() = maker_.stack(std::move(parts), axis);
  }
  return out;
}

Terms NodeReader::loop(const file::NodeProto& node, const Terms& inputs, const Scope& scope) {
  require_attributes(node, {"body"});
  const file::GraphProto* body = graph_of(node, "body");
  require(inputs.size() >= 2, "The node has {} inputs, but needs at least 2.", inputs.size());
  const size_t carried = inputs.size() - 2;
  const int64_t most = inputs[0] ? known_scalar(inputs[0], "The number of iterations") : INT64_MAX;
  int64_t goes_on = inputs[1] ? known_scalar(inputs[1], "The condition") : 1;
  const int outputs = body->output_size();
  require(outputs >= 1 + static_cast<int>(carried), "The subgraph has {} outputs, fewer than {}.",
          outputs, 1 + carried);
  if (goes_on != 0 && hands_on_condition(*body)) {
    check_iterations(most, *body);
  }
  Iterations made{{inputs.begin() + 2, inputs.end()},
                  std::vector<Terms>(static_cast<size_t>(outputs) - 1 - carried)};
  for (int64_t i = 0; i < most && goes_on != 0; ++i) {
    count_node();
    Terms in = {maker_.integers(DType::i64, {}, {i}), maker_.integers(DType::boolean, {}, {1})};
    in.insert(in.end(), made.state.begin(), made.state.end());
    const Terms out = located(number_text(i, "loop"), [&] { return graph(*body, scope, in); });
    const bool last = inputs[0] && i + 1 == most;
    goes_on = last ? goes_on : known_scalar(out[0], "The loop condition");
    made.take(std::span(out).subspan(1));
  }
  return outputs_of(node, scope, made, std::vector<int64_t>(made.parts.size(), 0));
}

Terms NodeReader::scan(const file::NodeProto& node, const Terms& inputs, const Scope& scope) {
  require_attributes(node, {"body", "num_scan_inputs", "scan_input_axes", "scan_input_directions",
                            "scan_output_axes", "scan_output_directions"});
  const int opset = version_of(*scope.opsets, "");
  support(opset >= 9, "Scan of operator set 8 (with batches) is not supported.");
  const file::GraphProto* body = graph_of(node, "body");
  const file::AttributeProto* a = attribute_of(node, "num_scan_inputs");
  const int64_t scanned = a == nullptr ? 0 : a->i();
  require(scanned >= 1 && scanned <= static_cast<int64_t>(inputs.size()),
          "The attribute num_scan_inputs is {}, but the node has {} inputs.", scanned,
          inputs.size());
  const size_t carried = inputs.size() - static_cast<size_t>(scanned);
  const auto outputs = static_cast<size_t>(body->output_size());
  require(outputs >= carried, "The subgraph has {} outputs, fewer than {}.", outputs, carried);
  const auto count = static_cast<size_t>(scanned);
  const auto in_axes = list_for(node, "scan_input_axes", count);
  const auto in_back = list_for(node, "scan_input_directions", count);
  const auto out_axes = list_for(node, "scan_output_axes", outputs - carried);
  const auto out_back = list_for(node, "scan_output_directions", outputs - carried);
  std::vector<int64_t> axes;
  int64_t length = -1;
  for (size_t k = 0; k < count; ++k) {
    const Term& x = inputs[carried + k];
    const int64_t axis = axis_of(in_axes[k], x.rank());
    axes.push_back(axis);
    const int64_t dim = x.dims[axis];
    require(length < 0 || dim == length, "The scan inputs have different lengths ({} and {}).",
            length, dim);
    length = dim;
  }
  Iterations made{{inputs.begin(), inputs.end() - scanned}, std::vector<Terms>(outputs - carried)};
  check_iterations(length, *body);
  for (int64_t i = 0; i < length; ++i) {
    count_node();
    Terms in = made.state;
    for (size_t k = 0; k < count; ++k) {
      in.push_back(maker_.at(inputs[carried + k], axes[k], in_back[k] != 0 ? length - 1 - i : i));
    }
    const Terms out = located(number_text(i, "scan"), [&] { return graph(*body, scope, in); });
    made.take(out);
  }
  for (size_t k = 0; k < made.parts.size(); ++k) {
    if (out_back[k] != 0) {
      std::ranges::reverse(made.parts[k]);
    }
  }
  return outputs_of(node, scope, made, out_axes);
}

}  // namespace bowline::onnx
