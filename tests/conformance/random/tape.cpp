#include "conformance/random/tape.h"

#include <algorithm>

namespace bowline::conformance::random {
namespace {

class Writer {
 public:
  Writer(const Recipe& recipe, bool as_repeat) : recipe_(recipe), as_repeat_(as_repeat) {}

  using Values = std::vector<std::vector<uint32_t>>;  // by node and output

  Result<std::vector<uint32_t>> write(const Graph& g, const Values* outer,
                                      const std::vector<uint32_t>& carried, uint32_t iteration) {
    Values at(g.nodes.size());
    for (size_t n = 0; n < g.nodes.size(); ++n) {
      const Node& node = g.nodes[n];
      switch (node.kind) {
        case Node::Kind::input:
          at[n] = {add({node.shapes[0], static_cast<int32_t>(n), -1, false})};
          break;
        case Node::Kind::parameter:
          at[n] = {parameter(node, iteration)};
          break;
        case Node::Kind::carried:
          at[n] = {carried[node.item]};
          break;
        case Node::Kind::capture:
          at[n] = {(*outer)[node.outer.node][node.outer.output]};
          break;
        case Node::Kind::op: {
          BOWLINE_TRY_ASSIGN(at[n], line(node, at, iteration));
          break;
        }
        case Node::Kind::repeat: {
          const std::vector<uint32_t> entering = values_of(node.inputs, at);
          const size_t lines = tape_.lines.size(), values = tape_.values.size();
          do {
            tape_.lines.resize(lines);
            tape_.values.resize(values);
            at[n] = entering;
            for (uint32_t i = 0; i < node.count; ++i) {
              BOWLINE_TRY_ASSIGN(at[n], write(node.body[0], &at, at[n], i));
            }
          } while (as_repeat_ && need_as_they_leave(entering, at[n]));
          break;
        }
      }
    }
    return values_of(g.outputs, at);
  }

  Tape take() { return std::move(tape_); }

 private:
  static std::vector<uint32_t> values_of(const std::vector<Ref>& refs, const Values& at) {
    std::vector<uint32_t> out;
    for (const Ref r : refs) {
      out.push_back(at[r.node][r.output]);
    }
    return out;
  }

  // The body of a Repeat is differentiated once, so a carried value needs a gradient if any
  // iteration needs it.
  bool need_as_they_leave(const std::vector<uint32_t>& entering,
                          const std::vector<uint32_t>& leaving) {
    bool changed = false;
    for (size_t c = 0; c < entering.size(); ++c) {
      bool& needed = tape_.values[entering[c]].needed;
      if (tape_.values[leaving[c]].needed && !needed) {
        needed = changed = true;
      }
    }
    return changed;
  }

  uint32_t add(Tape::Value value) {
    tape_.values.push_back(std::move(value));
    return static_cast<uint32_t>(tape_.values.size() - 1);
  }

  uint32_t parameter(const Node& node, uint32_t iteration) {
    const uint32_t p = node.parameters[node.parameters.size() == 1 ? 0 : iteration];
    const bool frozen = recipe_.storages[recipe_.parameters[p].storage].frozen;
    return add({node.shapes[0], -1, static_cast<int32_t>(p), !frozen});
  }

  Result<std::vector<uint32_t>> line(const Node& node, const Values& at, uint32_t iteration) {
    Tape::Line out;
    out.op = node.op;
    BOWLINE_TRY_ASSIGN(out.attributes, attributes_from(node.op, node.attributes));
    out.inputs = values_of(node.inputs, at);
    out.iteration = as_repeat_ ? iteration : 0;
    const bool needed =
        std::ranges::any_of(out.inputs, [&](uint32_t v) { return tape_.values[v].needed; });
    for (const Shape& s : node.shapes) {
      out.outputs.push_back(add({s, -1, -1, needed}));
    }
    tape_.lines.push_back(out);
    return out.outputs;
  }

  const Recipe& recipe_;
  bool as_repeat_;
  Tape tape_;
};

}  // namespace

Result<Tape> make_tape(const Recipe& recipe, const Graph& graph, bool as_repeat) {
  Writer writer(recipe, as_repeat);
  BOWLINE_TRY_ASSIGN(const std::vector<uint32_t> outputs, writer.write(graph, nullptr, {}, 0));
  Tape tape = writer.take();
  tape.outputs = outputs;
  return tape;
}

}  // namespace bowline::conformance::random
