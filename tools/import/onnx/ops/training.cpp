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

Result<Update> update_of(Context& c, size_t parts) {
  BOWLINE_REQUIRE_CODE(c.inputs() > 2 && (c.inputs() - 2) % parts == 0, Code::bad_file,
                       "The node has {} inputs, which is not 2 plus {} for each weight.",
                       c.inputs(), parts);
  Update out;
  BOWLINE_TRY_ASSIGN(out.rate, c.in(0));
  BOWLINE_TRY_ASSIGN(const Term step, c.in(1));
  out.step = c.m.cast(step, DType::f32);
  const size_t n = (c.inputs() - 2) / parts;
  out.weights.resize(parts);
  for (size_t i = 2; i < c.inputs(); ++i) {
    BOWLINE_TRY_ASSIGN(Term t, c.in(i));
    out.weights[(i - 2) / n].push_back(std::move(t));
  }
  return out;
}

// The gradient plus the gradient of the L2 penalty.
Term regular(Context& c, double norm, const Term& x, const Term& g) {
  return c.m.add(c.m.mul(x, norm), g);
}

// r = R / (1 + T decay); h' = h + g^2; x' = x - r g / (sqrt(h') + eps)
Status adagrad(Context& c) {
  BOWLINE_TRY_ASSIGN(const Update u, update_of(c, 3));
  BOWLINE_TRY_ASSIGN(const double decay, c.real("decay_factor", 0));
  BOWLINE_TRY_ASSIGN(const double eps, c.real("epsilon", 1e-6));
  BOWLINE_TRY_ASSIGN(const double norm, c.real("norm_coefficient", 0));
  const Term r = c.m.div(u.rate, c.m.add(c.m.mul(u.step, decay), 1));
  const size_t n = u.weights[0].size();
  for (size_t i = 0; i < n; ++i) {
    const Term& x = u.weights[0][i];
    const Term g = regular(c, norm, x, u.weights[1][i]);
    const Term h = c.m.add(u.weights[2][i], c.m.mul(g, g));
    c.out(i, c.m.sub(x, c.m.div(c.m.mul(r, g), c.m.add(c.m.unary("Sqrt", h), eps))));
    c.out(n + i, h);
  }
  return {};
}

// v' = alpha v + b g with b = 1 in step 0, else beta. x' = x - R v', or x - R (g + alpha v') for
// Nesterov.
Status momentum(Context& c) {
  BOWLINE_TRY_ASSIGN(const Update u, update_of(c, 3));
  BOWLINE_TRY_ASSIGN(const double alpha, c.real("alpha", 0));
  BOWLINE_TRY_ASSIGN(const double beta, c.real("beta", 0));
  BOWLINE_TRY_ASSIGN(const double norm, c.real("norm_coefficient", 0));
  BOWLINE_TRY_ASSIGN(const std::string mode, c.text("mode", ""));
  const bool standard = mode == "standard";
  BOWLINE_REQUIRE_CODE(standard || mode == "nesterov", Code::bad_file,
                       "Mode \"{}\" is not supported.", escaped(mode));
  const Term later = c.m.compare("Greater", u.step, c.m.scalar(DType::f32, 0));
  const Term b = c.m.where(later, c.m.scalar(DType::f32, beta), c.m.scalar(DType::f32, 1));
  const size_t n = u.weights[0].size();
  for (size_t i = 0; i < n; ++i) {
    const Term& x = u.weights[0][i];
    const Term g = regular(c, norm, x, u.weights[1][i]);
    const Term v = c.m.add(c.m.mul(u.weights[2][i], alpha), c.m.mul(g, b));
    const Term way = standard ? v : c.m.add(g, c.m.mul(v, alpha));
    c.out(i, c.m.sub(x, c.m.mul(u.rate, way)));
    c.out(n + i, v);
  }
  return {};
}

// v' = alpha v + (1 - alpha) g; h' = beta h + (1 - beta) g^2
// r = R in step 0, else R sqrt(1 - beta^T) / (1 - alpha^T)
// x' = (1 - post) (x - r v' / (sqrt(h') + eps))
Status adam(Context& c) {
  BOWLINE_TRY_ASSIGN(const Update u, update_of(c, 4));
  BOWLINE_TRY_ASSIGN(const double alpha, c.real("alpha", 0.9));
  BOWLINE_TRY_ASSIGN(const double beta, c.real("beta", 0.999));
  BOWLINE_TRY_ASSIGN(const double eps, c.real("epsilon", 1e-6));
  BOWLINE_TRY_ASSIGN(const double norm, c.real("norm_coefficient", 0));
  BOWLINE_TRY_ASSIGN(const double post, c.real("norm_coefficient_post", 0));
  const Term one = c.m.scalar(DType::f32, 1);
  const auto rest = [&](double base) {  // 1 - base^T
    return c.m.sub(one, c.m.binary("Pow", c.m.scalar(DType::f32, base), u.step));
  };
  const Term later = c.m.compare("Greater", u.step, c.m.scalar(DType::f32, 0));
  const Term r = c.m.where(
      later, c.m.div(c.m.mul(u.rate, c.m.unary("Sqrt", rest(beta))), rest(alpha)), u.rate);
  const size_t n = u.weights[0].size();
  for (size_t i = 0; i < n; ++i) {
    const Term& x = u.weights[0][i];
    const Term g = regular(c, norm, x, u.weights[1][i]);
    const Term v = c.m.add(c.m.mul(u.weights[2][i], alpha), c.m.mul(g, 1 - alpha));
    const Term h = c.m.add(c.m.mul(u.weights[3][i], beta), c.m.mul(c.m.mul(g, g), 1 - beta));
    const Term moved = c.m.sub(x, c.m.div(c.m.mul(r, v), c.m.add(c.m.unary("Sqrt", h), eps)));
    c.out(i, post == 0 ? moved : c.m.mul(moved, 1 - post));
    c.out(n + i, v);
    c.out(2 * n + i, h);
  }
  return {};
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

// Gradient rule of an ONNX operator. in: the inputs, y: the output, dy: the gradient of the output.
struct Rule {
  std::string_view op;
  Terms (*gradients)(Maker& m, const Terms& in, const Term& y, const Term& dy);
};

constexpr Rule kRules[] = {
    {"Add",
     [](Maker&, const Terms&, const Term&, const Term& dy) {
       return Terms{dy, dy};
     }},
    {"Sub",
     [](Maker& m, const Terms&, const Term&, const Term& dy) {
       return Terms{dy, m.unary("Neg", dy)};
     }},
    {"Mul",
     [](Maker& m, const Terms& in, const Term&, const Term& dy) {
       return Terms{m.mul(dy, in[1]), m.mul(dy, in[0])};
     }},
    {"Div",
     [](Maker& m, const Terms& in, const Term& y, const Term& dy) {
       const Term d = m.div(dy, in[1]);
       return Terms{d, m.unary("Neg", m.mul(d, y))};
     }},
    {"Neg",
     [](Maker& m, const Terms&, const Term&, const Term& dy) { return Terms{m.unary("Neg", dy)}; }},
    {"Identity", [](Maker&, const Terms&, const Term&, const Term& dy) { return Terms{dy}; }},
    {"Exp",
     [](Maker& m, const Terms&, const Term& y, const Term& dy) { return Terms{m.mul(dy, y)}; }},
    {"Log", [](Maker& m, const Terms& in, const Term&,
               const Term& dy) { return Terms{m.div(dy, in[0])}; }},
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

Status step_back(Context& c, const file::NodeProto& node, const std::set<std::string>& useful,
                 Gradients& gradients) {
  if (node.output_size() != 1 || !gradients.contains(node.output(0)) ||
      !useful.contains(node.output(0))) {
    return {};
  }
  const auto rule = std::ranges::find(kRules, node.op_type(), &Rule::op);
  BOWLINE_REQUIRE_CODE(rule != std::end(kRules), Code::unsupported,
                       "There is no gradient rule for {} in an ONNX graph.",
                       escaped(node.op_type()));
  Terms in;
  for (const std::string& name : node.input()) {
    in.push_back(name.empty() ? Term{} : c.before().values.at(name));
  }
  const Term dy = gradients.at(node.output(0));
  const Terms parts = rule->gradients(c.m, in, c.before().values.at(node.output(0)), dy);
  for (size_t i = 0; i < parts.size() && i < in.size(); ++i) {
    const std::string& name = node.input(static_cast<int>(i));
    if (!name.empty() && useful.contains(name)) {
      const Term part = summed_to(c, parts[i], in[i].dims);
      const auto before = gradients.find(name);
      gradients[name] = before == gradients.end() ? part : c.m.add(before->second, part);
    }
  }
  return {};
}

// dy/dx for each of xs, for the sum of the elements of y. The node's inputs are the values of xs at
// which the gradient is taken. They must be xs themselves, because the graph is differentiated
// where it was computed.
Status gradient(Context& c) {
  BOWLINE_TRY_ASSIGN(const std::vector<std::string> xs, c.texts("xs"));
  BOWLINE_TRY_ASSIGN(const std::string y, c.text("y", ""));
  BOWLINE_REQUIRE_CODE(!c.has_attribute("zs"), Code::unsupported,
                       "Attribute zs (inputs that are held fixed) is not supported.");
  BOWLINE_REQUIRE_CODE(c.before().values.contains(y) && xs.size() == c.outputs(), Code::bad_file,
                       "It differentiates \"{}\" with respect to {} values and has {} outputs.",
                       escaped(y), xs.size(), c.outputs());
  for (size_t i = 0; i < c.inputs(); ++i) {
    BOWLINE_TRY(c.in(i).status());
    const bool same = i < xs.size() && c.node().input(static_cast<int>(i)) == xs[i];
    BOWLINE_REQUIRE_CODE(same, Code::unsupported, "Input {} is not the value in attribute xs.", i);
  }
  const Term& of = c.before().values.at(y);
  Gradients gradients;
  gradients[y] = c.m.filled(of.dtype, of.dims, 1);
  const std::set<std::string> useful = followers(c.before(), xs);
  for (size_t n = c.before().nodes.size(); n-- > 0;) {
    BOWLINE_TRY(step_back(c, *c.before().nodes[n], useful, gradients));
  }
  for (size_t i = 0; i < xs.size(); ++i) {
    const auto found = gradients.find(xs[i]);
    BOWLINE_REQUIRE_CODE(c.before().values.contains(xs[i]), Code::bad_file,
                         "The graph has no value \"{}\".", escaped(xs[i]));
    const Term& x = c.before().values.at(xs[i]);
    c.out(i, found != gradients.end() ? found->second : c.m.filled(x.dtype, x.dims, 0));
  }
  return {};
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
