// Prints a recipe as C++ against bowline.h, for use in a test.
#include <algorithm>

#include "conformance/random/recipe.h"

namespace bowline::conformance::random {
namespace {

template <class Range, class Text>
std::string joined(const Range& items, const Text& text) {
  std::string out;
  for (const auto& item : items) {
    out += out.empty() ? "" : ", ";
    out += text(item);
  }
  return out;
}

std::string braced(const std::string& text) { return format("{}{}}", "{", text); }

std::string braces(std::span<const int64_t> dims) {
  return braced(joined(dims, [](int64_t d) { return format("{}", d); }));
}

std::string literal(double v) {
  const std::string text = format("{}", static_cast<float>(v));
  return text.find_first_of(".en") == text.npos ? text + ".0f" : text + "f";
}

std::string quoted(const std::string& text) { return format("\"{}\"", text); }

// Prints the value of an attribute.
struct Literal {
  std::string operator()(int64_t v) const { return format("{}", v); }
  std::string operator()(double v) const {
    const std::string text = format("{}", v);
    return text.find_first_of(".en") == text.npos ? text + ".0" : text;
  }
  std::string operator()(const std::string& v) const { return quoted(v); }
  std::string operator()(const std::vector<GraphDim>& list) const {
    const auto dim = [](const GraphDim& d) {
      return d.name.empty() ? format("{}", d.value) : quoted(d.name);
    };
    return "std::vector<GraphDim>" + braced(joined(list, dim));
  }
  std::string operator()(const std::vector<double>& list) const {
    return "std::vector<double>" + braced(joined(list, *this));
  }
  std::string operator()(const std::vector<std::string>& list) const {
    return "std::vector<std::string>" + braced(joined(list, quoted));
  }
};

std::string view_text(const View& v) {
  return format("View{}{}, {}, {}, {}}", "{", v.row_start, v.rows, braces(v.shape), v.transpose);
}

class Printer {
 public:
  Printer(const Recipe& recipe, bool as_repeat) : recipe_(recipe), as_repeat_(as_repeat) {}

  std::string print() {
    line("Model m;");
    for (size_t s = 0; s < recipe_.storages.size(); ++s) {
      line(
          format("const Parameter {} = m.parameter(\"{}\", std::vector<int64_t>{}, "
                 "Init::zeros()).value();",
                 whole(s), whole(s), braces(recipe_.storages[s].shape.dims())));
    }
    declare_parameters();
    graph("loss", recipe_.loss);
    if (!recipe_.probe.nodes.empty()) {
      graph("probe", recipe_.probe);
    }
    for (size_t p = 0; p < recipe_.parameters.size(); ++p) {
      const ParameterRow& row = recipe_.parameters[p];
      if (row.by_verb) {
        line(format("EXPECT_OK(m.tie(\"{}\", \"{}\", {}));", whole(row.storage), parameter_name(p),
                    view_text(row.view)));
      }
    }
    values();
    options();
    batches();
    return std::move(out_);
  }

 private:
  void line(const std::string& text) { out_ += std::string(indent_, ' ') + text + "\n"; }

  std::string whole(size_t storage) const {
    const auto p = declaring_parameter(recipe_, storage);
    return p ? parameter_name(*p) : storage_name(storage);
  }

  void declare_parameters() {
    for (size_t p = 0; p < recipe_.parameters.size(); ++p) {
      const ParameterRow& row = recipe_.parameters[p];
      const std::string name = parameter_name(p);
      if (declaring_parameter(recipe_, row.storage) == p) {
        continue;
      }
      const Shape& storage = recipe_.storages[row.storage].shape;
      if (row.by_verb) {
        line(
            format("const Parameter {} = m.parameter(\"{}\", std::vector<int64_t>{}, "
                   "Init::zeros()).value();",
                   name, name, braces(view_shape(row.view, storage).value().dims())));
      } else {
        line(format("const Parameter {} = m.tied_parameter(\"{}\", {}, {}).value();", name, name,
                    whole(row.storage), view_text(row.view)));
      }
    }
  }

  void graph(std::string_view name, const Graph& g) {
    line("{");
    indent_ += 2;
    line(format("GraphBuilder g(m, \"{}\");", name));
    const std::vector<std::string> outputs = nodes(g, "g", nullptr, {}, 0);
    line(format("g.output(\"{}\", {});", name, outputs[0]));
    line("EXPECT_OK(g.finish());");
    indent_ -= 2;
    line("}");
  }

  using Names = std::vector<std::vector<std::string>>;

  static std::vector<std::string> names_of(const std::vector<Ref>& refs, const Names& at) {
    std::vector<std::string> out;
    for (const Ref r : refs) {
      out.push_back(at[r.node][r.output]);
    }
    return out;
  }

  static std::string list(const std::vector<std::string>& names) {
    return braced(joined(names, [](const std::string& n) { return n; }));
  }

  // Prints the nodes into builder `b` and returns the expressions of the outputs.
  std::vector<std::string> nodes(const Graph& g, const std::string& b, const Names* outer,
                                 const std::vector<std::string>& carried, uint32_t iteration) {
    const bool inside = outer != nullptr && as_repeat_;
    Names at(g.nodes.size());
    for (size_t n = 0; n < g.nodes.size(); ++n) {
      const Node& node = g.nodes[n];
      if (node.kind == Node::Kind::carried) {
        at[n] = {carried[node.item]};
        continue;
      }
      if (node.kind == Node::Kind::capture && !inside) {
        at[n] = {(*outer)[node.outer.node][node.outer.output]};
        continue;
      }
      if (node.kind == Node::Kind::repeat && !as_repeat_) {
        at[n] = names_of(node.inputs, at);
        for (uint32_t i = 0; i < node.count; ++i) {
          at[n] = nodes(node.body[0], b, &at, at[n], i);
        }
        continue;
      }
      const std::string v = format("v{}", next_++);
      at[n] = {v};
      if (node.kind == Node::Kind::repeat) {
        repeat(node, b, v, at);
        at[n].clear();
        for (size_t o = 0; o < node.inputs.size(); ++o) {
          at[n].push_back(format("{}[{}]", v, o));
        }
        continue;
      }
      line(format("const Value {} = {};", v, expression(node, b, at, outer, inside, iteration)));
      for (size_t o = 1; o < results_of(node); ++o) {
        at[n].push_back(format("v{}", next_++));
        line(format("const Value {} = {}.last_outputs()[{}];", at[n].back(), b, o));
      }
    }
    return names_of(g.outputs, at);
  }

  void repeat(const Node& node, const std::string& b, const std::string& v, const Names& at) {
    const std::string inner = format("b{}", next_++);
    line(
        format("const auto {} = {}.repeat({}, {}, [&](GraphBuilder& {}, const "
               "std::vector<Value>& carried) {",
               v, b, node.count, list(names_of(node.inputs, at)), inner));
    indent_ += 2;
    std::vector<std::string> carried;
    for (size_t c = 0; c < node.inputs.size(); ++c) {
      carried.push_back(format("carried[{}]", c));
    }
    line(format("return std::vector<Value>{};", list(nodes(node.body[0], inner, &at, carried, 0))));
    indent_ -= 2;
    line("});");
  }

  std::string expression(const Node& node, const std::string& b, const Names& at,
                         const Names* outer, bool inside, uint32_t iteration) {
    switch (node.kind) {
      case Node::Kind::input:
        return format("{}.input(\"x{}\", DType::{}, {})", b, node.item,
                      node.classes > 0 ? "i32" : "f32", braces(node.shapes[0].dims()));
      case Node::Kind::parameter:
        if (inside) {
          return format("{}.parameter(ParameterList{}{}})", b, "{",
                        braced(joined(node.parameters, parameter_name)));
        }
        return format("{}.parameter({})", b,
                      parameter_name(node.parameters[node.parameters.size() == 1 ? 0 : iteration]));
      case Node::Kind::capture:
        return format("{}.capture({})", b, (*outer)[node.outer.node][node.outer.output]);
      default:
        return format("{}.op(\"{}\", {}{})", b, name_of(node.op), list(names_of(node.inputs, at)),
                      attributes(node.attributes));
    }
  }

  static std::string attributes(const std::vector<Attribute>& items) {
    if (items.empty()) {
      return "";
    }
    return ", " + braced(joined(items, [](const Attribute& a) {
             return braced(format("\"{}\", {}", a.name, std::visit(Literal(), a.value)));
           }));
  }

  void values() {
    line("EXPECT_OK(m.materialize(1));");
    for (size_t s = 0; s < recipe_.storages.size(); ++s) {
      line(format("EXPECT_OK(set(m, \"{}\", {}, {}));", whole(s),
                  braces(recipe_.storages[s].shape.dims()),
                  braced(joined(recipe_.storages[s].values, literal))));
      if (recipe_.storages[s].frozen) {
        line(format("EXPECT_OK(m.freeze(\"{}\"));", whole(s)));
      }
    }
  }

  void options() {
    const TrainOptions& o = recipe_.options;
    line("EXPECT_OK(m.to(device));");
    line("TrainOptions o;");
    line(format("o.optimizer.name = \"{}\";", o.optimizer.name));
    for (const auto& [name, value] : o.optimizer.settings) {
      line(format("o.optimizer.settings[\"{}\"] = {};", name, literal(static_cast<double>(value))));
    }
    line(format("o.schedule.learning_rate = {};",
                literal(static_cast<double>(o.schedule.learning_rate))));
    line(format("o.clip_norm = {};", literal(static_cast<double>(o.clip_norm))));
    line(format("o.accumulation = {};", o.accumulation));
    line(format("o.seed = {}u;", o.seed));
    line("Trainer t = Trainer::create(m, device, o).value();");
  }

  // Prints one batch of an entry point, and the call that uses it.
  void batch(const Graph& g, uint32_t number, const std::string& call) {
    std::string names;
    line("{");
    indent_ += 2;
    for (const Node& node : g.nodes) {
      if (node.kind != Node::Kind::input) {
        continue;
      }
      const bool index = node.classes > 0;
      const std::string values = joined(batch_values(recipe_, node, number), [&](double v) {
        return index ? format("{}", v) : literal(v);
      });
      line(format("std::vector<{}> x{} = {};", index ? "int32_t" : "float", node.item,
                  braced(values)));
      line(
          format("const std::vector<int64_t> d{} = {};", node.item, braces(node.shapes[0].dims())));
      names += format("{}tensor(\"x{}\", d{}, x{})", names.empty() ? "" : ", ", node.item,
                      node.item, node.item);
    }
    line(format("const std::vector<Tensor> batch = {};", braced(names)));
    line(call);
    indent_ -= 2;
    line("}");
  }

  void batches() {
    const uint32_t each = recipe_.options.accumulation;
    const uint32_t number = recipe_.steps * each;
    for (uint32_t first = 0; first < number; first += each) {
      for (uint32_t k = first; each > 1 && k < first + each; ++k) {
        batch(recipe_.loss, k, "EXPECT_OK(t.add_loss_weights(batch));");
      }
      for (uint32_t k = first; k < first + each; ++k) {
        batch(recipe_.loss, k, "EXPECT_OK(t.micro_step(batch).status());");
      }
    }
    batch(recipe_.loss, number, "EXPECT_OK(t.evaluate(batch).status());");
    if (recipe_.probe.nodes.empty()) {
      return;
    }
    const Shape& shape = recipe_.probe.shape(recipe_.probe.outputs[0]);
    line(format("std::vector<float> out({});", shape.elements()));
    line(format("const std::vector<int64_t> dims = {};", braces(shape.dims())));
    line("const Tensor outputs[] = {tensor(\"probe\", dims, out)};");
    line("Session session = Session::create(m, device, \"probe\", {}).value();");
    batch(recipe_.probe, number, "EXPECT_OK(session.run(batch, outputs));");
  }

  const Recipe& recipe_;
  bool as_repeat_;
  std::string out_;
  size_t indent_ = 2;
  int next_ = 0;
};

}  // namespace

std::string print_recipe(const Recipe& recipe, bool as_repeat) {
  return Printer(recipe, as_repeat).print();
}

}  // namespace bowline::conformance::random
