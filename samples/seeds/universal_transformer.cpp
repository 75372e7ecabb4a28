// Runs a stack of four blocks n times, with feed-forward weights that all repeats share, in three
// styles: parameter lists that a call ties by pattern, parameters of the parent that every repeat
// names, and the same graph without a Repeat (the weights are passed to each call). What does a
// repeat cost?
//
// The story: complex sharing in nested wrappers ran 30 to 50 times slower
// (patrick-kidger/equinox#790).
#include <array>
#include <chrono>
#include <cmath>

#include "seeds.h"

constexpr int64_t kWidth = 64, kHidden = 256, kBlocks = 4, kRows = 64;

// x + W2 gelu(W1 x + b1) + b2
Value feed_forward(GraphBuilder& g, Value x, const std::array<Value, 4>& w) {
  const Value h = g.op("Gelu", {g.op("Linear", {x, w[0], w[1]})});
  return g.op("Add", {x, g.op("Linear", {h, w[2], w[3]})});
}

// The four arrays of a repeat. Each stacks the arrays of its blocks.
constexpr const char* kNames[] = {"layer_1.weight", "layer_1.bias", "layer_2.weight",
                                  "layer_2.bias"};
constexpr int64_t kOutputs[] = {kHidden, kHidden, kWidth, kWidth};

TensorShape stacked(int array) {
  const TensorShape shapes[] = {{kBlocks * kHidden, kWidth},
                                {kBlocks * kHidden},
                                {kBlocks * kWidth, kHidden},
                                {kBlocks * kWidth}};
  return shapes[array];
}

// style 0: each repeat has arrays, tied by pattern. 1: arrays of the parent, which every repeat
// names. 2: no Repeat.
Model universal(int style, int n) {
  Model m;
  const int own = style == 0 ? n : 1;  // repeats with separate arrays
  for (int i = 0; i < own; ++i) {
    for (int k = 0; k < 4; ++k) {
      must(m.parameter("repeats." + std::to_string(i) + ".mlp." + kNames[k], stacked(k),
                       Init::normal(1 / std::sqrt(static_cast<float>(kWidth)))));
    }
  }
  if (own > 1) {
    const TieReport report = must(m.tie_layers("repeats.{}.mlp.layer_{1,2}.{weight,bias}"));
    std::printf("    one call ties %zu parameters\n", report.ties.size());
  }
  std::vector<ParameterList> lists;  // by block and array: what each repeat takes
  for (int64_t block = 0; block < kBlocks; ++block) {
    for (int k = 0; k < 4; ++k) {
      View rows;
      rows.row_start = block * kOutputs[k];
      rows.rows = kOutputs[k];
      ParameterList list;
      for (int i = 0; i < n; ++i) {
        const std::string repeat = "repeats." + std::to_string(i < own ? i : 0) + ".";
        list.items.push_back(
            i < own
                ? must(m.tied_parameter(repeat + "block." + std::to_string(block) + "." + kNames[k],
                                        must(m.find(repeat + "mlp." + kNames[k])), rows))
                : list.items[0]);
      }
      lists.push_back(list);
    }
  }
  GraphBuilder g(m, "forward");
  Value x = g.input("x", DType::f32, {kRows, kWidth});
  const auto stack = [&](GraphBuilder& body, Value v, const auto& parameter) {
    for (size_t block = 0; block < kBlocks; ++block) {
      std::array<Value, 4> w;
      for (size_t k = 0; k < 4; ++k) {
        w[k] = parameter(body, lists[4 * block + k]);
      }
      v = feed_forward(body, v, w);
    }
    return v;
  };
  if (style == 2) {
    for (int i = 0; i < n; ++i) {
      x = stack(g, x,
                [](GraphBuilder& b, const ParameterList& l) { return b.parameter(l.items[0]); });
    }
  } else {
    x = g.repeat(n, {x}, [&](GraphBuilder& body, const std::vector<Value>& carried) {
      return std::vector<Value>{
          stack(body, carried[0],
                [](GraphBuilder& b, const ParameterList& l) { return b.parameter(l); })};
    })[0];
  }
  g.output("y", x);
  must(g.finish());
  must(m.materialize(1));
  return m;
}

void measure(const Device& device, int style, int n) {
  Model m = universal(style, n);
  must(m.to(device));
  const ModelInfo info = must(m.describe());
  uint64_t bytes = 0;
  size_t storages = 0;
  for (const StorageInfo& s : info.storages) {
    bytes += s.bytes;
    storages += s.empty ? 0 : 1;
  }
  Session session = must(Session::create(m, device, "forward", {}));
  Floats x(kRows * kWidth, 0.01f), y(kRows * kWidth);
  const Tensor inputs[] = {tensor("x", {kRows, kWidth}, x)};
  const Tensor outputs[] = {tensor("y", {kRows, kWidth}, y)};
  double best = 1e9;
  for (int i = 0; i < 20; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    must(session.run(inputs, outputs));
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    best = std::min(best, took.count());
  }
  size_t arrays = 0;
  for (const ParameterInfo& p : info.parameters) {
    arrays += p.view == View{};
  }
  std::printf(
      "    n = %2d: %2zu arrays, %3zu views of blocks, %zu storages, %llu bytes, plan of %3zu "
      "records, %.0f us per repeat\n",
      n, arrays, info.parameters.size() - arrays, storages, static_cast<unsigned long long>(bytes),
      must(session.describe()).segments[0].records.size(), best / n);
}

int main(int argc, char** argv) {
  const Device device = must(Device::open(argc > 1 ? argv[1] : "best"));
  const char* const styles[] = {"a list of tied networks", "an attribute of the parent",
                                "weights passed to each call"};
  for (int style = 0; style < 3; ++style) {
    std::printf("%s\n", styles[style]);
    for (const int n : {1, 4, 16}) {
      measure(device, style, n);
    }
  }
}
