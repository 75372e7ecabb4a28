/// \file
/// GraphBuilder: adds an entry point to a model.
///
/// An example, one layer:
///
///     GraphBuilder g(model, "forward");
///     const Value x = g.input("x", DType::f32, {"batch", 4});
///     g.output("y", g.op("Linear", {x, g.parameter(weight), g.parameter(bias)}));
///     const Status status = g.finish();
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

/// A value in the graph of one GraphBuilder: an input, a parameter or a result of an operator.
struct Value {
  uint32_t index = UINT32_MAX;
  uint32_t graph = 0;
};

/// An attribute of an operator. operators.md lists the attributes of each operator.
///
/// Braces make a list of integers and dimension names: {"dims", {"batch", 4}}. For a list of floats
/// or strings, write std::vector<double>{...} or std::vector<std::string>{...}.
struct Attribute {
  /// A string is a text, the name of an enum value, or (for a size) the name of a dimension.
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
  Attribute(std::string_view n, std::vector<GraphDim> list) : name(n), value(std::move(list)) {}
  template <class List>
    requires(std::same_as<List, std::vector<double>> ||
             std::same_as<List, std::vector<std::string>>)
  Attribute(std::string_view n, List list) : name(n), value(std::move(list)) {}
};

/// Builds a graph and adds it to a model as an entry point.
///
/// Check for errors only after finish(): it returns the first error of the builder. After an error,
/// the other functions do nothing, and their return values have no meaning.
///
/// **State.** Some operators write to a parameter: WriteRows to a kv_cache, BatchNorm to running
/// statistics while training. A node that reads the parameter sees the old values. A node that
/// reads the output of the writing node sees the new values. In an entry point, a storage has at
/// most one writing node. In the body of a Repeat, each iteration must write to its own storage:
/// use a ParameterList.
class GraphBuilder {
 public:
  /// Starts an entry point with a new name. `model` must outlive the builder.
  GraphBuilder(Model& model, std::string_view name);
  ~GraphBuilder();
  GraphBuilder(const GraphBuilder&) = delete;
  GraphBuilder& operator=(const GraphBuilder&) = delete;

  /// Adds an input. A dimension is a size or a name. Session::run() finds the input by `name`.
  Value input(std::string_view name, DType dtype, const std::vector<GraphDim>& shape);

  /// Returns the value of a parameter.
  Value parameter(Parameter parameter);

  /// In the body of a Repeat: returns the value of the parameter of the current iteration.
  /// `list` must have one parameter per iteration.
  Value parameter(const ParameterList& list);

  /// Adds an operator and returns its first output.
  ///
  /// operators.md lists the names of the operators, and the default values of attributes.
  Value op(std::string_view name, const std::vector<Value>& inputs,
           const std::vector<Attribute>& attributes = {});

  /// Returns all outputs of the last op() or repeat().
  std::vector<Value> last_outputs() const;

  /// A function that builds the body of a Repeat.
  ///
  /// `carried` are the values from the previous iteration. The function adds operators to `body`
  /// and returns the values for the next iteration.
  using Body =
      std::function<std::vector<Value>(GraphBuilder& body, const std::vector<Value>& carried)>;

  /// Adds a loop of `count` iterations and returns the values of the last iteration.
  ///
  /// `carried` are the values for the first iteration. `body` is called once, during this call. It
  /// must return as many values as it gets, with the same dtypes and shapes. Loops do not nest.
  std::vector<Value> repeat(int count, const std::vector<Value>& carried, const Body& body);

  /// In the body of a Repeat: returns a value of the surrounding graph for use in the body.
  Value capture(Value outer);

  /// Sets the name of the node that the next op() adds. Messages and listings show it.
  GraphBuilder& named(std::string_view name);

  /// Makes a value an output of the entry point.
  void output(std::string_view name, Value value);

  /// Adds the entry point to the model. Call it once. Without this call, the model stays unchanged.
  ///
  /// Errors:
  /// - bad_argument: the first error of any function of this builder. The message names the node.
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
