#include "onnx/recorded.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "base/status.h"

namespace bowline::onnx {
namespace {

// The search for equal layers stops after this many candidate periods and visited nodes. A crafted
// file could otherwise make it very slow.
constexpr size_t kMostPeriods = 64;
constexpr size_t kMostSearched = size_t{1} << 25;

size_t hash_of(const RecordedParameter& p) {
  return std::hash<std::string_view>()(p.numbers.content()) ^ p.numbers.shape.size() << 1 ^
         static_cast<size_t>(p.role);
}

bool are_equal(const RecordedParameter& a, const RecordedParameter& b) {
  return a.role == b.role && a.numbers.shape == b.numbers.shape &&
         a.numbers.bytes == b.numbers.bytes;
}

std::string origin_text(const Origin& o) {
  return fmt::format(" {}:{}:{}", static_cast<int>(o.kind), o.index, o.output);
}

}  // namespace

std::string node_form(std::string_view op, const std::vector<Attribute>& attributes) {
  std::string out(op);
  for (const Attribute& a : attributes) {
    out += fmt::format(" {}", a.name);
    std::visit(
        [&]<class T>(const T& value) {
          if constexpr (std::same_as<T, std::vector<GraphDim>>) {
            for (const GraphDim& d : value) {
              out += " " + (d.name.empty() ? std::to_string(d.value) : d.name);
            }
          } else if constexpr (std::same_as<T, std::vector<double>> ||
                               std::same_as<T, std::vector<std::string>>) {
            out += fmt::format(" {}", fmt::join(value, " "));
          } else {
            out += fmt::format(" {}", value);
          }
        },
        a.value);
  }
  return out;
}

RecordedGraph::RecordedGraph(Model& model, const std::string& entry_point,
                             const std::string& batch_dim, bool tie_equal)
    : model_(model), graph_(model, entry_point), tie_equal_(tie_equal) {
  recording_.entry_point = entry_point;
  recording_.batch_dim = batch_dim;
}

void RecordedGraph::remember(bowline::Value value, Origin origin) {
  if (tie_equal_) {
    origins_[value.index] = origin;
  }
}

bowline::Value RecordedGraph::input(const std::string& name, DType dtype,
                                    const std::vector<GraphDim>& dims) {
  const bowline::Value out = graph_.input(name, dtype, dims);
  remember(out, {Origin::Kind::input, recording_.inputs.size(), 0});
  recording_.inputs.push_back({name, dtype, dims});
  return out;
}

Result<bowline::Value> RecordedGraph::parameter(const std::string& name, StorageRole role,
                                                ConstantTensor numbers) {
  BOWLINE_TRY_ASSIGN(const Parameter made,
                     model_.parameter(name, numbers.shape, Init::zeros(), role));
  const bowline::Value out = graph_.parameter(made);
  remember(out, {Origin::Kind::parameter, recording_.parameters.size(), 0});
  recording_.parameters.push_back({name, role, std::move(numbers)});
  return out;
}

bowline::Value RecordedGraph::op(std::string_view op, const std::vector<bowline::Value>& inputs,
                                 const std::vector<Attribute>& attributes,
                                 const std::string& name) {
  graph_.named(name);
  const bowline::Value out = graph_.op(op, inputs, attributes);
  if (tie_equal_) {
    RecordedNode node{std::string(op), name, {}, attributes, 0};
    for (const bowline::Value& v : inputs) {
      node.inputs.push_back(origins_[v.index]);
    }
    for (const bowline::Value& v : last_outputs()) {
      remember(v, {Origin::Kind::node, recording_.nodes.size(), node.outputs++});
    }
    recording_.nodes.push_back(std::move(node));
  }
  return out;
}

void RecordedGraph::output(const std::string& name, bowline::Value value) {
  graph_.output(name, value);
  if (tie_equal_) {
    recording_.outputs.emplace_back(name, origins_[value.index]);
  }
}

Status RecordedGraph::finish() {
  BOWLINE_TRY(graph_.finish());
  std::vector<size_t> parameters(recording_.parameters.size());
  for (size_t p = 0; p < parameters.size(); ++p) {
    parameters[p] = p;
  }
  if (tie_equal_) {
    const EqualModel equal(recording_);
    const std::optional<EqualLayers>& layers = equal.layers();
    if (layers || equal.ties()) {
      BOWLINE_TRY_ASSIGN(EqualModel::Made made, equal.make());
      model_ = std::move(made.model);
      notes_.push_back(
          fmt::format("{} of {} parameters remain: the others have equal values and "
                      "are tied to them (--tie-equal).",
                      made.parameters.size(), parameters.size()));
      if (layers) {
        notes_.push_back(fmt::format("{} equal layers of {} nodes are merged into one Repeat.",
                                     layers->count, layers->period));
      }
      parameters = std::move(made.parameters);
    } else {
      notes_.push_back("No two weights or layers are equal, so --tie-equal changes nothing.");
    }
  }
  BOWLINE_TRY(model_.materialize(0));
  for (const size_t p : parameters) {
    RecordedParameter& from = recording_.parameters[p];
    BOWLINE_TRY(model_.set_value(from.name, Tensor{from.name, from.numbers.dtype,
                                                   from.numbers.shape, from.numbers.bytes.data()}));
  }
  return {};
}

EqualModel::EqualModel(const Recording& recording) : recording_(recording) {
  find_equal_parameters();
  find_fixed_nodes();
  for (const size_t period : periods()) {
    look_for_layers(period);
  }
}

void EqualModel::find_equal_parameters() {
  std::unordered_multimap<size_t, size_t> by_hash;
  for (size_t p = 0; p < recording_.parameters.size(); ++p) {
    const RecordedParameter& parameter = recording_.parameters[p];
    const size_t hash = hash_of(parameter);
    const auto [begin, end] = by_hash.equal_range(hash);
    const auto found = std::find_if(begin, end, [&](const auto& other) {
      return are_equal(recording_.parameters[other.second], parameter);
    });
    equal_parameter_.push_back(found == end ? p : found->second);
    if (found == end) {
      by_hash.emplace(hash, p);
    }
    is_matrix_.push_back(parameter.role == StorageRole::weight &&
                         parameter.numbers.shape.size() >= 2 && !parameter.numbers.is_uniform());
  }
}

bool EqualModel::ties() const {
  for (size_t p = 0; p < equal_parameter_.size(); ++p) {
    if (is_matrix_[p] && equal_parameter_[p] != p) {
      return true;
    }
  }
  return false;
}

void EqualModel::find_fixed_nodes() {
  std::map<std::string, size_t> computed, forms;
  for (size_t n = 0; n < recording_.nodes.size(); ++n) {
    const RecordedNode& node = recording_.nodes[n];
    const std::string form =
        fmt::format("{} {}", node_form(node.op, node.attributes), node.outputs);
    form_.push_back(forms.emplace(form, forms.size()).first->second);
    is_fixed_.push_back(!node.inputs.empty() &&
                        std::ranges::all_of(node.inputs, [&](const Origin& o) {
                          return o.kind == Origin::Kind::parameter ||
                                 (o.kind == Origin::Kind::node && is_fixed_[o.index]);
                        }));
    has_matrix_.push_back(is_fixed_[n] && std::ranges::any_of(node.inputs, [&](const Origin& o) {
                            return is_weight(o);
                          }));
    equal_node_.push_back(n);
    place_.push_back(is_fixed_[n] ? kNowhere : order_.size());
    if (!is_fixed_[n]) {
      order_.push_back(n);
      continue;
    }
    std::string key = form;
    for (const Origin& o : node.inputs) {
      key += origin_text(first_equal(o));
    }
    equal_node_[n] = computed.emplace(key, n).first->second;
  }
}

Origin EqualModel::first_equal(const Origin& value) const {
  Origin out = value;
  if (value.kind != Origin::Kind::input) {
    out.index = value.kind == Origin::Kind::parameter ? equal_parameter_[value.index]
                                                      : equal_node_[value.index];
  }
  return out;
}

bool EqualModel::is_weight(const Origin& value) const {
  return value.kind == Origin::Kind::parameter
             ? static_cast<bool>(is_matrix_[value.index])
             : value.kind == Origin::Kind::node && is_fixed_[value.index] &&
                   has_matrix_[value.index];
}

size_t EqualModel::place(const Origin& value) const {
  return value.kind == Origin::Kind::node ? place_[value.index] : kNowhere;
}

// Returns the distances between nodes that read the same weight: the candidate layer lengths.
std::vector<size_t> EqualModel::periods() const {
  std::map<Origin, size_t> last;
  std::map<size_t, size_t> counts;
  for (size_t at = 0; at < order_.size(); ++at) {
    for (const Origin& input : node_at(at).inputs) {
      if (is_weight(input)) {
        const auto [found, is_new] = last.emplace(first_equal(input), at);
        counts[at - found->second] += is_new || found->second == at ? 0 : 1;
        found->second = at;
      }
    }
  }
  std::vector<std::pair<size_t, size_t>> often;
  for (const auto& [period, count] : counts) {
    if (count > 0) {
      often.emplace_back(count, period);
    }
  }
  std::ranges::sort(often, std::greater<>());
  std::vector<size_t> out;
  for (size_t i = 0; i < std::min(often.size(), kMostPeriods); ++i) {
    out.push_back(often[i].second);
  }
  return out;
}

void EqualModel::look_for_layers(size_t period) {
  const auto alike = [&](size_t at) {
    return at + period < order_.size() && form_[order_[at]] == form_[order_[at + period]];
  };
  for (size_t begin = 0; begin < order_.size();) {
    size_t end = begin;
    while (alike(end)) {
      ++end;
    }
    // The start of a layer is not known, and other nodes may separate layers.
    for (size_t first = begin; first < begin + period && first + period <= end; ++first) {
      for (size_t start = first; start + period <= end && work_ < kMostSearched;) {
        std::optional<EqualLayers> found = layers_at(start, period);
        start += found ? found->count * period : period;
        const auto rank = [](const EqualLayers& l) {
          return std::pair((l.count - 1) * l.period, -static_cast<int64_t>(l.carried.size()));
        };
        if (found && (!layers_ || rank(*found) > rank(*layers_))) {
          layers_ = std::move(found);
        }
      }
    }
    begin = end + 1;
  }
}

std::optional<EqualLayers> EqualModel::layers_at(size_t start, size_t period) {
  EqualLayers out;
  out.start = start;
  out.period = period;
  out.count = 1;
  for (size_t i = 0; i < period; ++i) {
    out.slots.emplace_back(node_at(start + i).inputs.size());
  }
  while (start + (out.count + 1) * period <= order_.size() && is_like_first(out, out.count)) {
    ++out.count;
    work_ += period;
  }
  while (out.count >= 2 && work_ < kMostSearched && !leaves_carried_alone(out)) {
    --out.count;
    work_ += order_.size() + recording_.outputs.size();
  }
  work_ += period;
  if (work_ >= kMostSearched) {
    return std::nullopt;
  }
  return out.count >= 2 && reads_weight(out) ? std::optional(std::move(out)) : std::nullopt;
}

// The second group determines the carried values. All later groups must agree.
bool EqualModel::is_like_first(EqualLayers& layers, size_t group) const {
  const size_t before = layers.start + (group - 1) * layers.period;
  for (size_t i = 0; i < layers.period; ++i) {
    const RecordedNode& first = node_at(layers.start + i);
    const RecordedNode& node = node_at(before + layers.period + i);
    if (form_[order_[layers.start + i]] != form_[order_[before + layers.period + i]] ||
        first.inputs.size() != node.inputs.size()) {
      return false;
    }
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      const Origin& a = first.inputs[k];
      const Origin& b = node.inputs[k];
      const size_t from_a = place(a), from_b = place(b);
      if (from_a != kNowhere && from_a >= layers.start) {  // from inside the group
        if (from_b != from_a + group * layers.period || a.output != b.output) {
          return false;
        }
        continue;
      }
      std::optional<size_t>& slot = layers.slots[i][k];
      if (first_equal(a) == first_equal(b)) {
        if (slot) {
          return false;
        }
        continue;
      }
      if (from_b == kNowhere || from_b < before || from_b >= before + layers.period) {
        return false;
      }
      const auto found = std::ranges::find_if(layers.carried, [&](const auto& c) {
        return c.node == from_b - before && c.output == b.output;
      });
      const auto number = static_cast<size_t>(found - layers.carried.begin());
      if (group > 1) {
        if (slot != number) {
          return false;
        }
        continue;
      }
      if (found == layers.carried.end()) {
        layers.carried.push_back({from_b - before, b.output, a});
      } else if (first_equal(found->first) != first_equal(a)) {
        return false;
      }
      slot = number;
    }
  }
  return true;
}

bool EqualModel::leaves_carried_alone(const EqualLayers& layers) const {
  const size_t end = layers.start + layers.count * layers.period;
  const size_t last = end - layers.period;
  const auto may_leave = [&](const Origin& value) {
    const size_t from = place(value);
    return from == kNowhere || from < layers.start || from >= end ||
           (from >= last && std::ranges::any_of(layers.carried, [&](const auto& c) {
              return c.node == from - last && c.output == value.output;
            }));
  };
  for (size_t at = end; at < order_.size(); ++at) {
    if (!std::ranges::all_of(node_at(at).inputs, may_leave)) {
      return false;
    }
  }
  return std::ranges::all_of(recording_.outputs,
                             [&](const auto& output) { return may_leave(output.second); });
}

bool EqualModel::reads_weight(const EqualLayers& layers) const {
  for (size_t i = 0; i < layers.period; ++i) {
    if (std::ranges::any_of(node_at(layers.start + i).inputs,
                            [&](const Origin& o) { return is_weight(o); })) {
      return true;
    }
  }
  return false;
}

namespace {

// Adds the nodes of a recording to a GraphBuilder.
class Replay {
 public:
  Replay(const Recording& recording, const std::vector<size_t>& shown, Model& model)
      : recording_(recording),
        shown_(shown),
        model_(model),
        graph_(model, recording.entry_point),
        handles_(recording.parameters.size()),
        values_(recording.nodes.size()) {}

  Status inputs() {
    for (const RecordedInput& i : recording_.inputs) {
      inputs_.push_back(graph_.input(i.name, i.dtype, i.dims));
    }
    return {};
  }

  Result<Parameter> handle(size_t parameter) {
    const size_t p = shown_[parameter];
    if (!handles_[p]) {
      const RecordedParameter& from = recording_.parameters[p];
      BOWLINE_TRY_ASSIGN(handles_[p],
                         model_.parameter(from.name, from.numbers.shape, Init::zeros(), from.role));
      used_.push_back(p);
    }
    return *handles_[p];
  }

  static std::vector<bowline::Value> outputs_of(GraphBuilder& graph, const RecordedNode& node,
                                                const std::vector<bowline::Value>& inputs) {
    graph.named(node.name);
    graph.op(node.op, inputs, node.attributes);
    std::vector<bowline::Value> out = graph.last_outputs();
    out.resize(node.outputs);
    return out;
  }

  // A node that depends only on parameters is added when it is first read.
  Result<bowline::Value> value(const Origin& origin) {
    if (origin.kind == Origin::Kind::input) {
      return inputs_[origin.index];
    }
    if (origin.kind == Origin::Kind::parameter) {
      BOWLINE_TRY_ASSIGN(const Parameter p, handle(origin.index));
      const auto found = parameters_.find(shown_[origin.index]);
      return found != parameters_.end()
                 ? found->second
                 : parameters_.emplace(shown_[origin.index], graph_.parameter(p)).first->second;
    }
    if (values_[origin.index].empty()) {
      BOWLINE_TRY(node(origin.index));
    }
    return values_[origin.index].at(origin.output);
  }

  Status node(size_t index) {
    const RecordedNode& n = recording_.nodes[index];
    std::vector<bowline::Value> inputs;
    for (const Origin& o : n.inputs) {
      BOWLINE_TRY_ASSIGN(inputs.emplace_back(), value(o));
    }
    values_[index] = outputs_of(graph_, n, inputs);
    return {};
  }

  // `nodes` are the nodes of the first group, `last` those of the last group.
  Status repeat(const EqualLayers& layers, std::span<const size_t> nodes,
                std::span<const size_t> last) {
    std::vector<bowline::Value> firsts;
    for (const EqualLayers::Carried& c : layers.carried) {
      BOWLINE_TRY_ASSIGN(firsts.emplace_back(), value(c.first));
    }
    const auto in_group = [&](const Origin& o) {
      return o.kind == Origin::Kind::node && std::ranges::find(nodes, o.index) != nodes.end();
    };
    for (size_t i = 0; i < nodes.size(); ++i) {
      const RecordedNode& n = recording_.nodes[nodes[i]];
      for (size_t k = 0; k < n.inputs.size(); ++k) {
        if (!layers.slots[i][k] && !in_group(n.inputs[k])) {
          BOWLINE_TRY(value(n.inputs[k]).status());
        }
      }
    }
    const auto body = [&](GraphBuilder& g, const std::vector<bowline::Value>& carried) {
      std::map<size_t, std::vector<bowline::Value>> made;
      std::map<size_t, bowline::Value> parameters;
      for (size_t i = 0; i < nodes.size(); ++i) {
        const RecordedNode& n = recording_.nodes[nodes[i]];
        std::vector<bowline::Value> inputs;
        for (size_t k = 0; k < n.inputs.size(); ++k) {
          const Origin& o = n.inputs[k];
          if (const std::optional<size_t>& slot = layers.slots[i][k]; slot) {
            inputs.push_back(carried[*slot]);
          } else if (in_group(o)) {
            inputs.push_back(made[o.index].at(o.output));
          } else if (o.kind == Origin::Kind::parameter) {
            const size_t p = shown_[o.index];
            auto found = parameters.find(p);
            if (found == parameters.end()) {
              found = parameters.emplace(p, g.parameter(*handles_[p])).first;
            }
            inputs.push_back(found->second);
          } else {
            inputs.push_back(g.capture(
                o.kind == Origin::Kind::input ? inputs_[o.index] : values_[o.index].at(o.output)));
          }
        }
        made[nodes[i]] = outputs_of(g, n, inputs);
      }
      std::vector<bowline::Value> out;
      for (const EqualLayers::Carried& c : layers.carried) {
        out.push_back(made[nodes[c.node]].at(c.output));
      }
      return out;
    };
    const std::vector<bowline::Value> after =
        graph_.repeat(static_cast<int>(layers.count), firsts, body);
    for (size_t c = 0; c < layers.carried.size() && c < after.size(); ++c) {
      const size_t node = last[layers.carried[c].node];
      values_[node].resize(recording_.nodes[node].outputs);
      values_[node][layers.carried[c].output] = after[c];
    }
    return {};
  }

  Result<std::vector<size_t>> finish() {
    for (const auto& [name, origin] : recording_.outputs) {
      BOWLINE_TRY_ASSIGN(const bowline::Value v, value(origin));
      graph_.output(name, v);
    }
    BOWLINE_TRY(graph_.finish());
    return std::move(used_);
  }

 private:
  const Recording& recording_;
  const std::vector<size_t>& shown_;  // parameter -> the equal parameter that replaces it
  Model& model_;
  GraphBuilder graph_;
  std::vector<bowline::Value> inputs_;
  std::vector<std::optional<Parameter>> handles_;
  std::map<size_t, bowline::Value> parameters_;
  std::vector<std::vector<bowline::Value>> values_;  // by node
  std::vector<size_t> used_;
};

}  // namespace

Result<EqualModel::Made> EqualModel::make() const {
  std::vector<size_t> shown(equal_parameter_.size());
  for (size_t p = 0; p < shown.size(); ++p) {
    shown[p] = is_matrix_[p] ? equal_parameter_[p] : p;
  }
  Made out;
  if (!recording_.batch_dim.empty()) {
    BOWLINE_TRY(out.model.set_dim_limits(recording_.batch_dim, {}));
  }
  Replay replay(recording_, shown, out.model);
  BOWLINE_TRY(replay.inputs());
  const size_t begin = layers_ ? layers_->start : order_.size();
  const size_t end = layers_ ? begin + layers_->count * layers_->period : order_.size();
  for (size_t at = 0; at < begin; ++at) {
    BOWLINE_TRY(replay.node(order_[at]));
  }
  if (layers_) {
    const std::span<const size_t> order(order_);
    BOWLINE_TRY(replay.repeat(*layers_, order.subspan(begin, layers_->period),
                              order.subspan(end - layers_->period, layers_->period)));
  }
  for (size_t at = end; at < order_.size(); ++at) {
    BOWLINE_TRY(replay.node(order_[at]));
  }
  BOWLINE_TRY_ASSIGN(out.parameters, replay.finish());
  return out;
}

}  // namespace bowline::onnx
