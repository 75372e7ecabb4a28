// Compares random graphs with a dynamic dimension with the same graphs at a bound length. Graphs
// that the rules refuse are not run.
#include <cmath>

#include "plan/counted_models.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

constexpr int64_t kSeq = -1;        // the dynamic dimension in a symbolic shape
constexpr uint64_t kGraphs = 1000;  // on the cpu; other devices get fewer
constexpr uint64_t kFewGraphs = 40;
constexpr int kOperators = 9;
constexpr int64_t kMostElements = 3000;

using Symbols = std::vector<int64_t>;

struct Step {
  std::string op;
  std::vector<size_t> inputs;  // indices of values
  std::vector<Attribute> attributes;
};

// The description of a random graph. Input 0 is f32 and input 1 holds ids. Then follow the
// parameters, then the outputs of the steps.
struct Recipe {
  std::vector<Symbols> shapes;
  std::vector<Symbols> parameters;
  std::vector<Step> steps;
};

std::vector<GraphDim> named(const Symbols& shape) {
  std::vector<GraphDim> out;
  for (const int64_t d : shape) {
    out.push_back(d == kSeq ? GraphDim("seq") : GraphDim(d));
  }
  return out;
}

Dims at_length(const Symbols& shape, int64_t n) {
  Dims out;
  for (const int64_t d : shape) {
    out.push_back(d == kSeq ? n : d);
  }
  return out;
}

int64_t elements(const Dims& dims) {
  int64_t n = 1;
  for (const int64_t d : dims) {
    n *= d;
  }
  return n;
}

class Drawer {
 public:
  explicit Drawer(uint64_t seed) : draw_(seed) {
    static const std::vector<Symbols> kShapes = {{kSeq, 4},       {2, kSeq, 4},    {kSeq, 2, 4},
                                                 {2, kSeq, 2, 4}, {1, kSeq, 1, 4}, {3, kSeq}};
    recipe_.shapes = {draw_.of(kShapes), {kSeq}};
  }

  Recipe draw() {
    if (draw_.below(4) > 0 && recipe_.shapes[0].back() == 4) {
      poison();
    }
    while (recipe_.steps.size() < kOperators) {
      one();
    }
    return recipe_;
  }

 private:
  using Values = std::vector<size_t>;
  const Symbols& shape(size_t v) const { return recipe_.shapes[v]; }
  int64_t rank(size_t v) const { return static_cast<int64_t>(shape(v).size()); }

  size_t any() {
    size_t v = 1;
    while (v == 1) {
      v = static_cast<size_t>(draw_.below(static_cast<int64_t>(recipe_.shapes.size())));
    }
    // Prefers the newest value.
    return draw_.below(3) > 0 && !recipe_.steps.empty() ? recipe_.shapes.size() - 1 : v;
  }
  size_t like(size_t v) {
    Values same;
    for (size_t o = 0; o < recipe_.shapes.size(); ++o) {
      if (o != 1 && shape(o) == shape(v)) {
        same.push_back(o);
      }
    }
    return draw_.of(same);
  }
  // `out` is passed by value, because it can refer to a shape in `recipe_`, whose memory moves.
  size_t add(std::string op, Values inputs, Symbols out, std::vector<Attribute> attributes = {}) {
    recipe_.steps.push_back({std::move(op), std::move(inputs), std::move(attributes)});
    recipe_.shapes.push_back(
        elements(at_length(out, kCapacity)) > kMostElements || out.size() > 5 ? Symbols{} : out);
    if (recipe_.shapes.back() != out) {  // removes a result that is too large
      recipe_.shapes.pop_back();
      recipe_.steps.pop_back();
    }
    return recipe_.shapes.size() - 1;
  }
  // The number of parameters is not known before the end, so parameters have numbers of their own.
  static constexpr size_t kParameter = 1000;
  static constexpr size_t kPoison = 999;
  size_t parameter(const Symbols& p) {
    recipe_.parameters.push_back(p);
    return kParameter + recipe_.parameters.size() - 1;
  }

  size_t norm(size_t v) { return add("RmsNorm", {v, parameter({shape(v).back()})}, shape(v)); }
  // Makes x NaN behind the actual length: the ids are 0 there, and row 0 of the table is NaN.
  void poison() {
    Symbols rows = shape(0);
    for (int64_t& d : rows) {
      d = d == kSeq ? kSeq : 1;
    }
    rows.back() = 4;
    const size_t y = add("Embedding", {kPoison, 1}, {kSeq, 4});
    const size_t aligned = add("Reshape", {y}, rows, {{"dims", named(rows)}});
    add("Add", {0, aligned}, shape(0));
  }

  void one() {
    const size_t v = any();
    if (rank(v) == 0) {
      return;
    }
    const Symbols s = shape(v);
    const int64_t axis = draw_.below(rank(v));
    const bool is_row = s.back() != kSeq;
    switch (draw_.below(16)) {
      case 0:
        add(draw_.of(std::vector<std::string>{"Tanh", "Relu", "Gelu", "Silu", "Softplus"}), {v}, s);
        return;
      case 1:
        add(draw_.of(std::vector<std::string>{"Add", "Sub", "Mul"}), {v, like(v)}, s);
        return;
      case 2:
        if (is_row) {
          add("Add", {v, parameter({s.back()})}, s);
        }
        return;
      case 3:
        if (is_row) {
          Symbols out = s;
          out.back() = 1 + draw_.below(6);
          add("Linear", {v, parameter({out.back(), s.back()})}, out);
        }
        return;
      case 4:
        transpose(v);
        return;
      case 5:
        add("Softmax", {v}, s);
        return;
      case 6:
        product(v);
        return;
      case 7:
        reduce(v, axis, "ReduceSum");
        return;
      case 8:
        reduce(v, axis, "ReduceMean");
        return;
      case 9:
        reshape(v, axis);
        return;
      case 10: {
        if (s[static_cast<size_t>(axis)] == kSeq) {
          return;
        }
        Symbols out = s;
        out[static_cast<size_t>(axis)] *= 2;
        add("Concat", {v, like(v)}, out, {{"axis", axis}});
        return;
      }
      case 11:
        slice(v, axis);
        return;
      case 12:
        attention(v);
        return;
      case 13:
        if (is_row) {
          norm(v);
        }
        return;
      case 14:
        if (draw_.below(3) == 0) {
          add("Embedding", {parameter({7, 4}), 1}, {kSeq, 4});
        }
        return;
      default:
        positions(v);
        return;
    }
  }

  void transpose(size_t v) {
    std::vector<GraphDim> permutation;
    Symbols out;
    for (int64_t a = 0; a < rank(v); ++a) {
      const auto at = draw_.below(a + 1);
      permutation.insert(permutation.begin() + at, GraphDim(a));
      out.insert(out.begin() + at, shape(v)[static_cast<size_t>(a)]);
    }
    add("Transpose", {v}, out, {{"permutation", permutation}});
  }
  // x x^T, x^T x, or a product with a value of matching sizes.
  void product(size_t v) {
    if (rank(v) < 2) {
      return;
    }
    const Symbols s = shape(v);
    const auto last = s.size() - 1;
    for (size_t o = 2; o < recipe_.shapes.size() && draw_.below(2) == 0; ++o) {
      const Symbols& other = shape(o);
      if (other.size() == s.size() && other[last - 1] == s[last] &&
          std::equal(s.begin(), s.end() - 2, other.begin())) {
        Symbols out = s;
        out[last] = other[last];
        add("MatMul", {v, o}, out);
        return;
      }
    }
    const bool a = draw_.below(2) == 0;
    Symbols out = s;
    out[last] = out[last - 1] = a ? s[last] : s[last - 1];
    add("MatMul", {v, like(v)}, out, {{"transpose_a", a}, {"transpose_b", !a}});
  }
  void reduce(size_t v, int64_t axis, const char* op) {
    Symbols out = shape(v);
    const bool keep = draw_.below(2) == 0;
    keep ? void(out[static_cast<size_t>(axis)] = 1) : void(out.erase(out.begin() + axis));
    add(op, {v}, out, {{"axes", std::vector<GraphDim>{axis}}, {"keep_dims", keep}});
  }
  // Adds an axis of size 1, splits an axis of even size, or merges two axes.
  void reshape(size_t v, int64_t axis) {
    Symbols out = shape(v);
    auto& size = out[static_cast<size_t>(axis)];
    const int64_t kind = draw_.below(3);
    if (kind == 0) {
      out.insert(out.begin() + axis, 1);
    } else if (kind == 1 && size != kSeq && size % 2 == 0) {
      size /= 2;
      out.insert(out.begin() + axis, 2);
    } else if (axis + 1 < rank(v)) {
      const int64_t next = out[static_cast<size_t>(axis) + 1];
      if ((size == kSeq && next != 1) || (next == kSeq && size != 1)) {
        return;
      }
      size = size == kSeq || next == kSeq ? kSeq : size * next;
      out.erase(out.begin() + axis + 1);
    }
    add("Reshape", {v}, out, {{"dims", named(out)}});
  }
  void slice(size_t v, int64_t axis) {
    Symbols out = shape(v);
    auto& size = out[static_cast<size_t>(axis)];
    if (size == kSeq) {
      add("Slice", {v}, out, {{"axis", axis}, {"length", draw_.below(2) == 0 ? -1 : 1}});
      if (recipe_.steps.back().op == "Slice" && draw_.below(2) == 0) {
        recipe_.steps.back().attributes[1] = Attribute("length", "seq");
      } else {
        recipe_.steps.back().attributes[1] = Attribute("length", -1);
      }
      return;
    }
    const int64_t start = draw_.below(size);
    size = 1 + draw_.below(size - start);
    add("Slice", {v}, out, {{"axis", axis}, {"start", start}, {"length", size}});
  }
  void attention(size_t v) {
    if (rank(v) == 4) {
      add("Attention", {like(v), v, like(v)}, shape(v), {{"causal", draw_.below(2) == 0}});
    } else if (rank(v) == 3) {
      Symbols heads = shape(v);
      heads.insert(heads.begin() + 2, 1);
      const size_t count = recipe_.steps.size();
      const size_t h = add("Reshape", {v}, heads, {{"dims", named(heads)}});
      if (recipe_.steps.size() > count) {
        add("Attention", {h, h, h}, heads, {{"causal", draw_.below(2) == 0}});
      }
    }
  }
  // Adds as many rows of a table as the run has.
  void positions(size_t v) {
    const Symbols s = shape(v);
    if (s.size() < 2 || s[s.size() - 2] != kSeq || s.back() == kSeq) {
      return;
    }
    const size_t count = recipe_.steps.size();
    const size_t rows = add("Slice", {parameter({kCapacity + 3, s.back()})}, {kSeq, s.back()},
                            {{"axis", 0}, {"start", 2}, {"length", "seq"}});
    if (recipe_.steps.size() > count) {
      add("Add", {v, rows}, s);
    }
  }

  Draw draw_;
  Recipe recipe_;
};

constexpr size_t kPoison = 999;
constexpr size_t kFirstParameter = 1000;

struct Built {
  Model model;
  Status status;
};

Built build(const Recipe& r, bool counted, const Device& device) {
  Built out{with_seq(counted), {}};
  const Parameter poisonous = poisonous_table(out.model);
  std::vector<Parameter> parameters;
  for (size_t p = 0; p < r.parameters.size(); ++p) {
    parameters.push_back(must(
        out.model.parameter(format("p{}", p), at_length(r.parameters[p], 0), Init::uniform(1))));
  }
  GraphBuilder g(out.model, "g");
  std::vector<Value> values = {g.input("x", DType::f32, named(r.shapes[0])),
                               g.input("ids", DType::i32, named(r.shapes[1]))};
  std::vector<bool> used(r.shapes.size());
  for (const Step& step : r.steps) {
    std::vector<Value> inputs;
    for (const size_t v : step.inputs) {
      if (v >= kPoison) {
        inputs.push_back(g.parameter(v == kPoison ? poisonous : parameters[v - kFirstParameter]));
      } else {
        inputs.push_back(values[v]);
        used[v] = true;
      }
    }
    values.push_back(g.op(step.op, inputs, step.attributes));
  }
  for (size_t v = 2; v < values.size(); ++v) {
    if (!used[v]) {
      g.output(format("y{}", v), values[v]);
    }
  }
  out.status = g.finish();
  if (out.status.ok()) {
    EXPECT_OK(out.model.materialize(3));
    poison(out.model);
    EXPECT_OK(out.model.to(device));
  }
  return out;
}

std::vector<Floats> run(Session& s, const Recipe& r, int64_t n) {
  Draw draw(static_cast<uint64_t>(n) + 5);
  Floats x = draw.floats(elements(at_length(r.shapes[0], n)), static_cast<float>(n));
  Ids ids = draw.ids(n, 2);
  for (int32_t& id : ids) {
    ++id;
  }
  const Tensor in[] = {tensor("x", at_length(r.shapes[0], n), x), tensor("ids", {n}, ids)};
  std::vector<bool> used(r.shapes.size());
  for (const Step& step : r.steps) {
    for (const size_t v : step.inputs) {
      used[v < kPoison ? v : 0] = true;
    }
  }
  std::vector<Floats> out;
  std::vector<std::string> names;
  std::vector<Dims> shapes;
  for (size_t v = 2; v < r.shapes.size(); ++v) {
    if (!used[v]) {
      shapes.push_back(at_length(r.shapes[v], n));
      out.emplace_back(static_cast<size_t>(elements(shapes.back())));
      names.push_back(format("y{}", v));
    }
  }
  std::vector<Tensor> to;
  for (size_t i = 0; i < out.size(); ++i) {
    to.push_back(tensor(names[i], shapes[i], out[i]));
  }
  EXPECT_OK(s.run(in, to));
  return out;
}

std::string text_of(const Recipe& r) {
  std::string out = "x " + format("{}", r.shapes[0].size());
  for (size_t i = 0; i < r.steps.size(); ++i) {
    out += format("\n{}: {}(", i + 2, r.steps[i].op);
    for (const size_t v : r.steps[i].inputs) {
      out += format(" {}", v);
    }
    out += ") [";
    for (const int64_t d : r.shapes[i + 2]) {
      out += format(" {}", d);
    }
    out += " ]";
  }
  return out;
}

// The tolerance scales with the largest element, because sums and products spread its rounding
// error.
void expect_same(const Floats& got, const Floats& wanted, const std::string& where) {
  ASSERT_EQ(got.size(), wanted.size());
  float largest = 1;
  for (const float w : wanted) {
    largest = std::isfinite(w) ? std::max(largest, std::abs(w)) : largest;
  }
  for (size_t i = 0; i < got.size(); ++i) {
    const bool same = std::isnan(wanted[i])   ? std::isnan(got[i])
                      : std::isinf(wanted[i]) ? got[i] == wanted[i]
                                              : std::abs(got[i] - wanted[i]) <= 1e-4f * largest;
    ASSERT_TRUE(same) << where << ", element " << i << ": " << got[i] << ", not " << wanted[i];
  }
}

class CountedRandom : public OnDevice {};
BOWLINE_ON_ALL_DEVICES(CountedRandom);

TEST_P(CountedRandom, GraphsEqualThoseThatAreBoundToTheLength) {
  const uint64_t graphs = GetParam() == "cpu" ? kGraphs : kFewGraphs;
  uint64_t ran = 0, masked = 0;
  for (uint64_t seed = 1; seed <= graphs; ++seed) {
    const Recipe recipe = Drawer(seed).draw();
    Built counted = build(recipe, true, device_), bound = build(recipe, false, device_);
    ASSERT_TRUE(bound.status.ok()) << bound.status.message() << "\nseed " << seed << "\n"
                                   << text_of(recipe);
    std::vector<BoundDim> dims = {{"seq", kCapacity}};
    Result<Session> one = Session::create(counted.model, device_, "g", dims);
    if (!one.ok()) {
      ASSERT_EQ(one.status().code(), Code::unsupported)
          << one.status().message() << "\nseed " << seed << "\n"
          << text_of(recipe);
      continue;
    }
    ++ran;
    masked += must(one.value().listing("forward")).find("MaskTail") != std::string::npos ? 1 : 0;
    for (const int64_t n : {kCapacity, int64_t{1}, static_cast<int64_t>(2 + seed % 14)}) {
      dims[0].value = n;
      Session exact = must(Session::create(bound.model, device_, "g", dims));
      const std::vector<Floats> got = run(one.value(), recipe, n);
      const std::vector<Floats> wanted = run(exact, recipe, n);
      for (size_t i = 0; i < got.size(); ++i) {
        expect_same(got[i], wanted[i], format("output {} of length {}", i, n));
      }
      ASSERT_FALSE(HasFailure()) << "seed " << seed << "\n"
                                 << text_of(recipe) << "\n"
                                 << must(one.value().listing("forward"));
    }
  }
  EXPECT_GE(2 * ran, graphs) << "of the graphs few are within the rules";
  EXPECT_GE(6 * masked, graphs) << "of the graphs few mix what is counted";
}

}  // namespace
}  // namespace bowline::test
