// GraphBuilder.
#include <exception>

#include "support.h"

namespace bowline::python {
namespace {

using namespace nb::literals;

// A builder of an entry point, or of the body of a Repeat.
struct PyBuilder {
  std::unique_ptr<GraphBuilder> own;
  GraphBuilder* builder;
};

// An attribute from a number, a text or a list. The name lives as long as the call.
Attribute attribute_of(std::string_view name, nb::handle value) {
  if (nb::isinstance<nb::bool_>(value)) {
    return Attribute(name, nb::cast<bool>(value));
  }
  if (nb::isinstance<nb::int_>(value)) {
    return Attribute(name, nb::cast<int64_t>(value));
  }
  if (nb::isinstance<nb::float_>(value)) {
    return Attribute(name, nb::cast<double>(value));
  }
  if (nb::isinstance<nb::str>(value)) {
    return Attribute(name, nb::cast<std::string>(value));
  }
  const auto list = nb::cast<nb::list>(nb::list(value));
  bool has_float = false;
  std::vector<GraphDim> dims;
  std::vector<double> reals;
  for (const nb::handle item : list) {
    if (nb::isinstance<nb::str>(item)) {
      dims.emplace_back(nb::cast<std::string>(item));
      continue;
    }
    has_float = has_float || nb::isinstance<nb::float_>(item);
    reals.push_back(nb::cast<double>(item));
    if (!has_float) {
      dims.emplace_back(nb::cast<int64_t>(item));
    }
  }
  return has_float ? Attribute(name, std::move(reals)) : Attribute(name, std::move(dims));
}

Value op(PyBuilder& b, const std::string& name, const std::vector<Value>& inputs,
         const std::string& node, const nb::kwargs& attributes) {
  std::vector<std::string> names;
  names.reserve(attributes.size());
  std::vector<Attribute> list;
  for (const auto [key, value] : attributes) {
    names.push_back(nb::cast<std::string>(key));
    list.push_back(attribute_of(names.back(), value));
  }
  if (!node.empty()) {
    b.builder->named(node);
  }
  return b.builder->op(name, inputs, list);
}

std::vector<GraphDim> dims_of(const nb::list& shape) {
  std::vector<GraphDim> out;
  for (const nb::handle dim : shape) {
    if (nb::isinstance<nb::str>(dim)) {
      out.emplace_back(nb::cast<std::string>(dim));
    } else {
      out.emplace_back(nb::cast<int64_t>(dim));
    }
  }
  return out;
}

// An exception of the body leaves this function, after the builder has ended its work.
std::vector<Value> repeat(PyBuilder& b, int count, const std::vector<Value>& carried,
                          const nb::callable& body) {
  std::exception_ptr thrown;
  const std::vector<Value> out =
      b.builder->repeat(count, carried, [&](GraphBuilder& inner, const std::vector<Value>& from) {
        try {
          const nb::object builder = nb::cast(PyBuilder{nullptr, &inner});
          return nb::cast<std::vector<Value>>(body(builder, from));
        } catch (...) {
          thrown = std::current_exception();
          return std::vector<Value>();
        }
      });
  if (thrown) {
    std::rethrow_exception(thrown);
  }
  return out;
}

}  // namespace

void add_graphs(nb::module_& module) {
  nb::class_<Value>(module, "Value", "A value in a graph: an input, a parameter or a result.");
  nb::class_<PyBuilder>(module, "GraphBuilder",
                        "Builds a graph and adds it to a model as an entry point.\n\nfinish() "
                        "raises the first error of any function.")
      .def(
          "__init__",
          [](PyBuilder* self, PyModel& model, const std::string& name) {
            auto builder = std::make_unique<GraphBuilder>(model.model, name);
            GraphBuilder* const pointer = builder.get();
            new (self) PyBuilder{std::move(builder), pointer};
          },
          "model"_a, "name"_a, nb::keep_alive<1, 2>(), "Starts an entry point with a new name.")
      .def(
          "input",
          [](PyBuilder& b, const std::string& name, const std::string& dtype,
             const nb::list& shape) {
            return b.builder->input(name, dtype_named(dtype), dims_of(shape));
          },
          "name"_a, "dtype"_a, "shape"_a,
          "Adds an input. A dimension is a size or the name of a dimension.")
      .def(
          "parameter", [](PyBuilder& b, Parameter p) { return b.builder->parameter(p); },
          "parameter"_a, "Returns the value of a parameter.")
      .def(
          "parameters",
          [](PyBuilder& b, std::vector<Parameter> list) {
            return b.builder->parameter(ParameterList{std::move(list)});
          },
          "parameters"_a,
          "In the body of a repeat: returns the parameter of the current iteration.")
      .def("op", &op, "name"_a, "inputs"_a, "node"_a = "", "attributes"_a,
           "Adds an operator and returns its first output. Attributes are keyword arguments; node "
           "is "
           "the name of the node.")
      .def(
          "last_outputs", [](PyBuilder& b) { return b.builder->last_outputs(); },
          "Returns all outputs of the last op() or repeat().")
      .def("repeat", &repeat, "count"_a, "carried"_a, "body"_a,
           "Adds a loop. body(builder, carried) returns the values for the next iteration.")
      .def(
          "capture", [](PyBuilder& b, Value v) { return b.builder->capture(v); }, "outer"_a,
          "In the body of a repeat: returns a value of the surrounding graph.")
      .def(
          "output",
          [](PyBuilder& b, const std::string& name, Value v) { b.builder->output(name, v); },
          "name"_a, "value"_a, "Makes a value an output of the entry point.")
      .def(
          "finish", [](PyBuilder& b) { check(b.builder->finish()); },
          "Adds the entry point to the model.");
}

}  // namespace bowline::python
