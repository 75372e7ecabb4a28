// Operators of ai.onnx.preview.training: optimizers, and Gradient, which differentiates the nodes
// before it.
//
// Source  https://github.com/onnx/onnx/blob/main/docs/Operators.md, ai.onnx.preview.training,
//         version 1.
#include <algorithm>

#include "base/escape.h"
#include "onnx.pb.h"
#include "onnx/lowering.h"

namespace bowline::onnx {
namespace {

// Inputs: learning rate R, step T, then `parts` tensors for each of n weights, grouped by kind.
struct Update {
  Term rate;
  Term step;                   // f32
  std::vector<Terms> weights;  // by kind
};

Update update_of(Context& c, size_t parts) {
  require(c.inputs() > 2 && (c.inputs() - 2) % parts == 0,
          "The node has {} inputs, which is not 2 plus {} for each weight.", c.inputs(), parts);
  Update out;
  out.rate = c.in(0);
  const Term step = c.in(1);
  out.step = cast(step, DType::f32);
  const size_t n = (c.inputs() - 2) / parts;
  out.weights.resize(parts);
  for (size_t i = 2; i < c.inputs(); ++i) {
    Term t = c.in(i);
    out.weights[(i - 2) / n].push_back(std::move(t));
  }
  return out;
}

// Sets the outputs for each weight, grouped by kind. `next` returns the values after the step of a
// weight and its states: it gets the weight, the gradient plus that of the L2 penalty, and the
// states.
template <class Next>
Term updated(Context& c, const Update& u, const Next& next) {
  const double norm = c.real("norm_coefficient", 0);
  const size_t n = u.weights[0].size();
  for (size_t i = 0; i < n; ++i) {
    const Term& x = u.weights[0][i];
    const Term g = x * norm + u.weights[1][i];
    const Terms out = next(x, g, i);
    for (size_t k = 0; k < out.size(); ++k) {
      c.out(k * n + i, out[k]);
    }
  }
  return c.results()[0];
}

// r = R / (1 + T decay); h' = h + g^2; x' = x - r g / (sqrt(h') + eps)
Term adagrad(Context& c) {
  const Update u = update_of(c, 3);
  const double eps = c.real("epsilon", 1e-6);
  const Term r = u.rate / (u.step * c.real("decay_factor", 0) + 1);
  return updated(c, u, [&](const Term& x, const Term& g, size_t i) {
    const Term h = u.weights[2][i] + g * g;
    return Terms{x - r * g / (sqrt(h) + eps), h};
  });
}

// v' = alpha v + b g with b = 1 in step 0, else beta. x' = x - R v', or x - R (g + alpha v') for
// Nesterov.
Term momentum(Context& c) {
  const Update u = update_of(c, 3);
  const double alpha = c.real("alpha", 0);
  const bool standard = c.choice("mode", "", "standard nesterov", "Mode") == "standard";
  const Term later = u.step > 0;
  const Term b = where(later, c.real("beta", 0), c.m.scalar(DType::f32, 1));
  return updated(c, u, [&](const Term& x, const Term& g, size_t i) {
    const Term v = u.weights[2][i] * alpha + g * b;
    const Term way = standard ? v : g + v * alpha;
    return Terms{x - u.rate * way, v};
  });
}

// v' = alpha v + (1 - alpha) g; h' = beta h + (1 - beta) g^2
// r = R in step 0, else R sqrt(1 - beta^T) / (1 - alpha^T)
// x' = (1 - post) (x - r v' / (sqrt(h') + eps))
Term adam(Context& c) {
  const Update u = update_of(c, 4);
  const double alpha = c.real("alpha", 0.9), beta = c.real("beta", 0.999);
  const double eps = c.real("epsilon", 1e-6);
  const double post = c.real("norm_coefficient_post", 0);
  const auto rest = [&](double base) { return 1 - pow(base, u.step); };  // 1 - base^T
  const Term later = u.step > 0;
  const Term r = where(later, u.rate * sqrt(rest(beta)) / rest(alpha), u.rate);
  return updated(c, u, [&](const Term& x, const Term& g, size_t i) {
    const Term v = u.weights[2][i] * alpha + g * (1 - alpha);
    const Term h = u.weights[3][i] * beta + g * g * (1 - beta);
    const Term moved = x - r * v / (sqrt(h) + eps);
    return Terms{post == 0 ? moved : moved * (1 - post), v, h};
  });
}

// Sums over the axes that were broadcast.
Term summed_to(Context& c, const Term& d, const Dims& dims) {
  std::vector<int64_t> axes;
  const size_t extra = d.rank() - dims.size();
  for (size_t a = 0; a < d.rank(); ++a) {
    if (a < extra || (dims[a - extra] == 1 && d.dims[a] != 1)) {
      axes.push_back(static_cast<int64_t>(a));
    }
  }
  return c.m.reshape(c.m.reduce("ReduceSum", d, axes, true), dims);
}

// A node with its inputs, its output and the gradient of its output.
struct Step {
  Terms in;
  Term y, dy;
};

// Gradient rule of an ONNX operator.
struct Rule {
  std::string_view op;
  Terms (*gradients)(const Step& s);
};

constexpr Rule kRules[] = {
    {"Add",
     [](const Step& s) {
       return Terms{s.dy, s.dy};
     }},
    {"Sub",
     [](const Step& s) {
       return Terms{s.dy, -s.dy};
     }},
    {"Mul",
     [](const Step& s) {
       return Terms{s.dy * s.in[1], s.dy * s.in[0]};
     }},
    {"Div",
     [](const Step& s) {
       const Term d = s.dy / s.in[1];
       return Terms{d, -(d * s.y)};
     }},
    {"Neg", [](const Step& s) { return Terms{-s.dy}; }},
    {"Identity", [](const Step& s) { return Terms{s.dy}; }},
    {"Exp", [](const Step& s) { return Terms{s.dy * s.y}; }},
    {"Log", [](const Step& s) { return Terms{s.dy / s.in[0]}; }},
};

// Accumulated gradients, by value name.
using Gradients = std::map<std::string, Term>;

// Returns the values that depend on one of `xs` and so need a gradient.
std::set<std::string> followers(const Lowered& before, const std::vector<std::string>& xs) {
  std::set<std::string> out(xs.begin(), xs.end());
  for (const file::NodeProto* node : before.nodes) {
    if (std::ranges::any_of(node->input(), [&](const std::string& n) { return out.contains(n); })) {
      out.insert(node->output().begin(), node->output().end());
    }
  }
  return out;
}

void step_back(Context& c, const file::NodeProto& node, const std::set<std::string>& useful,
               Gradients& gradients) {
  if (node.output_size() != 1 || !gradients.contains(node.output(0)) ||
      !useful.contains(node.output(0))) {
    return;
  }
  const auto rule = std::ranges::find(kRules, node.op_type(), &Rule::op);
  support(rule != std::end(kRules), "There is no gradient rule for {} in an ONNX graph.",
          escaped(node.op_type()));
  Step step{{}, c.before().values.at(node.output(0)), gradients.at(node.output(0))};
  for (const std::string& name : node.input()) {
    step.in.push_back(name.empty() ? Term{} : c.before().values.at(name));
  }
  const Terms parts = rule->gradients(step);
  for (size_t i = 0; i < parts.size() && i < step.in.size(); ++i) {
    const std::string& name = node.input(static_cast<int>(i));
    if (!name.empty() && useful.contains(name)) {
      const Term part = summed_to(c, parts[i], step.in[i].dims);
      const auto before = gradients.find(name);
      gradients[name] = before == gradients.end() ? part : before->second + part;
    }
  }
}

// dy/dx for each of xs, for the sum of the elements of y. The node's inputs are the values of xs at
// which the gradient is taken. They must be xs themselves, because the graph is differentiated
// where it was computed.
Term gradient(Context& c) {
  const std::vector<std::string> xs = c.texts("xs");
  const std::string y = c.text("y", "");
  support(!c.has_attribute("zs"), "Attribute zs (inputs that are held fixed) is not supported.");
  require(c.before().values.contains(y) && xs.size() == c.outputs(),
          "It differentiates \"{}\" with respect to {} values and has {} outputs.", escaped(y),
          xs.size(), c.outputs());
  for (size_t i = 0; i < c.inputs(); ++i) {
    c.in(i);
    const bool same = i < xs.size() && c.node().input(static_cast<int>(i)) == xs[i];
    support(same, "Input {} is not the value in attribute xs.", i);
  }
  const Term& of = c.before().values.at(y);
  Gradients gradients;
  gradients[y] = c.m.filled(of.dtype, of.dims, 1);
  const std::set<std::string> useful = followers(c.before(), xs);
  for (size_t n = c.before().nodes.size(); n-- > 0;) {
    step_back(c, *c.before().nodes[n], useful, gradients);
  }
  for (size_t i = 0; i < xs.size(); ++i) {
    const auto found = gradients.find(xs[i]);
    require(c.before().values.contains(xs[i]), "The graph has no value \"{}\".", escaped(xs[i]));
    const Term& x = c.before().values.at(xs[i]);
    c.out(i, found != gradients.end() ? found->second : c.m.filled(x.dtype, x.dims, 0));
  }
  return c.results()[0];
}

constexpr Lowering kTrainingLowerings[] = {
    {"Adagrad", adagrad, kTraining},
    {"Momentum", momentum, kTraining},
    {"Adam", adam, kTraining},
    {"Gradient", gradient, kTraining},
};

}  // namespace

std::span<const Lowering> lowerings_of_training() { return kTrainingLowerings; }

}  // namespace bowline::onnx
