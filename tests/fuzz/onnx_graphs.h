// ONNX graphs from a byte stream. Most are valid and are imported; some have a wrong value, name or
// attribute.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "onnx.pb.h"

namespace bowline::test {

// Each decision uses a byte; after the end all bytes are 0.
class Decisions {
 public:
  explicit Decisions(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  bool done() const { return at_ >= bytes_.size(); }
  uint8_t byte() { return done() ? uint8_t{0} : bytes_[at_++]; }
  int64_t below(int64_t n) { return n <= 1 ? 0 : byte() % n; }
  // True once in `n` times, and never after the end.
  bool one_in(int64_t n) { return !done() && byte() % n == n - 1; }

 private:
  std::span<const uint8_t> bytes_;
  size_t at_ = 0;
};

class GraphMaker {
 public:
  explicit GraphMaker(std::span<const uint8_t> bytes) : d_(bytes) {}

  onnx::file::ModelProto make() {
    onnx::file::ModelProto m;
    m.set_ir_version(3 + d_.below(12));
    m.add_opset_import()->set_version(13 + d_.below(16));
    graph_ = m.mutable_graph();
    opset_ = m.opset_import(0).version();
    const std::vector<int64_t> shapes[] = {{2, 3}, {4}, {1, 2, 4, 4}, {2, 3, 5}, {}, {1, 1, 8}};
    for (int i = 0; i < 2; ++i) {
      add_input(shapes[d_.below(std::size(shapes))]);
    }
    for (int n = 0; n < 12 && !d_.done(); ++n) {
      add_node();
    }
    graph_->add_output()->set_name(values_.back().name);
    damage(m);
    return m;
  }

 private:
  struct Made {
    std::string name;
    std::vector<int64_t> dims;
  };

  std::string fresh() { return "v" + std::to_string(count_++); }
  const Made& any() {
    return values_[static_cast<size_t>(d_.below(static_cast<int64_t>(values_.size())))];
  }
  static int64_t elements(const std::vector<int64_t>& dims) {
    int64_t n = 1;
    for (const int64_t d : dims) {
      n *= d;
    }
    return n;
  }

  void add_input(const std::vector<int64_t>& dims) {
    onnx::file::ValueInfoProto& info = *graph_->add_input();
    info.set_name(fresh());
    auto* type = info.mutable_type()->mutable_tensor_type();
    type->set_elem_type(1);
    type->mutable_shape();
    for (const int64_t d : dims) {
      type->mutable_shape()->add_dim()->set_dim_value(d);
    }
    values_.push_back({info.name(), dims});
  }

  std::string floats(const std::vector<int64_t>& dims) {
    onnx::file::TensorProto& t = *graph_->add_initializer();
    t.set_name(fresh());
    t.set_data_type(1);
    t.mutable_dims()->Add(dims.begin(), dims.end());
    for (int64_t i = 0; i < elements(dims); ++i) {
      t.add_float_data(static_cast<float>(d_.byte()) / 64 - 1);
    }
    return t.name();
  }

  // Occasionally a value far outside of the valid range.
  int64_t odd(int64_t number) {
    constexpr int64_t kOdd[] = {
        -1, 0, INT64_MIN, INT64_MAX, int64_t{1} << 31, -(int64_t{1} << 40), 1000000};
    return d_.one_in(24) ? kOdd[d_.below(std::size(kOdd))] : number;
  }

  std::string integers(std::vector<int64_t> values, bool scalar = false) {
    onnx::file::TensorProto& t = *graph_->add_initializer();
    t.set_name(fresh());
    t.set_data_type(7);
    if (!scalar) {
      t.add_dims(static_cast<int64_t>(values.size()));
    }
    for (const int64_t v : values) {
      t.add_int64_data(odd(v));
    }
    return t.name();
  }

  onnx::file::NodeProto& node(const std::string& op, const std::vector<std::string>& in,
                              const std::vector<int64_t>& dims, int outputs = 1) {
    onnx::file::NodeProto& n = *graph_->add_node();
    n.set_op_type(op);
    n.mutable_input()->Add(in.begin(), in.end());
    for (int i = 0; i < outputs; ++i) {
      values_.push_back({fresh(), dims});
      n.add_output(values_.back().name);
    }
    return n;
  }

  onnx::file::AttributeProto& attribute(onnx::file::NodeProto& n, const std::string& name) {
    onnx::file::AttributeProto& a = *n.add_attribute();
    a.set_name(name);
    return a;
  }
  void set(onnx::file::NodeProto& n, const std::string& name, int64_t value) {
    attribute(n, name).set_i(odd(value));
  }
  void set(onnx::file::NodeProto& n, const std::string& name, const std::vector<int64_t>& values) {
    onnx::file::AttributeProto& a = attribute(n, name);
    for (const int64_t v : values) {
      a.add_ints(odd(v));
    }
  }

  void add_node() {
    constexpr const char* kSame[] = {"Relu",     "Tanh",     "Sigmoid", "Abs",  "Neg",
                                     "Identity", "Softplus", "Elu",     "Ceil", "Erf"};
    constexpr const char* kTwo[] = {"Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "PRelu"};
    constexpr const char* kReductions[] = {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2",
                                           "ReduceLogSumExp"};
    const Made x = any();
    const auto rank = static_cast<int64_t>(x.dims.size());
    std::vector<int64_t> dims = x.dims;
    const int64_t axis = rank == 0 ? 0 : d_.below(rank);
    const auto a = static_cast<size_t>(axis);
    switch (d_.below(22)) {
      case 0:
        node(kSame[d_.below(std::size(kSame))], {x.name}, dims);
        return;
      case 1:
        node(kTwo[d_.below(std::size(kTwo))], {x.name, d_.one_in(2) ? floats(dims) : floats({})},
             dims);
        return;
      case 2:
        set(node("Transpose", {x.name}, {dims.rbegin(), dims.rend()}), "perm", reversed(rank));
        return;
      case 3:
        node("Reshape", {x.name, integers({-1})}, {elements(dims)});
        return;
      case 4:
        if (rank > 0) {
          std::vector<int64_t> shape = dims;
          std::swap(shape[0], shape.back());
          node("Reshape", {x.name, integers(shape)}, shape);
        }
        return;
      case 5:
        if (rank > 0) {
          dims[a] = 1;
          if (opset_ >= 18) {
            node(kReductions[d_.below(std::size(kReductions))], {x.name, integers({axis})}, dims);
          } else {
            node("ReduceSum", {x.name, integers({axis})}, dims);
          }
        }
        return;
      case 6:
        if (rank > 0) {
          dims[a] *= 2;
          set(node("Concat", {x.name, x.name}, dims), "axis", axis);
        }
        return;
      case 7:
        if (rank > 0 && dims[a] > 1) {
          --dims[a];
          node("Slice", {x.name, integers({1}), integers({INT64_MAX}), integers({axis})}, dims);
        }
        return;
      case 8:
        if (rank >= 2) {
          dims.back() = 3;
          node("MatMul", {x.name, floats({x.dims.back(), 3})}, dims);
        }
        return;
      case 9:
        if (rank >= 2 && dims[1] > 0) {
          const std::vector<int64_t> c = {dims[1]};
          node("BatchNormalization", {x.name, floats(c), floats(c), floats(c), floats(c)}, dims);
        }
        return;
      case 10:
        if (rank == 4 && dims[2] >= 3 && dims[3] >= 3) {
          auto& n = node("Conv", {x.name, floats({2, dims[1], 3, 3}), floats({2})},
                         {dims[0], 2, dims[2], dims[3]});
          set(n, "pads", {1, 1, 1, 1});
        }
        return;
      case 11:
        if (rank > 0) {
          std::vector<int64_t> at = {0, -1};
          dims[a] = 2;
          set(node("Gather", {x.name, integers(at)}, dims), "axis", axis);
        }
        return;
      case 12: {
        auto& n = node("Cast", {x.name}, dims);
        set(n, "to", 7);
        const std::string indices = values_.back().name;
        dims.push_back(5);
        node("OneHot", {indices, integers({5}, true), floats({2})}, dims);
        return;
      }
      case 13:
        if (rank > 0) {
          std::vector<int64_t> pads(2 * dims.size(), 0);
          pads[a] = 1;
          ++dims[a];
          node("Pad", {x.name, integers(pads)}, dims);
        }
        return;
      case 14:
        dims.insert(dims.begin(), 1);
        node("Unsqueeze", {x.name, integers({0})}, dims);
        return;
      case 15:
        if (rank > 0) {
          set(node("Softmax", {x.name}, dims), "axis", axis);
        }
        return;
      case 16:
        add_branch(x);
        return;
      case 17:
        add_loop(x);
        return;
      case 18:
        if (rank > 0) {
          add_scan(x);
        }
        return;
      case 19:
        node("Expand", {x.name, integers(dims)}, dims);
        return;
      case 20:
        if (rank > 0 && dims.back() > 0) {
          node("LayerNormalization", {x.name, floats({dims.back()}), floats({dims.back()})}, dims);
        }
        return;
      default: {
        // The shape of x, as values.
        node("Shape", {x.name}, {rank});
        const std::string shape = values_.back().name;
        values_.pop_back();
        node("Reshape", {x.name, shape}, dims);
        return;
      }
    }
  }

  static std::vector<int64_t> reversed(int64_t rank) {
    std::vector<int64_t> out;
    for (int64_t i = rank; i-- > 0;) {
      out.push_back(i);
    }
    return out;
  }

  static onnx::file::NodeProto& inner(onnx::file::GraphProto& g, const std::string& op,
                                      const std::vector<std::string>& in, const std::string& out) {
    onnx::file::NodeProto& n = *g.add_node();
    n.set_op_type(op);
    n.mutable_input()->Add(in.begin(), in.end());
    n.add_output(out);
    return n;
  }

  void add_branch(const Made& x) {
    onnx::file::TensorProto& t = *graph_->add_initializer();
    t.set_name(fresh());
    t.set_data_type(9);
    t.add_int32_data(d_.byte() % 2);
    auto& n = node("If", {t.name()}, x.dims);
    for (const char* name : {"then_branch", "else_branch"}) {
      onnx::file::GraphProto& g = *attribute(n, name).mutable_g();
      inner(g, d_.one_in(2) ? "Relu" : "Neg", {x.name}, "b");
      g.add_output()->set_name("b");
    }
  }

  void add_loop(const Made& x) {
    const std::string count = integers({d_.below(4)}, true);
    auto& n = node("Loop", {count, "", x.name}, x.dims);
    onnx::file::GraphProto& g = *attribute(n, "body").mutable_g();
    for (const char* name : {"i", "c", "s"}) {
      g.add_input()->set_name(name);
    }
    inner(g, "Add", {"s", x.name}, "t");
    inner(g, "Identity", {"c"}, "go");
    g.add_output()->set_name("go");
    g.add_output()->set_name("t");
  }

  void add_scan(const Made& x) {
    auto& n = node("Scan", {x.name}, x.dims);
    set(n, "num_scan_inputs", 1);
    onnx::file::GraphProto& g = *attribute(n, "body").mutable_g();
    g.add_input()->set_name("row");
    inner(g, "Tanh", {"row"}, "out");
    g.add_output()->set_name("out");
  }

  // Replaces a name, a dim or an operator by another of the graph.
  void damage(onnx::file::ModelProto& m) {
    onnx::file::GraphProto& g = *m.mutable_graph();
    while (d_.one_in(2) && g.node_size() > 0) {
      onnx::file::NodeProto& n = *g.mutable_node(static_cast<int>(d_.below(g.node_size())));
      switch (d_.below(6)) {
        case 0:
          n.set_op_type(g.node(static_cast<int>(d_.below(g.node_size()))).op_type());
          break;
        case 1:
          if (n.input_size() > 0) {
            n.set_input(static_cast<int>(d_.below(n.input_size())), any().name);
          }
          break;
        case 2:
          n.add_input(d_.one_in(2) ? "" : any().name);
          break;
        case 3:
          n.clear_attribute();
          break;
        case 4:
          if (g.initializer_size() > 0) {
            onnx::file::TensorProto& t =
                *g.mutable_initializer(static_cast<int>(d_.below(g.initializer_size())));
            t.clear_dims();
            t.add_dims(std::max({t.float_data_size(), t.int64_data_size(), t.int32_data_size()}));
          }
          break;
        default:
          if (n.input_size() > 0) {
            n.mutable_input()->RemoveLast();
          }
      }
    }
  }

  Decisions d_;
  onnx::file::GraphProto* graph_ = nullptr;
  int64_t opset_ = 13;
  int count_ = 0;
  std::vector<Made> values_;
};

}  // namespace bowline::test
