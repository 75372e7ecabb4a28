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

std::string shortened(const std::string& text) {
  return text.size() <= kMostCharacters ? text : text.substr(0, kMostCharacters) + "...";
}

// The name of each value as HTML, by value number.
using Names = std::map<uint32_t, std::string>;

class EntryPointGraph {
 public:
  EntryPointGraph(const ModelInfo& info, const std::vector<size_t>& names_of, size_t number)
      : info_(info),
        names_of_(names_of),
        e_(info.entry_points[number]),
        id_(fmt::format("e{}", number)) {}

  std::string html() const {
    Names names;
    std::string out = "<ol class=\"graph\">\n";
    for (size_t i = 0; i < e_.inputs.size(); ++i) {
      const InputInfo& input = e_.inputs[i];
      const std::string id = fmt::format("{}i{}", id_, i);
      names[input.value] = link(id, "input " + input.name);
      out += fmt::format(
          "<li class=\"node port\" id=\"{}\"><span class=\"op\">input</span> {} <span "
          "class=\"label\">{}{}</span></li>\n",
          id, html_text(input.name), name_of(input.dtype), html_text(shape_of(input.dims)));
    }
    out += nodes(e_.nodes, id_, "", names);
    for (const OutputInfo& output : e_.outputs) {
      out += fmt::format(
          "<li class=\"node port\"><span class=\"op\">output</span> {} <span "
          "class=\"label\">{}{}</span>"
          "<ul class=\"operands\"><li><span class=\"word\">from</span> {}</li></ul></li>\n",
          html_text(output.name), name_of(output.dtype),
          output.shape ? html_text(shape_text(*output.shape)) : "", name_in(names, output.value));
    }
    return out + "</ol>\n";
  }

 private:
  static std::string link(const std::string& id, const std::string& text) {
    return fmt::format("<a href=\"#{}\">{}</a>", id, html_text(text));
  }

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
      out += node.body.empty() ? plain(node, own, number, names) : repeat(node, own, number, names);
      for (size_t k = 0; k < node.outputs.size(); ++k) {
        names[node.outputs[k].value] = link(
            own, fmt::format("node {}{}", number, k == 0 ? "" : fmt::format(", output {}", k)));
      }
    }
    return out;
  }

  static std::string head(const NodeInfo& node, const std::string& number) {
    const std::string attributes = joined(
        node.attributes, [](const auto& a) { return a.first + "=" + a.second; }, " ");
    return fmt::format(
        "<span class=\"label\">{}</span> <span class=\"op\">{}</span>{} <span "
        "class=\"label\">{}</span>",
        number, html_text(node.op), node.name.empty() ? "" : " " + html_text(node.name),
        html_text(shortened(attributes)));
  }

  std::string reads(const std::vector<NodeValueInfo>& inputs, const Names& names) const {
    const std::string out =
        joined(inputs, [&](const NodeValueInfo& v) { return source(v, names); });
    return out.empty()
               ? ""
               : fmt::format(
                     "<ul class=\"operands\"><li><span class=\"word\">reads</span> {}</li></ul>",
                     out);
  }

  std::string plain(const NodeInfo& node, const std::string& id, const std::string& number,
                    const Names& names) const {
    return fmt::format("<li class=\"node\" id=\"{}\">{}{}</li>\n", id, head(node, number),
                       reads(node.inputs, names));
  }

  std::string repeat(const NodeInfo& node, const std::string& id, const std::string& number,
                     const Names& names) const {
    Names inner;
    for (size_t i = 0; i < node.body_inputs.size() && i < node.inputs.size(); ++i) {
      const NodeValueInfo& outer = node.inputs[i];
      inner[node.body_inputs[i]] =
          source(outer, names) +
          (i < node.body_outputs.size() ? ", later the iteration before" : "");
    }
    std::string out = fmt::format(
        "<li class=\"repeat\" id=\"{}\"><span class=\"label\">{}</span> <span class=\"op\">Repeat "
        "{} times</span> {}{}\n<ol>\n",
        id, number, grouped(node.count), html_text(node.name), reads(node.inputs, names));
    out += nodes(node.body, id, number + ".", inner);
    for (const uint32_t value : node.body_outputs) {
      out += fmt::format(
          "<li class=\"node port\"><span class=\"op\">to the next iteration</span> "
          "<ul class=\"operands\"><li><span class=\"word\">from</span> {}</li></ul></li>\n",
          name_in(inner, value));
    }
    return out + "</ol></li>\n";
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
      return link(fmt::format("s{}", first.tie), first.name) + shape +
             (names < 2 ? ""
                        : fmt::format(" (<a href=\"#t{}\">tied: {} names</a>)", first.tie, names));
    }
    const std::string pattern = numbered_pattern(first.name);
    const bool one = std::ranges::all_of(v.parameters, [&](uint32_t p) {
      return numbered_pattern(info_.parameters[p].name) == pattern;
    });
    return link(fmt::format("s{}", first.tie), one ? pattern : first.name + " and others") + shape +
           fmt::format(" ({} storages)", grouped(ties.size()));
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
                       i == 0 ? " open=\"open\"" : "", html_text(e.name),
                       grouped(count_of(e.nodes)), EntryPointGraph(info, names_of, i).html());
  }
  return out;
}

std::string numbered_pattern(std::string_view name) {
  std::string out;
  while (!name.empty()) {
    const size_t dot = std::min(name.find('.'), name.size());
    const std::string_view part = name.substr(0, dot);
    const bool number =
        !part.empty() && std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
    out += number ? "{}" : part;
    out += dot < name.size() ? "." : "";
    name.remove_prefix(std::min(dot + 1, name.size()));
  }
  return out;
}

}  // namespace bowline::command
