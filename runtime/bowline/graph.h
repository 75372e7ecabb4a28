// Builds the graph of an entry point.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "bowline/model.h"
#include "bowline/status.h"
#include "bowline/tensor.h"

#pragma GCC visibility push(default)

namespace bowline {

// A value of one GraphBuilder.
struct Value {
  uint32_t index = UINT32_MAX;
  uint32_t graph = 0;
};

// An attribute of an operator, by its name in the operator reference (operators.md).
struct Attribute {
  // A text is that, or the name of an enum value, or, where a size stands, of a dim.
  using Value = std::variant<int64_t, double, std::string, std::vector<GraphDim>,
                             std::vector<double>, std::vector<std::string>>;
  std::string_view name;
  Value value;

  Attribute(std::string_view n, std::integral auto v) : name(n), value(static_cast<int64_t>(v)) {}
  Attribute(std::string_view n, std::floating_point auto v)
      : name(n), value(static_cast<double>(v)) {}
  template <std::convertible_to<std::string_view> Text>
  Attribute(std::string_view n, const Text& text)
      : name(n), value(std::string(std::string_view(text))) {}
  // What stands in braces is a list of these: {"dims", {"batch", 4}}.
  Attribute(std::string_view n, std::vector<GraphDim> list) : name(n), value(std::move(list)) {}
  template <class List>
    requires(std::same_as<List, std::vector<double>> ||
             std::same_as<List, std::vector<std::string>>)
  Attribute(std::string_view n, List list) : name(n), value(std::move(list)) {}
};

// State. A node of WriteRows writes the storage of its first input, one of BatchNorm, while
// training, those of its last two: parameters that are not trained. Who reads such a parameter
// stands in front of that node and sees the state before; who reads the node's output sees it
// after. An entry point has at most one writer per storage, whatever the ties; in the body of a
// Repeat iteration i writes entry i of a list. What breaks this is refused by finish(), by
// Model::open() and, as ties may change, when a plan is made. A run that writes bumps the versions
// of the storages; get_value(), save() and clone() see what it wrote.
//
// Adds one graph (an entry point) to a Model. The first error sticks and finish() returns it, so a
// model reads like its formulas: after an error every call returns as many values as without it,
// and none is used.
class GraphBuilder {
 public:
  GraphBuilder(Model& model, std::string_view name);
  ~GraphBuilder();
  GraphBuilder(const GraphBuilder&) = delete;
  GraphBuilder& operator=(const GraphBuilder&) = delete;

  Value input(std::string_view name, DType dtype, const std::vector<GraphDim>& shape);
  Value parameter(Parameter parameter);
  // In the body of a Repeat: the parameter of the iteration.
  Value parameter(const ParameterList& list);

  // Adds an operator by its name in the operator reference and returns its first output.
  Value op(std::string_view name, const std::vector<Value>& inputs,
           const std::vector<Attribute>& attributes = {});
  // All outputs of the last op().
  std::vector<Value> last_outputs() const;

  // Runs `body` `count` times. It maps the carried values of an iteration to those of the next;
  // values of this graph are brought in by body.capture(). Returns the carried values after the
  // last iteration.
  using Body =
      std::function<std::vector<Value>(GraphBuilder& body, const std::vector<Value>& carried)>;
  std::vector<Value> repeat(int count, const std::vector<Value>& carried, const Body& body);
  Value capture(Value outer);
  // The name of the node that the next op() adds, for messages and listings.
  GraphBuilder& named(std::string_view name);

  void output(std::string_view name, Value value);
  // Errors  bad_argument: the first thing that was wrong, with the node.
  Status finish();

 private:
  struct [[gnu::visibility("hidden")]] State;
  explicit GraphBuilder(std::unique_ptr<State> body_state);
  template <class Count>
  Value keep_last(Result<std::vector<Value>> outputs, const Count& count);
  std::unique_ptr<State> state_;
};

}  // namespace bowline

#pragma GCC visibility pop
