// Shrinks models: each change removes something, and the greedy search keeps models that still
// fail.
#include <algorithm>

#include "conformance/random/recipe.h"

namespace bowline::conformance::random {
namespace {

using Change = std::function<bool(Recipe&)>;  // returns false if it does not apply

// Replaces all reads of `from` by reads of the earlier value `to`.
void redirect(Graph& g, Ref from, Ref to) {
  const auto change = [&](Ref& r) { r = r == from ? to : r; };
  for (Node& node : g.nodes) {
    std::ranges::for_each(node.inputs, change);
    for (Graph& body : node.body) {
      for (Node& inner : body.nodes) {
        if (inner.kind == Node::Kind::capture) {
          change(inner.outer);
        }
      }
    }
  }
  std::ranges::for_each(g.outputs, change);
}

// Removes a node. Its readers read an earlier value instead. The shape may differ if inference
// accepts it.
bool drop_node(Graph& g, uint32_t n, uint32_t candidate) {
  const Node& node = g.nodes[n];
  if (node.kind != Node::Kind::op || candidate >= n) {
    return false;
  }
  const Node& other = g.nodes[candidate];
  if (other.shapes.empty() || g.dtype({candidate, 0}) != g.dtype({n, 0})) {
    return false;
  }
  redirect(g, {n, 0}, {candidate, 0});
  return true;
}

// Replaces a node by an input. Nodes that only this node needs are removed, too.
bool make_input(Graph& g, uint32_t n) {
  Node& node = g.nodes[n];
  if (node.kind != Node::Kind::op || node.shapes.size() != 1 || g.dtype({n, 0}) != DType::f32) {
    return false;
  }
  Node input;
  input.kind = Node::Kind::input;
  input.shapes = node.shapes;
  for (const Node& other : g.nodes) {
    input.item =
        other.kind == Node::Kind::input ? std::max(input.item, other.item + 1) : input.item;
  }
  node = std::move(input);
  return true;
}

// Replaces the results of a Repeat by its inputs.
bool drop_repeat(Graph& g, uint32_t n) {
  if (g.nodes[n].kind != Node::Kind::repeat) {
    return false;
  }
  for (uint32_t o = 0; o < g.nodes[n].inputs.size(); ++o) {
    redirect(g, {n, o}, g.nodes[n].inputs[o]);
  }
  return true;
}

// Makes one carried value constant.
bool pass_carried(Graph& g, uint32_t n, uint32_t c) {
  Node& node = g.nodes[n];
  if (node.kind != Node::Kind::repeat || c >= node.inputs.size()) {
    return false;
  }
  Graph& body = node.body[0];
  const auto it = std::ranges::find_if(body.nodes, [&](const Node& inner) {
    return inner.kind == Node::Kind::carried && inner.item == c;
  });
  const Ref itself{static_cast<uint32_t>(it - body.nodes.begin()), 0};
  if (body.outputs[c] == itself) {
    return false;
  }
  body.outputs[c] = itself;
  return true;
}

// Replaces a constant carried value by a capture.
bool drop_carried(Graph& g, uint32_t n, uint32_t c) {
  Node& node = g.nodes[n];
  if (node.kind != Node::Kind::repeat || c >= node.inputs.size() || node.inputs.size() < 2) {
    return false;
  }
  const Ref initial = node.inputs[c];
  Graph& body = node.body[0];
  for (Node& inner : body.nodes) {
    if (inner.kind == Node::Kind::carried && inner.item == c) {
      inner.kind = Node::Kind::capture;
      inner.outer = initial;
    } else if (inner.kind == Node::Kind::carried && inner.item > c) {
      --inner.item;
    }
  }
  body.outputs.erase(body.outputs.begin() + c);
  node.inputs.erase(node.inputs.begin() + c);
  node.shapes.erase(node.shapes.begin() + c);
  redirect(g, {n, c}, initial);
  for (uint32_t o = c + 1; o <= node.inputs.size(); ++o) {
    redirect(g, {n, o}, {n, o - 1});
  }
  return true;
}

bool drop_iteration(Graph& g, uint32_t n, uint32_t iteration) {
  Node& node = g.nodes[n];
  if (node.kind != Node::Kind::repeat || node.count < 2 || iteration >= node.count) {
    return false;
  }
  --node.count;
  for (Node& inner : node.body[0].nodes) {
    if (inner.parameters.size() > 1) {
      inner.parameters.erase(inner.parameters.begin() + iteration);
    }
  }
  return true;
}

template <class Visit>
void each_list(Graph& g, const Visit& visit) {
  for (Node& node : g.nodes) {
    if (node.kind == Node::Kind::parameter) {
      visit(node.parameters);
    }
    for (Graph& body : node.body) {
      each_list(body, visit);
    }
  }
}

// Adds a parameter with a storage of its own that equals the view of parameter `p`.
uint32_t add_own_storage(Recipe& recipe, uint32_t p) {
  const ParameterRow row = recipe.parameters[p];
  const StorageRow& from = recipe.storages[row.storage];
  StorageRow own{view_shape(row.view, from.shape).value(), from.frozen, {}};
  const std::vector<size_t> map = element_map(from, row).value();
  for (const size_t i : map) {
    own.values.push_back(from.values[i]);
  }
  recipe.storages.push_back(std::move(own));
  recipe.parameters.push_back({static_cast<uint32_t>(recipe.storages.size() - 1), View{}, false});
  return static_cast<uint32_t>(recipe.parameters.size() - 1);
}

// Gives the use with index `use` a parameter with its own storage and without a view.
bool give_own_storage(Recipe& recipe, size_t use) {
  std::vector<uint32_t*> items;
  each_list(recipe.loss, [&](std::vector<uint32_t>& list) {
    for (uint32_t& item : list) {
      items.push_back(&item);
    }
  });
  if (use >= items.size()) {
    return false;
  }
  const ParameterRow& row = recipe.parameters[*items[use]];
  const auto sharers = std::ranges::count_if(
      items, [&](const uint32_t* item) { return recipe.parameters[*item].storage == row.storage; });
  if (sharers == 1 && row.view == View{}) {
    return false;
  }
  *items[use] = add_own_storage(recipe, *items[use]);
  return true;
}

void add_graph_changes(const Recipe& recipe, std::vector<Change>& out) {
  const auto nodes = static_cast<uint32_t>(recipe.loss.nodes.size());
  for (uint32_t n = nodes; n-- > 0;) {
    const Node& node = recipe.loss.nodes[n];
    if (node.kind == Node::Kind::repeat) {
      out.push_back([n](Recipe& r) { return drop_repeat(r.loss, n); });
      for (uint32_t c = 0; c < node.inputs.size(); ++c) {
        out.push_back([n, c](Recipe& r) { return drop_carried(r.loss, n, c); });
        out.push_back([n, c](Recipe& r) { return pass_carried(r.loss, n, c); });
      }
      for (uint32_t i = 0; i < node.count; ++i) {
        out.push_back([n, i](Recipe& r) { return drop_iteration(r.loss, n, i); });
      }
      for (uint32_t k = static_cast<uint32_t>(node.body[0].nodes.size()); k-- > 0;) {
        for (uint32_t c = 0; c < k; ++c) {
          out.push_back([n, k, c](Recipe& r) { return drop_node(r.loss.nodes[n].body[0], k, c); });
        }
      }
    }
    out.push_back([n](Recipe& r) { return make_input(r.loss, n); });
    for (uint32_t c = 0; c < n; ++c) {
      out.push_back([n, c](Recipe& r) { return drop_node(r.loss, n, c); });
    }
  }
}

template <class T>
Change set_to(T TrainOptions::*member, T value) {
  return [=](Recipe& r) {
    const bool changes = r.options.*member != value;
    r.options.*member = value;
    return changes;
  };
}

Change set_optimizer(const Optimizer& optimizer) {
  return [=](Recipe& r) {
    Optimizer& own = r.options.optimizer;
    const bool changes = own.name != optimizer.name || own.settings != optimizer.settings;
    own = optimizer;
    return changes;
  };
}

std::vector<Change> changes_of(const Recipe& recipe) {
  std::vector<Change> out = {
      [](Recipe& r) { return std::exchange(r.steps, 1u) != 1; },
      [](Recipe& r) { return r.steps > 1 && --r.steps > 0; },
      [](Recipe& r) {
        const bool had = !r.probe.nodes.empty();
        r.probe = {};
        return had;
      },
      set_to(&TrainOptions::accumulation, uint32_t{1}),
      set_to(&TrainOptions::clip_norm, 0.0f),
      set_to(&TrainOptions::seed, uint64_t{0}),
      set_optimizer({"sgd"}),
  };
  for (const auto& setting : recipe.options.optimizer.settings) {
    Optimizer without = recipe.options.optimizer;
    without.settings.erase(setting.first);
    out.push_back(set_optimizer(without));
  }
  add_graph_changes(recipe, out);
  for (size_t s = 0; s < recipe.storages.size(); ++s) {
    out.push_back([s](Recipe& r) { return std::exchange(r.storages[s].frozen, false); });
  }
  for (size_t p = 0; p < recipe.parameters.size(); ++p) {
    out.push_back([p](Recipe& r) { return std::exchange(r.parameters[p].by_verb, false); });
  }
  size_t uses = 0;
  Recipe copy = recipe;
  each_list(copy.loss, [&](const std::vector<uint32_t>& items) { uses += items.size(); });
  for (size_t use = 0; use < uses; ++use) {
    out.push_back([use](Recipe& r) { return give_own_storage(r, use); });
  }
  return out;
}

}  // namespace

Recipe shrink(const Recipe& recipe, const std::function<bool(const Recipe&)>& fails, int tries) {
  Recipe best = recipe;
  for (bool again = true; again;) {
    again = false;
    // The list of changes is tried to the end, even after a change was accepted. Changes that no
    // longer apply are skipped.
    std::vector<Change> changes = changes_of(best);
    for (size_t i = 0; i < changes.size() && tries > 0; ++i) {
      Recipe smaller = best;
      if (!changes[i](smaller) || !tidy(smaller).ok() || smaller.storages.empty()) {
        continue;
      }
      --tries;
      if (fails(smaller)) {
        again = true;
        best = std::move(smaller);
        changes = changes_of(best);
      }
    }
    again = again && tries > 0;
  }
  return best;
}

}  // namespace bowline::conformance::random
