// Draws random models with the makers in kMakers, and with operators from their cases. All sizes
// are small, so that many models run in a second.
#include <algorithm>
#include <optional>
#include <set>

#include "base/checked.h"
#include "conformance/random/dice.h"
#include "conformance/random/patterns.h"
#include "core/optimizers.h"

namespace bowline::conformance::random {
namespace {

constexpr int64_t kMostElements = 48;
constexpr int kMostRank = 4;

// A graph under construction. A body knows its outer graph.
struct Scope {
  Graph* graph = nullptr;
  Scope* outer = nullptr;
  uint32_t count = 1;
  std::vector<Ref> floats;  // the values that an operator may read
};

class Drawer {
 public:
  explicit Drawer(uint64_t seed) : dice_(seed) { recipe_.seed = seed; }

  Recipe draw();

 private:
  using Maker = bool (Drawer::*)(Scope&);

  Ref append(Scope& s, Node node);
  std::optional<Ref> op(Scope& s, Op op, std::vector<Ref> inputs,
                        std::vector<Attribute> attributes = {});
  Ref input(Scope& s, const Shape& shape, int64_t classes);
  Ref brought_in(Scope& s, Ref outer);
  Ref any(Scope& s);
  std::optional<Ref> of_shape(Scope& s, const Shape& shape);
  std::optional<Ref> of_rank(Scope& s, int least, int most);
  std::optional<Ref> parameter(Scope& s, const Shape& shape, double size, double offset = 0);
  std::optional<uint32_t> item(const Shape& shape, bool transpose, double size, double offset);
  std::optional<uint32_t> shared(const Shape& flat, bool transpose);
  uint32_t fresh(const Shape& flat, bool transpose, double size, double offset);
  uint32_t add_parameter(uint32_t storage, View view);
  Shape broadcast_partner(const Shape& shape);

  bool unary(Scope& s);
  bool binary(Scope& s);
  bool scaled(Scope& s);
  bool reshape(Scope& s);
  bool transpose(Scope& s);
  bool slice(Scope& s);
  bool concat(Scope& s);
  bool split(Scope& s);
  bool reduce(Scope& s);
  bool mat_mul(Scope& s);
  bool product(Scope& s);
  bool linear(Scope& s);
  bool embedding(Scope& s);
  bool layer_norm(Scope& s);
  bool rms_norm(Scope& s);
  bool rope(Scope& s);
  std::optional<Ref> heads_of(Scope& s, Ref x, int64_t heads, int64_t dim, double rotated);
  std::optional<Ref> with_past(Scope& s, Ref rows, int64_t past);
  std::optional<Ref> mask(Scope& s, AttentionMask kind, const Shape& scores);
  std::optional<Ref> attend(Scope& s, std::vector<Ref> parts);
  bool attention(Scope& s);
  bool dropout(Scope& s);
  bool cross_entropy(Scope& s);
  std::optional<Ref> adapted(Scope& s, Ref value, const Shape& shape);
  std::optional<Ref> truth(Scope& s, const Shape& shape);
  std::optional<Ref> operand(Scope& s, const Shape& shape, bool plain, bool positive);
  bool by_case(Scope& s);
  bool repeat(Scope& s);
  bool repeat_again(Scope& s);

  void make_some(Scope& s, int64_t number);
  void fill_body(Scope& s, Node& node);
  void fold_unused(Scope& s, std::vector<Ref>& results);
  Ref to_scalar(Scope& s, Ref value);
  void finish_loss(Scope& s);
  void draw_probe();
  void draw_options();

  static const std::vector<Maker> kMakers;

  Dice dice_;
  Recipe recipe_;
  bool may_add_storages_ = true;
};

const std::vector<Drawer::Maker> Drawer::kMakers = {
    &Drawer::unary,      &Drawer::unary,    &Drawer::binary,        &Drawer::binary,
    &Drawer::scaled,     &Drawer::scaled,   &Drawer::scaled,        &Drawer::reshape,
    &Drawer::transpose,  &Drawer::slice,    &Drawer::concat,        &Drawer::split,
    &Drawer::reduce,     &Drawer::mat_mul,  &Drawer::mat_mul,       &Drawer::product,
    &Drawer::linear,     &Drawer::linear,   &Drawer::linear,        &Drawer::embedding,
    &Drawer::layer_norm, &Drawer::rms_norm, &Drawer::rope,          &Drawer::attention,
    &Drawer::attention,  &Drawer::dropout,  &Drawer::cross_entropy, &Drawer::by_case,
    &Drawer::by_case,    &Drawer::by_case,  &Drawer::by_case,       &Drawer::by_case,
    &Drawer::by_case,    &Drawer::by_case,  &Drawer::by_case,       &Drawer::by_case,
    &Drawer::by_case,    &Drawer::by_case,  &Drawer::by_case};

Ref Drawer::append(Scope& s, Node node) {
  s.graph->nodes.push_back(std::move(node));
  return {static_cast<uint32_t>(s.graph->nodes.size() - 1), 0};
}

// Adds an operator if inference accepts the inputs and the result is small.
std::optional<Ref> Drawer::op(Scope& s, Op op, std::vector<Ref> inputs,
                              std::vector<Attribute> attributes) {
  std::vector<Shape> shapes;
  std::vector<DType> dtypes;
  for (const Ref r : inputs) {
    shapes.push_back(s.graph->shape(r));
    dtypes.push_back(s.graph->dtype(r));
  }
  const Result<Attributes> packed = attributes_from(op, attributes);
  if (!packed.ok()) {
    return {};
  }
  Result<Signature> made = infer(op, packed.value(), shapes, dtypes);
  if (!made.ok() || made.value().shapes[0].elements() > kMostElements ||
      made.value().shapes[0].elements() == 0 || made.value().shapes[0].rank() > kMostRank) {
    return {};
  }
  Node node;
  node.op = op;
  node.inputs = std::move(inputs);
  node.attributes = std::move(attributes);
  node.shapes = std::move(made.value().shapes);
  node.dtypes = std::move(made.value().dtypes);
  const bool is_float = node.dtypes[0] == DType::f32;
  const Ref out = append(s, std::move(node));
  if (is_float) {
    s.floats.push_back(out);
  }
  return out;
}

// Returns an input of the entry point. A body captures it.
Ref Drawer::input(Scope& s, const Shape& shape, int64_t classes) {
  Scope& top = s.outer != nullptr ? *s.outer : s;
  std::optional<Ref> found;
  for (uint32_t n = 0; n < top.graph->nodes.size(); ++n) {
    const Node& node = top.graph->nodes[n];
    if (node.kind == Node::Kind::input && node.classes == classes && node.shapes[0] == shape &&
        dice_.chance(0.7)) {
      found = Ref{n, 0};
    }
  }
  if (!found) {
    Node node;
    node.kind = Node::Kind::input;
    node.shapes = {shape};
    node.classes = classes;
    node.item =
        static_cast<uint32_t>(std::ranges::count(top.graph->nodes, Node::Kind::input, &Node::kind));
    found = append(top, std::move(node));
  }
  return s.outer != nullptr ? brought_in(s, *found) : *found;
}

Ref Drawer::brought_in(Scope& s, Ref outer) {
  for (uint32_t n = 0; n < s.graph->nodes.size(); ++n) {
    const Node& node = s.graph->nodes[n];
    if (node.kind == Node::Kind::capture && node.outer == outer) {
      return {n, 0};
    }
  }
  Node node;
  node.kind = Node::Kind::capture;
  node.outer = outer;
  node.shapes = {s.outer->graph->shape(outer)};
  node.classes = s.outer->graph->nodes[outer.node].classes;
  node.dtypes = {s.outer->graph->dtype(outer)};
  return append(s, std::move(node));
}

// Returns a value to read: mostly a new value, sometimes a value of the outer graph.
Ref Drawer::any(Scope& s) {
  if (s.outer != nullptr && dice_.chance(0.12)) {
    const Ref r = brought_in(s, dice_.of(s.outer->floats));
    s.floats.push_back(r);
    return r;
  }
  const auto n = static_cast<int64_t>(s.floats.size());
  const int64_t back = std::min(dice_.below(n), dice_.below(n));
  return s.floats[static_cast<size_t>(n - 1 - back)];
}

std::optional<Ref> Drawer::of_shape(Scope& s, const Shape& shape) {
  std::vector<Ref> fitting;
  std::ranges::copy_if(s.floats, std::back_inserter(fitting),
                       [&](Ref r) { return s.graph->shape(r) == shape; });
  return fitting.empty() ? std::nullopt : std::optional(dice_.of(fitting));
}

std::optional<Ref> Drawer::of_rank(Scope& s, int least, int most) {
  std::vector<Ref> fitting;
  std::ranges::copy_if(s.floats, std::back_inserter(fitting), [&](Ref r) {
    const int rank = s.graph->shape(r).rank();
    return rank >= least && rank <= most;
  });
  return fitting.empty() ? std::nullopt : std::optional(dice_.of(fitting));
}

uint32_t Drawer::add_parameter(uint32_t storage, View view) {
  ParameterRow row;
  row.storage = storage;
  row.by_verb = dice_.chance(0.3);
  row.view = std::move(view);
  recipe_.parameters.push_back(std::move(row));
  return static_cast<uint32_t>(recipe_.parameters.size() - 1);
}

// Returns a parameter that shows rows of an existing storage as `flat`, if possible.
std::optional<uint32_t> Drawer::shared(const Shape& flat, bool transpose) {
  struct Fit {
    uint32_t storage;
    View view;
  };
  std::vector<Fit> fits;
  for (uint32_t k = 0; k < recipe_.storages.size(); ++k) {
    const Shape& whole = recipe_.storages[k].shape;
    const int64_t rest = whole.rank() == 0 ? 1 : whole.elements(1, whole.rank());
    const int64_t rows = whole.rank() == 0 ? 1 : whole[0];
    if (flat.elements() % rest != 0 || flat.elements() / rest > rows ||
        (whole.rank() == 0 && flat.elements() != 1)) {
      continue;
    }
    View v;
    v.transpose = transpose;
    Shape shown = whole;
    const int64_t taken = flat.elements() / rest;
    if (taken != rows) {
      v.row_start = dice_.between(0, rows - taken);
      v.rows = taken;
      shown[0] = taken;
    }
    if (!(shown == flat)) {
      v.shape.assign(flat.dims().begin(), flat.dims().end());
      if (v.shape.empty()) {
        continue;  // an empty shape means no reshape
      }
    }
    // Prefers whole storages of the same shape, which are the usual tie.
    const int weight = v == View{} ? 3 : 1;
    for (int w = 0; w < weight; ++w) {
      fits.push_back({k, v});
    }
  }
  if (fits.empty()) {
    return {};
  }
  const Fit& fit = dice_.of(fits);
  // The same name may also be used twice.
  for (uint32_t p = 0; p < recipe_.parameters.size(); ++p) {
    const ParameterRow& row = recipe_.parameters[p];
    if (row.storage == fit.storage && row.view == fit.view && dice_.chance(0.4)) {
      return p;
    }
  }
  return add_parameter(fit.storage, fit.view);
}

// Adds a new storage: with the shape of the view, flat, or with extra rows.
uint32_t Drawer::fresh(const Shape& flat, bool transpose, double size, double offset) {
  StorageRow row;
  View v;
  v.transpose = transpose;
  row.shape = flat;
  const int64_t kind = flat.rank() == 0 ? 0 : dice_.below(8);
  if (kind == 1) {
    row.shape = Shape{flat.elements()};
    v.shape.assign(flat.dims().begin(), flat.dims().end());
  } else if (kind <= 3 && kind >= 2) {
    row.shape[0] += dice_.between(1, 2);
    v.rows = flat[0];
    v.row_start = dice_.between(0, row.shape[0] - flat[0]);
  }
  if (Shape(v.shape) == row.shape) {
    v.shape.clear();
  }
  row.frozen = dice_.chance(0.1);
  for (const double x : conformance::draw(Values::normal, static_cast<size_t>(row.shape.elements()),
                                          dice_.bits(), 1)) {
    row.values.push_back(static_cast<float>(offset + size * x));
  }
  recipe_.storages.push_back(std::move(row));
  return add_parameter(static_cast<uint32_t>(recipe_.storages.size() - 1), std::move(v));
}

// Returns a parameter of shape `shape`, optionally as a transposed view of its storage.
std::optional<uint32_t> Drawer::item(const Shape& shape, bool transpose, double size,
                                     double offset) {
  Shape flat = shape;
  if (transpose) {
    std::swap(flat[flat.rank() - 1], flat[flat.rank() - 2]);
  }
  std::optional<uint32_t> out;
  if (!may_add_storages_ || dice_.chance(0.5)) {
    out = shared(flat, transpose);
  }
  if (!out && may_add_storages_) {
    out = fresh(flat, transpose, size, offset);
  }
  return out;
}

std::optional<Ref> Drawer::parameter(Scope& s, const Shape& shape, double size, double offset) {
  if (shape.elements() > kMostElements) {
    return {};
  }
  if (s.outer != nullptr && dice_.chance(0.08)) {
    const auto captured = parameter(*s.outer, shape, size, offset);
    return captured ? std::optional(brought_in(s, *captured)) : std::nullopt;
  }
  const bool transpose = shape.rank() >= 2 && dice_.chance(0.25);
  Node node;
  node.kind = Node::Kind::parameter;
  node.shapes = {shape};
  const uint32_t items = s.outer != nullptr && !dice_.chance(0.2) ? s.count : 1;
  for (uint32_t i = 0; i < items; ++i) {
    const auto p = item(shape, transpose, size, offset);
    if (!p) {
      return {};
    }
    node.parameters.push_back(*p);
    // Model::tie() ties one item at a time. A list with only some transposed items is refused, so
    // such lists are not tied by the verb.
    ParameterRow& row = recipe_.parameters[*p];
    row.by_verb = row.by_verb && (items == 1 || !transpose);
  }
  return append(s, std::move(node));
}

// Returns a shape that broadcasts to `shape`.
Shape Drawer::broadcast_partner(const Shape& shape) {
  const int64_t dropped = dice_.chance(0.5) ? 0 : dice_.between(0, shape.rank());
  Shape out(shape.dims().subspan(static_cast<size_t>(dropped)));
  for (int a = 0; a < out.rank(); ++a) {
    out[a] = dice_.chance(0.2) ? 1 : out[a];
  }
  return out;
}

bool Drawer::unary(Scope& s) {
  static const std::vector<Op> kOps = {Op::Relu, Op::Silu, Op::Gelu, Op::Tanh, Op::Softmax};
  const Op chosen = dice_.of(kOps);
  std::vector<Attribute> attributes;
  if (chosen == Op::Gelu) {
    attributes.emplace_back("form", static_cast<double>(dice_.below(2)));
  }
  return op(s, chosen, {any(s)}, std::move(attributes)).has_value();
}

bool Drawer::binary(Scope& s) {
  static const std::vector<Op> kOps = {Op::Add, Op::Sub, Op::Mul};
  const Ref a = any(s);
  const Ref b = dice_.chance(0.1) ? a : of_shape(s, s.graph->shape(a)).value_or(any(s));
  return op(s, dice_.of(kOps), dice_.chance(0.5) ? std::vector{a, b} : std::vector{b, a})
      .has_value();
}

bool Drawer::scaled(Scope& s) {
  static const std::vector<Op> kOps = {Op::Add, Op::Sub, Op::Mul, Op::Mul};
  const Ref x = any(s);
  const auto w = parameter(s, broadcast_partner(s.graph->shape(x)), 0.5);
  return w && op(s, dice_.of(kOps), dice_.chance(0.5) ? std::vector{x, *w} : std::vector{*w, x});
}

std::vector<GraphDim> dims_of(const Shape& shape) {
  return {shape.dims().begin(), shape.dims().end()};
}

bool Drawer::reshape(Scope& s) {
  const Ref x = any(s);
  const Shape shape = s.graph->shape(x);
  Shape to;
  if (shape.rank() >= 2 && dice_.chance(0.5)) {  // merges two axes
    const int at = static_cast<int>(dice_.below(shape.rank() - 1));
    for (int a = 0; a < shape.rank(); ++a) {
      a == at + 1 ? void(to[to.rank() - 1] *= shape[a]) : to.push_back(shape[a]);
    }
  } else {  // splits an axis or adds an axis of size 1
    const int at = shape.rank() == 0 ? 0 : static_cast<int>(dice_.below(shape.rank()));
    for (int a = 0; a < shape.rank(); ++a) {
      const int64_t part = a == at && shape[a] % 2 == 0 ? 2 : 1;
      if (a == at) {
        to.push_back(part);
      }
      to.push_back(shape[a] / part);
    }
  }
  return op(s, Op::Reshape, {x}, {{"dims", dims_of(to)}}).has_value();
}

bool Drawer::transpose(Scope& s) {
  const auto x = of_rank(s, 2, kMostRank);
  if (!x) {
    return false;
  }
  std::vector<GraphDim> permutation;
  for (int a = 0; a < s.graph->shape(*x).rank(); ++a) {
    permutation.insert(permutation.begin() + dice_.below(a + 1), GraphDim(a));
  }
  return op(s, Op::Transpose, {*x}, {{"permutation", std::move(permutation)}}).has_value();
}

bool Drawer::slice(Scope& s) {
  const auto x = of_rank(s, 1, kMostRank);
  if (!x) {
    return false;
  }
  const Shape shape = s.graph->shape(*x);
  const int64_t axis = dice_.below(shape.rank());
  const int64_t start = dice_.below(shape[static_cast<int>(axis)]);
  const int64_t length = dice_.between(1, shape[static_cast<int>(axis)] - start);
  return op(s, Op::Slice, {*x},
            {{"axis", static_cast<double>(axis)},
             {"start", static_cast<double>(start)},
             {"length", static_cast<double>(length)}})
      .has_value();
}

bool Drawer::concat(Scope& s) {
  const auto x = of_rank(s, 1, kMostRank);
  if (!x) {
    return false;
  }
  std::vector<Ref> parts = {*x};
  const size_t most = dice_.chance(0.1) ? 11 : 3;
  while (parts.size() < most && (parts.size() < 2 || dice_.chance(most > 3 ? 0.95 : 0.3))) {
    parts.push_back(*of_shape(s, s.graph->shape(*x)));
  }
  const int64_t axis = dice_.below(s.graph->shape(*x).rank());
  return op(s, Op::Concat, parts, {{"axis", static_cast<double>(axis)}}).has_value();
}

bool Drawer::split(Scope& s) {
  const auto x = of_rank(s, 1, kMostRank);
  if (!x) {
    return false;
  }
  const Shape shape = s.graph->shape(*x);
  const int axis = static_cast<int>(dice_.below(shape.rank()));
  std::vector<GraphDim> sizes;
  for (int64_t left = shape[axis]; left > 0; left -= sizes.back().value) {
    sizes.push_back(GraphDim(dice_.between(1, left)));
  }
  const auto first = op(s, Op::Split, {*x}, {{"axis", axis}, {"sizes", sizes}});
  for (uint32_t o = 1; first && o < sizes.size(); ++o) {
    s.floats.push_back({first->node, o});
  }
  return first.has_value();
}

bool Drawer::reduce(Scope& s) {
  const auto x = of_rank(s, 1, kMostRank);
  if (!x) {
    return false;
  }
  std::vector<GraphDim> axes;
  for (int a = 0; a < s.graph->shape(*x).rank(); ++a) {
    if (dice_.chance(0.4)) {
      axes.emplace_back(a);
    }
  }
  if (axes.empty()) {
    axes.emplace_back(-1);
  }
  return op(s, dice_.chance(0.5) ? Op::ReduceSum : Op::ReduceMean, {*x},
            {{"axes", std::move(axes)}, {"keep_dims", dice_.chance(0.7) ? 1.0 : 0.0}})
      .has_value();
}

bool Drawer::mat_mul(Scope& s) {
  const auto x = of_rank(s, 2, 3);
  if (!x) {
    return false;
  }
  const Shape shape = s.graph->shape(*x);
  const bool transposed_x = dice_.chance(0.3);
  const bool transposed_w = dice_.chance(0.5);
  const int64_t inner = shape[shape.rank() - (transposed_x ? 2 : 1)];
  const int64_t columns = dice_.chance(0.6) ? inner : dice_.between(1, 4);
  const auto w = parameter(s, transposed_w ? Shape{columns, inner} : Shape{inner, columns}, 0.6);
  return w &&
         op(s, Op::MatMul, {*x, *w},
            {{"transpose_a", transposed_x ? 1.0 : 0.0}, {"transpose_b", transposed_w ? 1.0 : 0.0}});
}

// A product of two values, as in attention that is written by hand.
bool Drawer::product(Scope& s) {
  const auto x = of_rank(s, 2, 3);
  if (!x) {
    return false;
  }
  const Ref y = *of_shape(s, s.graph->shape(*x));
  const bool left = dice_.chance(0.5);
  return op(s, Op::MatMul, {*x, y},
            {{"transpose_a", left ? 1.0 : 0.0}, {"transpose_b", left ? 0.0 : 1.0}})
      .has_value();
}

bool Drawer::linear(Scope& s) {
  const auto x = of_rank(s, 1, kMostRank);
  if (!x) {
    return false;
  }
  const int64_t in = s.graph->shape(*x).back();
  const int64_t out = dice_.chance(0.6) ? in : dice_.between(1, 4);
  const auto w = parameter(s, Shape{out, in}, 0.6);
  if (!w) {
    return false;
  }
  std::vector<Ref> inputs = {*x, *w};
  if (dice_.chance(0.5)) {
    const auto bias = parameter(s, Shape{out}, 0.3);
    if (!bias) {
      return false;
    }
    inputs.push_back(*bias);
  }
  return op(s, Op::Linear, std::move(inputs)).has_value();
}

bool Drawer::embedding(Scope& s) {
  const auto x = of_rank(s, 1, 3);
  if (!x) {
    return false;
  }
  const Shape shape = s.graph->shape(*x);
  // As before a recurrent layer: if the table has at most half as many rows as there are ids,
  // training multiplies the table instead of the rows.
  const bool multiplied = dice_.chance(0.5);
  const int64_t half = std::max<int64_t>(shape.elements() / shape.back() / 2, 1);
  const auto table = parameter(
      s, Shape{multiplied ? dice_.between(1, half) : dice_.between(2, 4), shape.back()}, 0.6);
  if (!table) {
    return false;
  }
  const int64_t rows = s.graph->shape(*table)[0];
  const Ref ids = input(s, Shape(shape.dims().first(static_cast<size_t>(shape.rank() - 1))), rows);
  auto rows_read = op(s, Op::Embedding, {*table, ids});
  if (rows_read && multiplied) {
    const auto w = parameter(s, Shape{shape.back(), shape.back()}, 0.6);
    const bool linear = shape.rank() == 1 || dice_.chance(0.5);
    rows_read = w ? op(s, linear ? Op::Linear : Op::MatMul, {*rows_read, *w}) : std::nullopt;
  }
  return rows_read && op(s, Op::Add, {*x, *rows_read});
}

bool Drawer::layer_norm(Scope& s) {
  const auto x = of_rank(s, 1, kMostRank);
  if (!x) {
    return false;
  }
  const Shape row{s.graph->shape(*x).back()};
  const auto gamma = parameter(s, row, 0.2, 1);
  const auto beta = parameter(s, row, 0.2);
  return gamma && beta && op(s, Op::LayerNorm, {*x, *gamma, *beta}, {{"eps", 1e-2}});
}

bool Drawer::rms_norm(Scope& s) {
  const auto x = of_rank(s, 1, kMostRank);
  if (!x) {
    return false;
  }
  const auto gamma = parameter(s, Shape{s.graph->shape(*x).back()}, 0.2, 1);
  return gamma && op(s, Op::RmsNorm, {*x, *gamma}, {{"eps", 1e-2}});
}

bool Drawer::rope(Scope& s) {
  const auto x = of_rank(s, 4, 4);
  return x && op(s, Op::Rope, {*x},
                 {{"base", 100},
                  {"interleaved", static_cast<double>(dice_.below(2))},
                  {"position_offset", static_cast<double>(dice_.below(3))}});
}

// Returns the heads of x [B, T, C], with a projection if the number of elements differs.
std::optional<Ref> Drawer::heads_of(Scope& s, Ref x, int64_t heads, int64_t dim, double rotated) {
  const Shape shape = s.graph->shape(x);
  std::optional<Ref> out = x;
  if (heads * dim != shape[2] || dice_.chance(0.6)) {
    const auto w = parameter(s, Shape{heads * dim, shape[2]}, 0.6);
    out = w ? op(s, Op::Linear, {x, *w}) : std::nullopt;
  }
  if (out) {
    out = op(s, Op::Reshape, {*out}, {{"dims", dims_of(Shape{shape[0], shape[1], heads, dim})}});
  }
  return out && dim % 2 == 0 && dice_.chance(rotated) ? op(s, Op::Rope, {*out}, {{"base", 100}})
                                                      : out;
}

// Returns keys or values like a cache: with `past` rows in front, or without the last -`past` rows.
std::optional<Ref> Drawer::with_past(Scope& s, Ref rows, int64_t past) {
  Shape shape = s.graph->shape(rows);
  if (past < 0) {
    return op(s, Op::Slice, {rows},
              {{"axis", 1}, {"start", 0}, {"length", static_cast<double>(shape[1] + past)}});
  }
  if (past == 0) {
    return rows;
  }
  shape[1] = past;
  const auto front = dice_.chance(0.5) ? parameter(s, shape, 0.5) : input(s, shape, 0);
  return front ? op(s, Op::Concat, {*front, rows}, {{"axis", 1}}) : std::nullopt;
}

// Returns a mask of scores [B, Hq, Tq, Tk], or std::nullopt. An additive mask does not depend on
// weights.
std::optional<Ref> Drawer::mask(Scope& s, AttentionMask kind, const Shape& scores) {
  const int64_t batch = scores[0], queries = scores[2], keys = scores[3];
  switch (kind) {
    case AttentionMask::additive: {
      const std::vector<Shape> shapes = {Shape{keys}, Shape{queries, keys},
                                         Shape{batch, 1, 1, keys}, scores};
      return input(s, dice_.of(shapes), 0);
    }
    case AttentionMask::padding:
      return truth(s, Shape{batch, keys});
    case AttentionMask::lengths:
      return input(s, Shape{batch}, keys + 1);
    default:
      return {};
  }
}

// Attention of queries to keys with random values for all attributes.
std::optional<Ref> Drawer::attend(Scope& s, std::vector<Ref> parts) {
  static const std::vector<double> kCaps = {0.5, 2, 30};
  const Shape q = s.graph->shape(parts[0]);
  const int64_t keys = s.graph->shape(parts[1])[1];
  const bool causal = dice_.chance(0.6);
  std::vector<Attribute> attributes = {{"causal", causal ? 1.0 : 0.0}};
  if (causal && dice_.chance(0.6)) {
    attributes.emplace_back("window", dice_.chance(0.3) ? int64_t{1} : dice_.between(1, keys + 2));
  }
  if (dice_.chance(0.4)) {
    attributes.emplace_back("softcap", dice_.of(kCaps));
  }
  if (dice_.chance(0.2)) {
    attributes.emplace_back("scale", 0.75);
  }
  if (dice_.chance(0.35)) {
    const int64_t kind = dice_.between(1, 3);
    const auto shown = mask(s, static_cast<AttentionMask>(kind), Shape{q[0], q[2], q[1], keys});
    if (!shown) {
      return {};
    }
    attributes.emplace_back("mask", kind);
    parts.push_back(*shown);
  }
  return op(s, Op::Attention, std::move(parts), std::move(attributes));
}

bool Drawer::attention(Scope& s) {
  const auto x = of_rank(s, 3, 3);
  if (!x || s.graph->shape(*x)[2] % 2 != 0) {
    return false;
  }
  const Shape shape = s.graph->shape(*x);
  const int64_t heads = shape[2] == 4 && dice_.chance(0.5) ? 2 : 1;
  const int64_t key_heads = dice_.chance(0.4) ? 1 : heads;
  const int64_t dim = shape[2] / heads;
  int64_t past = 0;
  if (dice_.chance(0.4)) {
    const int64_t room = kMostElements / (shape[0] * key_heads * dim) - shape[1];
    past = dice_.between(1, std::min(room, dice_.chance(0.5) ? int64_t{3} : room));
  } else if (shape[1] > 1 && dice_.chance(0.15)) {
    past = -1;
  }
  const auto q = heads_of(s, *x, heads, dim, 0.5);
  auto k = q ? heads_of(s, *x, key_heads, dim, 0.5) : std::nullopt;
  auto v = k ? heads_of(s, *x, key_heads, dim, 0) : std::nullopt;
  k = v ? with_past(s, *k, past) : std::nullopt;
  v = k ? with_past(s, *v, past) : std::nullopt;
  const auto out = v ? attend(s, {*q, *k, *v}) : std::nullopt;
  return out && op(s, Op::Reshape, {*out}, {{"dims", dims_of(shape)}});
}

bool Drawer::dropout(Scope& s) {
  static const std::vector<double> kRates = {0.1, 0.25, 0.5};
  return op(s, Op::Dropout, {any(s)},
            {{"rate", dice_.of(kRates)}, {"stream", static_cast<double>(dice_.below(4))}})
      .has_value();
}

bool Drawer::cross_entropy(Scope& s) {
  const auto x = of_rank(s, 1, 3);
  if (!x || s.graph->shape(*x).back() < 2) {
    return false;
  }
  const Shape shape = s.graph->shape(*x);
  const Shape rows(shape.dims().first(static_cast<size_t>(shape.rank() - 1)));
  const Ref labels = input(s, rows, shape.back());
  std::vector<Attribute> attributes = {{"reduction", static_cast<double>(dice_.below(2))}};
  if (dice_.chance(0.3)) {
    attributes.emplace_back("ignore_index", 0);
  }
  return op(s, Op::CrossEntropy, {*x, labels}, std::move(attributes)).has_value();
}

// Returns the value with another shape: a part of its elements, or repetitions of them.
std::optional<Ref> Drawer::adapted(Scope& s, Ref value, const Shape& shape) {
  const Shape from = s.graph->shape(value);
  if (from == shape) {
    return value;
  }
  const int64_t has = from.elements(), wanted = shape.elements();
  std::optional<Ref> out = value;
  if (has != wanted) {
    out = op(s, Op::Reshape, {value}, {{"dims", dims_of(Shape{has})}});
    if (out && has < wanted) {
      out = op(s, Op::Tile, {*out}, {{"repeats", dims_of(Shape{(wanted + has - 1) / has})}});
    }
    if (out && s.graph->shape(*out)[0] != wanted) {
      out = op(s, Op::Slice, {*out},
               {{"axis", 0}, {"start", 0}, {"length", static_cast<double>(wanted)}});
    }
  }
  return out ? op(s, Op::Reshape, {*out}, {{"dims", dims_of(shape)}}) : std::nullopt;
}

// Returns booleans that do not depend on weights.
std::optional<Ref> Drawer::truth(Scope& s, const Shape& shape) {
  static const std::vector<Op> kOps = {Op::Less, Op::Greater, Op::LessOrEqual, Op::GreaterOrEqual};
  return op(s, dice_.of(kOps), {input(s, shape, 0), input(s, shape, 0)});
}

std::optional<Ref> Drawer::operand(Scope& s, const Shape& shape, bool plain, bool positive) {
  std::optional<Ref> out;
  if (plain || dice_.chance(0.1)) {
    out = input(s, shape, 0);
  } else if (dice_.chance(0.35)) {
    out = parameter(s, shape, 0.5);
  } else {
    out = of_shape(s, shape);
    out = out ? out : adapted(s, any(s), shape);
  }
  if (out && positive) {  // between 1 / e and e
    out = op(s, Op::Tanh, {*out});
    out = out ? op(s, Op::Exp, {*out}) : out;
  }
  return out;
}

// Adds an operator from one of its cases. Operators without gradient read no weights.
bool Drawer::by_case(Scope& s) {
  const Pattern& p = dice_.of(dice_.of(patterns()));
  const bool positive = dice_.chance(0.4);
  std::vector<Ref> inputs;
  for (const Pattern::Operand& o : p.operands) {
    const std::optional<Ref> r = o.classes > 0 ? input(s, o.shape, o.classes)
                                 : o.dtype == DType::boolean
                                     ? truth(s, o.shape)
                                     : operand(s, o.shape, !p.differentiable, positive);
    if (!r) {
      return false;
    }
    inputs.push_back(*r);
  }
  const auto out = op(s, p.op, std::move(inputs), p.attributes);
  if (!out || s.graph->dtype(*out) == DType::f32) {
    return out.has_value();
  }
  // Booleans choose between two values, and integers become floats. Results in 16 bits are dropped,
  // because a reference in double precision proves too little for them.
  if (is_float(s.graph->dtype(*out))) {
    return false;
  }
  const Shape shape = s.graph->shape(*out);
  if (s.graph->dtype(*out) != DType::boolean) {
    return op(s, Op::Cast, {*out}, {{"to", "f32"}}).has_value();
  }
  const auto a = operand(s, shape, false, false), b = operand(s, shape, false, false);
  return a && b && op(s, Op::Where, {*out, *a, *b});
}

void Drawer::make_some(Scope& s, int64_t number) {
  for (int tries = 0; number > 0 && tries < 40; ++tries) {
    number -= (this->*dice_.of(kMakers))(s) ? 1 : 0;
  }
}

std::set<Ref> read_in(const Graph& g) {
  std::set<Ref> read;
  for (const Node& n : g.nodes) {
    read.insert(n.inputs.begin(), n.inputs.end());
    for (const Graph& body : n.body) {
      for (const Node& inner : body.nodes) {
        if (inner.kind == Node::Kind::capture) {
          read.insert(inner.outer);
        }
      }
    }
  }
  return read;
}

// Adds unused results to the first carried value, so that their weights get gradients.
void Drawer::fold_unused(Scope& s, std::vector<Ref>& results) {
  std::set<Ref> read = read_in(*s.graph);
  read.insert(results.begin(), results.end());
  for (uint32_t n = 0, nodes = static_cast<uint32_t>(s.graph->nodes.size()); n < nodes; ++n) {
    const Node& node = s.graph->nodes[n];
    const size_t outputs = node.kind == Node::Kind::op ? results_of(node) : 0;
    for (uint32_t o = 0; o < outputs; ++o) {
      if (!read.contains({n, o}) && s.graph->dtype({n, o}) == DType::f32) {
        const auto mean = op(s, Op::ReduceMean, {{n, o}});
        results[0] = *op(s, Op::Add, {results[0], *mean});
      }
    }
  }
}

void Drawer::fill_body(Scope& s, Node& node) {
  Scope inner;
  node.body.resize(1);
  inner.graph = &node.body[0];
  inner.outer = &s;
  inner.count = node.count;
  for (uint32_t c = 0; c < node.inputs.size(); ++c) {
    Node carried;
    carried.kind = Node::Kind::carried;
    carried.item = c;
    carried.shapes = {s.graph->shape(node.inputs[c])};
    inner.floats.push_back(append(inner, std::move(carried)));
  }
  dice_.chance(0.5) ? linear(inner) : scaled(inner);
  make_some(inner, dice_.between(1, 5));
  std::vector<Ref> results;
  for (uint32_t c = 0; c < node.inputs.size(); ++c) {
    const Shape shape = inner.graph->nodes[c].shapes[0];
    std::vector<Ref> fitting;
    std::ranges::copy_if(inner.floats, std::back_inserter(fitting),
                         [&](Ref r) { return inner.graph->shape(r) == shape; });
    results.push_back(dice_.chance(0.7) ? fitting.back() : dice_.of(fitting));
  }
  fold_unused(inner, results);
  if (dice_.chance(0.5)) {  // keeps the values small
    results[0] = op(inner, Op::Tanh, {results[0]}).value_or(results[0]);
  }
  node.body[0].outputs = std::move(results);
}

bool Drawer::repeat(Scope& s) {
  Node node;
  node.kind = Node::Kind::repeat;
  node.count = static_cast<uint32_t>(dice_.between(1, 4));
  for (int64_t c = dice_.chance(0.5) ? 1 : dice_.between(2, 3); c > 0; --c) {
    // One value may enter twice.
    node.inputs.push_back(!node.inputs.empty() && dice_.chance(0.2) ? node.inputs[0] : any(s));
  }
  if (dice_.chance(0.1)) {  // a weight may be a carried value
    if (const auto w = parameter(s, s.graph->shape(node.inputs[0]), 0.5)) {
      node.inputs[0] = *w;
    }
  }
  for (const Ref r : node.inputs) {
    node.shapes.push_back(s.graph->shape(r));
  }
  fill_body(s, node);
  const Ref out = append(s, std::move(node));
  for (uint32_t o = 0; o < s.graph->nodes[out.node].shapes.size(); ++o) {
    s.floats.push_back({out.node, o});
  }
  return true;
}

// Repeats the body of an earlier Repeat on its results, with some lists reversed.
bool Drawer::repeat_again(Scope& s) {
  const auto it = std::ranges::find(s.graph->nodes, Node::Kind::repeat, &Node::kind);
  if (it == s.graph->nodes.end()) {
    return false;
  }
  const auto earlier = static_cast<uint32_t>(it - s.graph->nodes.begin());
  Node node = *it;
  for (uint32_t o = 0; o < node.inputs.size(); ++o) {
    node.inputs[o] = {earlier, o};
  }
  for (Node& inner : node.body[0].nodes) {
    if (inner.kind == Node::Kind::parameter && dice_.chance(0.5)) {
      std::ranges::reverse(inner.parameters);
    }
  }
  const Ref out = append(s, std::move(node));
  for (uint32_t o = 0; o < s.graph->nodes[out.node].shapes.size(); ++o) {
    s.floats.push_back({out.node, o});
  }
  return true;
}

// Returns a term of the loss: a cross entropy, or a mean with random weights.
Ref Drawer::to_scalar(Scope& s, Ref value) {
  const Shape shape = s.graph->shape(value);
  if (shape.rank() == 0) {
    return value;
  }
  if (shape.rank() >= 2 && shape.back() >= 2 && dice_.chance(0.4)) {
    const Shape rows(shape.dims().first(static_cast<size_t>(shape.rank() - 1)));
    return *op(s, Op::CrossEntropy, {value, input(s, rows, shape.back())});
  }
  const Ref weighted = *op(s, Op::Mul, {value, input(s, shape, 0)});
  return *op(s, dice_.chance(0.5) ? Op::ReduceMean : Op::ReduceSum, {weighted});
}

void Drawer::finish_loss(Scope& s) {
  const std::set<Ref> read = read_in(*s.graph);
  std::optional<Ref> sum;
  for (uint32_t n = 0, nodes = static_cast<uint32_t>(s.graph->nodes.size()); n < nodes; ++n) {
    const Node::Kind kind = s.graph->nodes[n].kind;
    const bool made = kind == Node::Kind::repeat || kind == Node::Kind::op;
    const size_t outputs = made ? results_of(s.graph->nodes[n]) : 0;
    for (uint32_t o = 0; o < outputs; ++o) {
      if (!read.contains({n, o}) && s.graph->dtype({n, o}) == DType::f32 &&
          (o == 0 || dice_.chance(0.9))) {
        const Ref term = to_scalar(s, {n, o});
        sum = sum ? *op(s, Op::Add, {*sum, term}) : term;
      }
    }
  }
  s.graph->outputs = {*sum};
}

void Drawer::draw_probe() {
  Scope s;
  s.graph = &recipe_.probe;
  may_add_storages_ = false;
  s.floats = {input(s, Shape{dice_.between(1, 3), dice_.chance(0.5) ? 4 : 2}, 0)};
  for (int tries = 0; tries < 12 && s.floats.size() < 3; ++tries) {
    dice_.chance(0.5) ? linear(s) : scaled(s);
  }
  recipe_.probe.outputs = {s.floats.back()};
}

void Drawer::draw_options() {
  static const std::vector<float> kRates = {0.2f, 0.05f, 0.01f};
  TrainOptions& o = recipe_.options;
  o.accumulation = static_cast<uint32_t>(dice_.between(1, 3));
  o.seed = dice_.bits();
  o.clip_norm = dice_.chance(0.4) ? 0.5f : 0;
  o.schedule.learning_rate = dice_.of(kRates);
  const OptimizerInfo& info =
      optimizers()[static_cast<size_t>(dice_.below(static_cast<int64_t>(optimizers().size())))];
  o.optimizer.name = info.name;
  for (const OptimizerSetting& s : info.settings) {
    const bool bounded = std::isfinite(s.min) && std::isfinite(s.max);
    const float other = s.is_flag                  ? 1
                        : s.name == "weight_decay" ? 0.1f
                        : bounded                  ? 0.9f
                        : std::isfinite(s.min)     ? 0.25f
                                                   : -0.5f;
    // With a tiny eps, a gradient that is only a rounding error moves a weight by the full
    // learning rate.
    if (s.name == "eps") {
      o.optimizer.settings.emplace(s.name, dice_.chance(0.9) ? 1e-3f : 1e-8f);
    } else if (dice_.chance(0.5)) {
      o.optimizer.settings.emplace(s.name, other);
    }
  }
  recipe_.steps = static_cast<uint32_t>(dice_.between(1, 3));
}

Recipe Drawer::draw() {
  Scope s;
  s.graph = &recipe_.loss;
  const int64_t channels = dice_.chance(0.6) ? 4 : 2;
  const Shape shape = dice_.chance(0.7) ? Shape{dice_.between(1, 2), dice_.between(1, 3), channels}
                                        : Shape{dice_.between(1, 3), channels};
  s.floats = {input(s, shape, 0)};
  make_some(s, dice_.between(0, 3));
  for (int64_t r = dice_.chance(0.85) ? dice_.between(1, 2) : 0; r > 0; --r) {
    dice_.chance(0.2) && repeat_again(s) ? true : repeat(s);
    make_some(s, dice_.between(0, 2));
  }
  while (recipe_.storages.empty()) {
    make_some(s, 1);
  }
  finish_loss(s);
  if (dice_.chance(0.4)) {
    draw_probe();
  }
  draw_options();
  return std::move(recipe_);
}

}  // namespace

uint64_t mixed(uint64_t seed, uint64_t number) {
  Dice dice(seed * 0xD1342543DE82EF95ull + number);
  return dice.bits();
}

Recipe draw_recipe(uint64_t seed) { return Drawer(seed).draw(); }

}  // namespace bowline::conformance::random
