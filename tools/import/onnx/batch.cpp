#include "onnx/batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/status.h"
#include "onnx/fold.h"

namespace bowline::onnx {
namespace {

using Axes = std::vector<std::optional<BatchAxis>>;

template <class... Ts>
[[noreturn]] void refuse(std::string_view text, const Ts&... values) {
  throw Refused{Status(Code::unsupported,
                       fmt::format("The operator would mix the rows of the dynamic batch: {}.",
                                   bowline::format(text, shown(values)...)))};
}

const std::optional<BatchAxis>& axis_in(const Term& t) { return t.source->batch; }

// Number of elements in front of the batch, over the whole value.
int64_t elements_in_front(const Term& t) {
  return t.dims.part(0, static_cast<size_t>(axis_in(t)->axis)).product() * axis_in(t)->front;
}

// Returns the axis of `dims` that holds the `batch` rows if `front` elements precede them.
std::optional<BatchAxis> axis_behind(const Dims& dims, int64_t front, int64_t batch) {
  int64_t before = 1;
  for (size_t a = 0; front > 0 && a < dims.size() && dims[a] > 0; before *= dims[a++]) {
    const bool inside = front % before == 0 && front < before * dims[a];
    if (inside && dims[a] % (front / before * batch) == 0) {
      return BatchAxis{static_cast<int64_t>(a), front / before};
    }
  }
  return std::nullopt;
}

class Node {
 public:
  Node(const Batch& batch, std::string_view op, const Terms& inputs,
       const std::vector<Attribute>& attributes, const std::vector<std::pair<DType, Dims>>& outputs)
      : batch_(batch), op_(op), inputs_(inputs), outputs_(outputs), attributes_(attributes) {}

  BatchedNode run() {
    Axes out = by_rule();
    return {std::move(attributes_), std::move(out)};
  }

 private:
  const Dims& out() const { return outputs_[0].second; }
  Axes all(const BatchAxis& axis) const { return Axes(outputs_.size(), axis); }
  Axes all(int64_t axis, const BatchAxis& like) const { return all(BatchAxis{axis, like.front}); }

  const BatchAxis& first() const {
    const std::optional<BatchAxis>& axis = axis_in(inputs_[0]);
    if (!axis) {
      refuse("its input 0 ({}) has no batch axis", inputs_[0].dims);
    }
    return *axis;
  }

  void require_others_plain(size_t begin) const {
    for (size_t i = begin; i < inputs_.size(); ++i) {
      if (axis_in(inputs_[i])) {
        refuse("its input {} has a batch axis, too", i);
      }
    }
  }

  Attribute* find(std::string_view name) {
    const auto found = std::ranges::find(attributes_, name, &Attribute::name);
    return found == attributes_.end() ? nullptr : &*found;
  }

  int64_t number(std::string_view name, int64_t otherwise, size_t rank) {
    const Attribute* a = find(name);
    const int64_t* const n = a == nullptr ? nullptr : std::get_if<int64_t>(&a->value);
    const int64_t axis = n == nullptr ? otherwise : *n;
    return axis < 0 ? axis + static_cast<int64_t>(rank) : axis;
  }

  std::vector<GraphDim>& list(std::string_view name) {
    return std::get<std::vector<GraphDim>>(find(name)->value);
  }

  void require_other_axis(int64_t axis, const BatchAxis& rows) const {
    if (axis == rows.axis) {
      refuse("it works along the batch axis {}", axis);
    }
  }

  // Returns the batch axis of a result with `rank` axes. An operand without a batch axis must have
  // size 1 along that axis. The last `last` axes do not take part.
  std::optional<BatchAxis> together(size_t rank, size_t last, size_t begin, size_t end) const {
    std::optional<BatchAxis> found;
    const auto behind = [&](const Term& t, int64_t axis) {
      return axis + static_cast<int64_t>(rank) - static_cast<int64_t>(t.rank());
    };
    for (size_t i = begin; i < end; ++i) {
      const std::optional<BatchAxis>& own = axis_in(inputs_[i]);
      if (!own || own->axis >= static_cast<int64_t>(inputs_[i].rank() - last)) {
        continue;
      }
      const BatchAxis here = {behind(inputs_[i], own->axis), own->front};
      if (found && !(*found == here)) {
        refuse("its operands have different batch axes");
      }
      found = here;
    }
    for (size_t i = begin; found && i < end; ++i) {
      const Term& t = inputs_[i];
      const int64_t own = found->axis - behind(t, 0);
      if (!axis_in(t) && own >= 0 && t.dims[static_cast<size_t>(own)] != 1) {
        refuse("its operand {} has {} elements along the batch axis, not 1", i,
               t.dims[static_cast<size_t>(own)]);
      }
    }
    return found;
  }

  Axes elementwise() { return all(*together(out().size(), 0, 0, inputs_.size())); }

  // For operators on images and sequences: axis 0 holds the samples.
  Axes samples() {
    require_others_plain(1);
    if (first().axis != 0) {
      refuse("the batch is axis {} of {}, not axis 0", first().axis, inputs_[0].dims);
    }
    return all(first());
  }

  Axes normalized_rows() {
    require_others_plain(1);
    require_other_axis(static_cast<int64_t>(inputs_[0].rank()) - 1, first());
    return all(first());
  }

  Axes along_axis(int64_t otherwise) {
    require_others_plain(1);
    require_other_axis(number("axis", otherwise, inputs_[0].rank()), first());
    return all(first());
  }

  Axes reduced() {
    const BatchAxis& rows = first();
    int64_t gone = 0;
    for (const GraphDim& axis : list("axes")) {
      require_other_axis(axis.value, rows);
      gone += axis.value < rows.axis ? 1 : 0;
    }
    return all(rows.axis - (out().size() < inputs_[0].rank() ? gone : 0), rows);
  }

  Axes extreme() {
    const BatchAxis& rows = first();
    const int64_t axis = number("axis", 0, inputs_[0].rank());
    require_other_axis(axis, rows);
    const bool shorter = out().size() < inputs_[0].rank();
    return all(rows.axis - (shorter && axis < rows.axis ? 1 : 0), rows);
  }

  Axes reshaped() {
    const std::optional<BatchAxis> to =
        axis_behind(out(), elements_in_front(inputs_[0]), batch_.size);
    if (!to) {
      refuse("no axis of the shape {} can hold the batch axis of {}", out(), inputs_[0].dims);
    }
    const auto axis = static_cast<size_t>(to->axis);
    list("dims")[axis] = out()[axis] == batch_.size ? GraphDim(batch_.name) : GraphDim(-1);
    return all(*to);
  }

  Axes transposed() {
    const std::vector<GraphDim>& order = list("permutation");
    const auto to = std::ranges::find(order, first().axis, &GraphDim::value);
    return all(to - order.begin(), first());
  }

  // A value without a batch axis is repeated for each row.
  Axes expanded() {
    const Term& x = inputs_[0];
    std::vector<GraphDim>& dims = list("dims");
    if (axis_in(x)) {
      const BatchAxis to = *together(out().size(), 0, 0, 1);
      dims[static_cast<size_t>(to.axis)] = GraphDim(1);  // keeps the axis of x
      return all(to);
    }
    const size_t missing = out().size() - x.rank();
    Axes axes(1);
    for (size_t a = 0; a < out().size(); ++a) {
      if (out()[a] == batch_.size && (a < missing || x.dims[a - missing] == 1)) {
        if (axes[0]) {
          refuse("two axes of {} have the size of the batch", out());
        }
        axes[0] = BatchAxis{static_cast<int64_t>(a), 1};
        dims[a] = GraphDim(batch_.name);
      }
    }
    return axes;
  }

  // Every operand has the same batch axis. The operator works along another axis.
  Axes joined() {
    const BatchAxis rows = *together(out().size(), 0, 0, inputs_.size());
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!axis_in(inputs_[i])) {
        refuse("its input {} has no batch axis", i);
      }
    }
    require_other_axis(number("axis", 0, out().size()), rows);
    return all(rows);
  }

  Axes gathered() {
    const Term& x = inputs_[0];
    const int64_t axis = number("axis", 0, x.rank());
    if (axis_in(x) && axis_in(inputs_[1])) {
      refuse("its table and its indices both have a batch axis");
    }
    if (!axis_in(x)) {
      return all(axis + axis_in(inputs_[1])->axis, *axis_in(inputs_[1]));
    }
    const BatchAxis& rows = first();
    require_other_axis(axis, rows);
    const int64_t more = static_cast<int64_t>(inputs_[1].rank()) - 1;
    return all(rows.axis + (axis < rows.axis ? more : 0), rows);
  }

  Axes one_hot() {
    const int64_t axis = number("axis", -1, out().size());
    return all(first().axis + (axis <= first().axis ? 1 : 0), first());
  }

  // Every list must have `plain` at the batch axis: the operator does nothing along that axis.
  Axes untouched(const std::vector<std::string_view>& lists, int64_t plain) {
    for (const std::string_view name : lists) {
      if (!(list(name)[static_cast<size_t>(first().axis)] == GraphDim(plain))) {
        refuse("it works along the batch axis {}", first().axis);
      }
    }
    return all(first());
  }

  Axes product_of_matrices() {
    const size_t rank = out().size();
    std::optional<BatchAxis> rows = together(rank, 2, 0, 2);
    for (size_t i = 0; i < 2; ++i) {
      const Term& t = inputs_[i];
      const std::optional<BatchAxis>& own = axis_in(t);
      if (!own || own->axis < static_cast<int64_t>(t.rank()) - 2) {
        continue;
      }
      const bool turned = number(i == 0 ? "transpose_a" : "transpose_b", 0, 0) != 0;
      const bool is_last = own->axis == static_cast<int64_t>(t.rank()) - 1;
      if ((is_last != turned) == (i == 0)) {
        refuse("it sums over the batch axis");
      }
      if (axis_in(inputs_[1 - i])) {
        refuse("it multiplies every row of one operand with every row of the other");
      }
      rows = BatchAxis{static_cast<int64_t>(rank) - (i == 0 ? 2 : 1), own->front};
    }
    return all(*rows);
  }

  // x is [steps, batch, ..], a state is [batch, ..].
  Axes recurrent(size_t states_end) {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const bool state = i >= 2 && i < states_end;
      const std::optional<BatchAxis>& own = axis_in(inputs_[i]);
      const bool right = i == 0  ? own && own->axis == 1 && own->front == 1
                         : state ? own && own->axis == 0 && own->front == 1
                                 : !own;
      if (!right) {
        refuse("its input {} ({}) has another batch axis", i, inputs_[i].dims);
      }
    }
    return all(first());
  }

  Axes attention() {
    for (size_t i = 0; i < 3; ++i) {
      if (!axis_in(inputs_[i]) || axis_in(inputs_[i])->axis != 0 ||
          !(*axis_in(inputs_[i]) == first())) {
        refuse("its input {} ({}) has another batch axis", i, inputs_[i].dims);
      }
    }
    if (inputs_.size() > 3) {  // a mask, which broadcasts to four axes
      const Term& mask = inputs_[3];
      const bool wide = mask.rank() == 4;
      const bool right =
          axis_in(mask) ? wide && *axis_in(mask) == first() : !wide || mask.dims[0] == 1;
      if (!right) {
        refuse("its mask ({}) has another batch axis", mask.dims);
      }
    }
    return all(first());
  }

  struct RowRule {
    std::string_view ops;  // separated by spaces
    Axes (*run)(Node& n);
  };

  Axes by_rule() {
    static constexpr RowRule kRowRules[] = {
        {"Add Sub Mul Div Pow Max Min Equal NotEqual Less LessOrEqual Greater GreaterOrEqual And "
         "Or "
         "Not Where Relu Silu Gelu Tanh Softplus Cast Neg Abs Exp Log Sqrt Rsqrt Square Erf Sin "
         "Cos "
         "Sigmoid Clip HardSwish LeakyRelu Elu Floor Round Sign Dropout StopGradient",
         [](Node& n) { return n.elementwise(); }},
        {"Reshape", [](Node& n) { return n.reshaped(); }},
        {"Transpose", [](Node& n) { return n.transposed(); }},
        {"Expand", [](Node& n) { return n.expanded(); }},
        {"Concat GatherElements ScatterElements", [](Node& n) { return n.joined(); }},
        {"Gather", [](Node& n) { return n.gathered(); }},
        {"OneHot", [](Node& n) { return n.one_hot(); }},
        {"Pad",
         [](Node& n) {
           return n.untouched({"begin", "end"}, 0);
         }},
        {"Tile", [](Node& n) { return n.untouched({"repeats"}, 1); }},
        {"MatMul", [](Node& n) { return n.product_of_matrices(); }},
        {"Lstm", [](Node& n) { return n.recurrent(4); }},
        {"Gru", [](Node& n) { return n.recurrent(3); }},
        {"Attention", [](Node& n) { return n.attention(); }},
        {"Softmax LogSoftmax TopK", [](Node& n) { return n.along_axis(-1); }},
        {"CumSum Slice Split", [](Node& n) { return n.along_axis(0); }},
        {"ArgMax ArgMin", [](Node& n) { return n.extreme(); }},
        {"ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd",
         [](Node& n) { return n.reduced(); }},
        {"LayerNorm RmsNorm", [](Node& n) { return n.normalized_rows(); }},
        {"Conv ConvTranspose MaxPool AveragePool GlobalAveragePool GroupNorm InstanceNorm",
         [](Node& n) { return n.samples(); }},
    };
    const auto* const rule =
        std::ranges::find_if(kRowRules, [&](const RowRule& r) { return is_one_of(r.ops, op_); });
    if (rule == std::end(kRowRules)) {
      refuse("there is no batch rule for {}", op_);
    }
    return rule->run(*this);
  }

  const Batch& batch_;
  const std::string_view op_;
  const Terms& inputs_;
  const std::vector<std::pair<DType, Dims>>& outputs_;
  std::vector<Attribute> attributes_;
};

}  // namespace

BatchedNode batched_node(const Batch& batch, std::string_view op, const Terms& inputs,
                         const std::vector<Attribute>& attributes,
                         const std::vector<std::pair<DType, Dims>>& outputs) {
  const bool has_rows = std::ranges::any_of(inputs, [](const Term& t) { return !!axis_in(t); });
  if (!has_rows && op != "Expand") {
    return {attributes, Axes(outputs.size())};
  }
  return Node(batch, op, inputs, attributes, outputs).run();
}

Dims dims_of_row(const Batch& batch, const Term& x) {
  const int64_t axis = axis_in(x)->axis;
  return x.dims.with(axis, x.dims[axis] / batch.size);
}

Dims dims_of_rows(const Batch& batch, const Term& x, const Dims& row) {
  const int64_t front = elements_in_front(x);
  const auto own = static_cast<size_t>(axis_in(x)->axis);
  // An axis of size 1 becomes the batch axis. If several fit, the axis at the position of x is
  // taken.
  std::optional<size_t> free;
  for (size_t a = 0; a < row.size(); ++a) {
    if (row[a] == 1 && row.part(0, a).product() == front && (!free || a == own)) {
      free = a;
    }
  }
  const std::optional<BatchAxis> shared = axis_behind(row, front, 1);
  if (!free && !shared) {
    refuse("no axis of the shape {} can hold the batch axis of {}", row, x.dims);
  }
  // If a matrix has no axis for the batch, its rows hold all batch rows, one after the other.
  size_t axis = free ? *free : static_cast<size_t>(shared->axis);
  if (!free && row.size() == 2 && axis == 1 && shared->front == 1) {
    axis = 0;
  }
  return row.with(static_cast<int64_t>(axis), row[axis] * batch.size);
}

namespace {

bool has_marks(const Term& t) { return t.numbers() != nullptr && !t.numbers()->of_batch.empty(); }

// For operators that move elements: a result element is marked if it equals a marked element of an
// input.
std::vector<bool> marks_of_moved(const Terms& inputs, const ConstantTensor& numbers) {
  std::set<int64_t> sizes;
  for (const Term& t : inputs) {
    const std::vector<int64_t> values =
        has_marks(t) ? t.numbers()->integers() : std::vector<int64_t>();
    for (size_t i = 0; i < values.size(); ++i) {
      if (t.numbers()->of_batch[i]) {
        sizes.insert(values[i]);
      }
    }
  }
  std::vector<bool> out;
  for (const int64_t v : numbers.integers()) {
    out.push_back(sizes.contains(v));
  }
  return out;
}

// For elementwise operators.
std::vector<bool> marks_of_each(const Batch& batch, std::string_view op, const Terms& inputs,
                                const Dims& dims) {
  std::vector<std::vector<int64_t>> values;
  for (const Term& t : inputs) {
    values.push_back(t.numbers()->integers());
  }
  const bool compares = is_one_of("Equal NotEqual Less LessOrEqual Greater GreaterOrEqual", op);
  std::vector<bool> out;
  fold::walk(dims, [&](const Dims& at) {
    const auto place = [&](size_t n) { return fold::place_in(inputs[n].dims, at); };
    const auto is_marked = [&](size_t n) {
      return has_marks(inputs[n]) && inputs[n].numbers()->of_batch[place(n)];
    };
    // A multiple of the batch size is smallest for a batch of 1. A value below that minimum is
    // smaller for every batch size, so the comparison does not depend on the batch.
    const auto is_above = [&](size_t a, size_t b) {
      const int64_t x = values[a][place(a)], y = values[b][place(b)];
      return is_marked(a) && !is_marked(b) && batch.is_multiple(x) && y < x / batch.size;
    };
    bool marked = false;
    for (size_t n = 0; n < inputs.size(); ++n) {
      marked = marked || is_marked(n);
    }
    out.push_back(marked && !(compares && (is_above(0, 1) || is_above(1, 0))));
  });
  return out;
}

}  // namespace

std::vector<bool> marks_of_batch(const Batch& batch, std::string_view op, const Terms& inputs,
                                 const ConstantTensor& numbers, const Dims& dims) {
  if (std::ranges::none_of(inputs, has_marks)) {
    return {};
  }
  std::vector<bool> out;
  if (op == "Reshape" || op == "Cast") {
    out = inputs[0].numbers()->of_batch;
  } else if (op.starts_with("Reduce") || (op == "Gather" && has_marks(inputs[1]))) {
    out.assign(numbers.elements(), true);
  } else if (is_one_of("Transpose Slice Concat Expand Gather", op)) {
    out = marks_of_moved(inputs, numbers);
  } else {
    out = marks_of_each(batch, op, inputs, dims);
  }
  return std::ranges::find(out, true) == out.end() ? std::vector<bool>() : out;
}

}  // namespace bowline::onnx
