#include "inspect/graph_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "common/html.h"
#include "common/npy.h"
#include "common/page.h"
#include "common/strings.h"

namespace bowline::command {
namespace {

constexpr size_t kMostCharacters = 160;  // of the attributes of a node

std::string shape_of(const std::vector<GraphDim>& dims) {
  const auto text = [](const GraphDim& d) {
    return d.name.empty() ? std::to_string(d.value) : d.name;
  };
  return "[" + joined(dims, text, ",") + "]";
}

// The name of each value as HTML, by value number.
using Names = std::map<uint32_t, std::string>;

// A box of the graph.
struct Box {
  std::string_view kind = "node";  // class of the style sheet
  std::string id = {};
  std::string op = {};
  std::string text = {};
  std::string operands = {};  // HTML
  std::string body = {};      // HTML of the boxes inside
};

std::string box_html(const Box& b) {
  return fmt::format("<li class='{}'{}><span class='op'>{}</span> {}{}{}</li>\n", b.kind,
                     b.id.empty() ? "" : fmt::format(" id='{}'", b.id), html_text(b.op),
                     html_text(shortened(b.text, kMostCharacters)),
                     b.operands.empty() ? "" : "<p class='operands'>" + b.operands + "</p>",
                     b.body.empty() ? "" : "\n<ol>\n" + b.body + "</ol>");
}

class EntryPointGraph {
 public:
  EntryPointGraph(const ModelInfo& info, const std::vector<size_t>& names_of, size_t number)
      : info_(info),
        names_of_(names_of),
        e_(info.entry_points[number]),
        id_(fmt::format("e{}", number)) {}

  std::string html() const {
    Names names;
    std::string out = "<ol class='graph'>\n";
    for (size_t i = 0; i < e_.inputs.size(); ++i) {
      const InputInfo& input = e_.inputs[i];
      const std::string id = fmt::format("{}i{}", id_, i);
      names[input.value] = link_html(id, "input " + input.name);
      out += box_html({.kind = "node port",
                       .id = id,
                       .op = "input",
                       .text = fmt::format("{} {}{}", input.name, std::string(name_of(input.dtype)),
                                           shape_of(input.dims))});
    }
    out += nodes(e_.nodes, id_, "", names);
    for (const OutputInfo& output : e_.outputs) {
      out +=
          box_html({.kind = "node port",
                    .op = "output",
                    .text = fmt::format("{} {}{}", output.name, std::string(name_of(output.dtype)),
                                        output.shape ? shape_text(*output.shape) : ""),
                    .operands = "from " + name_in(names, output.value)});
    }
    return out + "</ol>\n";
  }

 private:
  static std::string name_in(const Names& names, uint32_t value) {
    const auto found = names.find(value);
    return found == names.end() ? fmt::format("value {}", value) : found->second;
  }

  // `path` is the number of the enclosing Repeat, followed by a dot.
  std::string nodes(const std::vector<NodeInfo>& all, const std::string& id,
                    const std::string& path, Names& names) const {
    std::string out;
    for (size_t i = 0; i < all.size(); ++i) {
      const NodeInfo& node = all[i];
      const std::string own = fmt::format("{}n{}", id, i);
      const std::string number = fmt::format("{}{}", path, i);
      const std::string sources =
          joined(node.inputs, [&](const NodeValueInfo& v) { return source(v, names); });
      Box box{.id = own,
              .op = number + " " + node.op,
              .text = joined(
                  node.attributes, [](const auto& a) { return a.first + "=" + a.second; }, " "),
              .operands = sources.empty() ? "" : "reads " + sources};
      if (!node.body.empty()) {
        box.kind = "repeat";
        box.op += fmt::format(" {} times", grouped(node.count));
        box.body = body(node, own, number + ".", names);
      }
      box.text = node.name + (node.name.empty() ? "" : " ") + box.text;
      out += box_html(box);
      for (size_t k = 0; k < node.outputs.size(); ++k) {
        names[node.outputs[k].value] = link_html(
            own, fmt::format("node {}{}", number, k == 0 ? "" : fmt::format(", output {}", k)));
      }
    }
    return out;
  }

  // The boxes inside a Repeat.
  std::string body(const NodeInfo& node, const std::string& id, const std::string& path,
                   const Names& names) const {
    Names inner;
    for (size_t i = 0; i < node.body_inputs.size() && i < node.inputs.size(); ++i) {
      inner[node.body_inputs[i]] =
          source(node.inputs[i], names) +
          (i < node.body_outputs.size() ? ", later the iteration before" : "");
    }
    std::string out = nodes(node.body, id, path, inner);
    for (const uint32_t value : node.body_outputs) {
      out += box_html({.kind = "node port",
                       .op = "to the next iteration",
                       .operands = "from " + name_in(inner, value)});
    }
    return out;
  }

  std::string source(const NodeValueInfo& v, const Names& names) const {
    return v.kind == NodeValueInfo::Kind::parameter ? parameter(v) : name_in(names, v.value);
  }

  // Shows one parameter, or the pattern of the parameters of all iterations.
  std::string parameter(const NodeValueInfo& v) const {
    if (v.parameters.empty()) {
      return "no parameter";
    }
    const ParameterInfo& first = info_.parameters[v.parameters[0]];
    const std::string shape =
        fmt::format(" {}{}", name_of(first.dtype), html_text(shape_text(first.shape)));
    std::set<uint32_t> ties;
    for (const uint32_t p : v.parameters) {
      ties.insert(info_.parameters[p].tie);
    }
    if (ties.size() == 1) {
      const size_t names = names_of_[first.tie];
      return link_html(fmt::format("s{}", first.tie), first.name) + shape +
             (names < 2 ? ""
                        : fmt::format(" ({})", link_html(fmt::format("t{}", first.tie),
                                                         fmt::format("tied: {} names", names))));
    }
    const std::string pattern = pattern_of(first.name);
    const bool one = std::ranges::all_of(
        v.parameters, [&](uint32_t p) { return pattern_of(info_.parameters[p].name) == pattern; });
    return link_html(fmt::format("s{}", first.tie), one ? pattern : first.name + " and others") +
           shape + fmt::format(" ({} storages)", grouped(ties.size()));
  }

  const ModelInfo& info_;
  const std::vector<size_t>& names_of_;  // number of parameters by tie index
  const EntryPointInfo& e_;
  std::string id_;
};

size_t count_of(const std::vector<NodeInfo>& nodes) {
  size_t count = nodes.size();
  for (const NodeInfo& node : nodes) {
    count += count_of(node.body);
  }
  return count;
}

}  // namespace

std::string graph_html(const ModelInfo& info) {
  if (info.entry_points.empty()) {
    return paragraph_html("The file has no entry point.");
  }
  std::vector<size_t> names_of(info.storages.size());
  for (const ParameterInfo& p : info.parameters) {
    ++names_of[p.tie];
  }
  std::string out;
  for (size_t i = 0; i < info.entry_points.size(); ++i) {
    const EntryPointInfo& e = info.entry_points[i];
    out += fmt::format("<details{}>\n<summary>Entry point {}: {} nodes</summary>\n{}</details>\n",
                       i == 0 ? " open='open'" : "", html_text(e.name), grouped(count_of(e.nodes)),
                       EntryPointGraph(info, names_of, i).html());
  }
  return out;
}

}  // namespace bowline::command
