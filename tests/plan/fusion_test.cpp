// Fusion in plans for inference: a fused plan computes the same values as an unfused plan, and
// fusion happens only where it is allowed.
#include <functional>

#include "ties/seed_models.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

using AttributeList = std::vector<Attribute>;

// A network under construction. Parameters have numbered names in the order of their layers.
class Net {
 public:
  Net() : g(model, "forward") {}

  Value weight(const std::string& name, const Dims& shape, Init init = Init::normal(0.5f),
               StorageRole role = StorageRole::weight) {
    return g.parameter(must(model.parameter(name, shape, init, role)));
  }
  Value conv(Value x, const Dims& shape, const AttributeList& attributes = {}) {
    return g.op("Conv", {x, weight(next("window"), shape)}, attributes);
  }
  Value biased(Value x, const Dims& shape, const AttributeList& attributes = {}) {
    return g.op("Conv", {x, weight(next("window"), shape), weight(next("bias"), {shape[0]})},
                attributes);
  }
  // With a momentum of 0, training does not change the running statistics.
  Value norm(Value x, int64_t channels) {
    const StorageRole running = StorageRole::running_statistic;
    const Value scale = weight(next("scale"), {channels}, Init::uniform(2));
    const Value bias = weight(next("bias"), {channels});
    const Value mean = weight(next("mean"), {channels}, Init::normal(0.5f), running);
    const Value variance = weight(next("variance"), {channels}, Init::ones(), running);
    return g.op("BatchNorm", {x, scale, bias, mean, variance}, {{"momentum", 0}, {"eps", 1e-3}});
  }
  Value clip(Value x) { return g.op("Clip", {x}, {{"min", -0.5}, {"max", 2}}); }
  // Adds the per-step scalar `training` to a case without BatchNorm. A run that sets it disables
  // fusion.
  void trains() { g.output("trained", norm(weight(next("t"), {2, 1, 1}), 1)); }
  // A convolution of size x size, its norm and its clip.
  Value layer(Value x, int64_t in, int64_t out, int64_t size = 1,
              const AttributeList& attributes = {}) {
    return clip(norm(conv(x, {out, in, size, size}, attributes), out));
  }
  Value channelwise(Value x, int64_t channels, int64_t stride, int64_t pad = 1) {
    return layer(
        x, 1, channels, 3,
        {{"groups", channels}, {"strides", {stride, stride}}, {"pads", {pad, pad, pad, pad}}});
  }

  Model model;
  GraphBuilder g;
  int count = 0;

 private:
  std::string next(const std::string& what) { return what + std::to_string(count++); }
};

struct Case {
  const char* name;
  Dims shape;
  int fused;  // fused convolutions, if the device has the kernel
  std::function<void(Net&, Value)> build;
  std::vector<StepScalar> steps = {};  // except `training`
};

const Case kCases[] = {
    {"Chain",
     {2, 5, 9, 7},
     4,
     [](Net& n, Value x) {
       const Value a = n.layer(x, 5, 18);
       const Value b = n.channelwise(a, 18, 2);
       const Value c = n.norm(n.conv(b, {17, 18, 1, 1}), 17);
       n.g.output("y", n.layer(c, 17, 33, 3, {{"pads", {1, 1, 1, 1}}, {"strides", {2, 1}}}));
     }},
    {"Residual",
     {1, 17, 6, 5},
     3,
     [](Net& n, Value x) {
       const Value a = n.layer(x, 17, 20);
       const Value b = n.channelwise(a, 20, 1);
       n.g.output("y", n.clip(n.g.op("Add", {n.norm(n.conv(b, {20, 20, 1, 1}), 20), a})));
     }},
    // Both operands of the sum are convolutions. One of them takes the other as its addend.
    {"Shortcut",
     {1, 4, 6, 5},
     3,
     [](Net& n, Value x) {
       const Value a = n.layer(x, 4, 9);
       const Value main = n.norm(n.conv(a, {7, 9, 1, 1}), 7);
       const Value side = n.norm(n.conv(a, {7, 9, 1, 1}), 7);
       n.g.output("y", n.g.op("Relu", {n.g.op("Add", {main, side})}));
     }},
    // A sum without a convolution as operand stays a node, and a broadcast sum, too.
    {"OtherSums",
     {1, 4, 6, 5},
     2,
     [](Net& n, Value x) {
       const Value a = n.g.op("Add", {n.norm(n.conv(x, {4, 4, 1, 1}), 4), x});
       const Value b = n.norm(n.conv(a, {4, 4, 1, 1}), 4);
       n.g.output("y", n.g.op("Add", {b, n.weight("shift", {4, 1, 1})}));
     }},
    {"Relu",
     {1, 3, 4, 4},
     1,
     [](Net& n, Value x) {
       n.g.output("y", n.g.op("Relu", {n.norm(n.conv(x, {5, 3, 1, 1}), 5)}));
     }},
    {"PlanesOfOne",
     {3, 33, 1, 1},
     2,
     [](Net& n, Value x) { n.g.output("y", n.channelwise(n.layer(x, 33, 31), 31, 1)); }},
    {"Dilation",
     {1, 6, 9, 8},
     2,
     [](Net& n, Value x) {
       const Value a = n.layer(x, 6, 6, 3, {{"dilations", {2, 1}}, {"pads", {2, 0, 1, 3}}});
       n.g.output("y", n.layer(a, 1, 6, 3, {{"groups", 6}, {"dilations", {2, 2}}}));
     }},
    {"OtherGroups",
     {1, 6, 5, 4},
     1,
     [](Net& n, Value x) {
       const Value a = n.layer(x, 3, 8, 1, {{"groups", 2}});
       const Value b = n.layer(a, 1, 16, 1, {{"groups", 8}});
       n.g.output("y", n.layer(b, 16, 3));
     }},
    {"OneAxis",
     {2, 6, 15},
     3,
     [](Net& n, Value x) {
       const Value a = n.clip(n.norm(n.conv(x, {4, 6, 3}), 4));
       const Value b = n.g.op("Relu", {n.biased(a, {7, 4, 5}, {{"pads", {2, 2}}})});
       n.g.output("y", n.conv(b, {5, 7, 1}, {{"strides", {2}}}));
     }},
    {"ThreeAxes",
     {1, 2, 4, 3, 5},
     0,
     [](Net& n, Value x) {
       n.trains();
       n.g.output("y", n.clip(n.conv(x, {3, 2, 1, 2, 1})));
     }},
    // A BatchNorm after a convolution with a bias stays a node.
    {"ConvWithBias",
     {1, 6, 5, 4},
     1,
     [](Net& n, Value x) {
       n.g.output("y", n.norm(n.biased(x, {4, 6, 1, 1}), 4));
     }},
    {"ResidualWithBias",
     {2, 5, 6, 4},
     3,
     [](Net& n, Value x) {
       n.trains();
       const Value a = n.g.op("Relu", {n.biased(x, {9, 5, 3, 3}, {{"pads", {1, 1, 1, 1}}})});
       const Value b = n.biased(a, {9, 1, 5, 5}, {{"groups", 9}, {"pads", {2, 2, 2, 2}}});
       n.g.output("y", n.g.op("Relu", {n.g.op("Add", {a, n.biased(b, {9, 9, 1, 1})})}));
     }},
    // Decomposed norms: Mul and Add per channel. A Mul or Add with any other shape stays a node.
    {"ScaledAndShifted",
     {2, 3, 6, 5},
     6,
     [](Net& n, Value x) {
       n.trains();
       const auto by = [&](const char* op, Value v, const Dims& shape) {
         return n.g.op(op, {v, n.weight("by" + std::to_string(n.count++), shape)});
       };
       const Value a = by("Add", by("Mul", n.biased(x, {4, 3, 1, 1}), {4, 1, 1}), {1, 4, 1, 1});
       const Value b = n.clip(by("Add", by("Mul", n.conv(a, {4, 4, 3, 3}), {}), {1}));
       const Value c = by("Add", n.conv(b, {5, 4, 1, 1}), {1, 5, 1, 1});
       const Value d = n.g.op("Relu", {by("Add", n.biased(c, {5, 5, 1, 1}), {5, 1, 1})});
       const Value e = n.g.op("Add", {by("Mul", n.conv(d, {5, 5, 1, 1}), {1, 1}), d});
       n.g.output("y", by("Add", by("Mul", n.conv(e, {3, 5, 1, 1}), {1, 1, 4, 1}), {1, 1, 1, 3}));
     }},
    // Elementwise operators, pools, concatenation along the channels, and scaling per channel keep
    // the layout.
    {"ChannelsStayLast",
     {2, 3, 9, 8},
     4,
     [](Net& n, Value x) {
       n.trains();
       const Value a = n.biased(x, {6, 3, 3, 3}, {{"pads", {1, 1, 1, 1}}});
       const Value b = n.g.op("Mul", {a, n.g.op("Sigmoid", {a})});
       const Value c = n.g.op("MaxPool", {b}, {{"window", {3, 2}}, {"pads", {1, 0, 1, 0}}});
       const Value d = n.g.op("AveragePool", {n.biased(c, {6, 6, 1, 1})},
                              {{"window", {2, 2}}, {"strides", {2, 1}}, {"ceil", true}});
       const Value gate =
           n.g.op("HardSwish", {n.biased(n.g.op("GlobalAveragePool", {d}), {6, 6, 1, 1})});
       const Value e = n.g.op("Mul", {n.g.op("Div", {d, n.weight("by", {})}), gate});
       const Value f =
           n.g.op("Concat", {e, n.g.op("Add", {d, n.weight("to", {1, 6, 1, 1})})}, {{"axis", -3}});
       n.g.output("y", n.biased(f, {2, 12, 1, 1}));
     }},
    // An operand that is smaller than the result does not decide the layout. An operand in another
    // layout is transposed.
    {"OtherLayouts",
     {1, 4, 3, 5},
     2,
     [](Net& n, Value x) {
       n.trains();
       const Value gate = n.biased(n.g.op("GlobalAveragePool", {x}), {4, 4, 1, 1});
       const Value a = n.g.op("Mul", {x, gate});
       const Value b = n.g.op("Sub", {a, n.biased(x, {4, 4, 1, 1})});
       n.g.output("y", n.g.op("Concat", {b, a}, {{"axis", 2}}));
     }},
    // Two readers of the output of a clip, of its input, and of the input of a norm.
    {"ReadTwice",
     {1, 3, 5, 4},
     4,
     [](Net& n, Value x) {
       const Value a = n.layer(x, 3, 6);
       const Value b = n.norm(n.conv(a, {6, 6, 1, 1}), 6);
       const Value c = n.conv(a, {6, 6, 1, 1});
       n.g.output("y", n.g.op("Mul", {n.g.op("Mul", {a, n.clip(b)}), n.layer(b, 6, 6)}));
       n.g.output("z", n.g.op("Mul", {n.norm(c, 6), c}));
     }},
    {"InnerOutputs",
     {1, 3, 5, 4},
     3,
     [](Net& n, Value x) {
       const Value a = n.norm(n.conv(x, {6, 3, 1, 1}), 6);
       const Value b = n.conv(a, {6, 6, 1, 1});
       n.g.output("a", a);
       n.g.output("b", b);
       n.g.output("y", n.layer(n.norm(b, 6), 6, 4));
     }},
    {"TiedWindow",
     {1, 7, 5, 4},
     2,
     [](Net& n, Value x) {
       const Parameter w = must(n.model.parameter("w", {7, 7, 1, 1}, Init::normal(0.5f)));
       const Parameter tied = must(n.model.tied_parameter("tied", w));
       const Value a = n.clip(n.norm(n.g.op("Conv", {x, n.g.parameter(w)}), 7));
       n.g.output("y", n.norm(n.g.op("Conv", {a, n.g.parameter(tied)}), 7));
     }},
    // Each shape of a view of the storage has its own packed copy.
    {"ReshapedWindows",
     {1, 3, 5, 4},
     4,
     [](Net& n, Value x) {
       const Parameter w = must(n.model.parameter("w", {6, 4}, Init::normal(0.5f)));
       const auto conv = [&](Value v, const std::string& name, const Dims& shape) {
         View view;
         view.shape = shape;
         const Parameter tied = must(n.model.tied_parameter(name, w, view));
         return n.clip(n.norm(n.g.op("Conv", {v, n.g.parameter(tied)}), shape[0]));
       };
       const Value a = conv(n.layer(x, 3, 4), "wide", {6, 4, 1, 1});
       n.g.output("y", conv(conv(a, "narrow", {4, 6, 1, 1}), "high", {3, 4, 2, 1}));
     }},
    // A view of some rows of a storage is packed in every run.
    {"PartOfAStorage",
     {1, 7, 5, 4},
     1,
     [](Net& n, Value x) {
       const Parameter all = must(n.model.parameter("all", {9, 7, 1, 1}, Init::normal(0.5f)));
       View rows;
       rows.row_start = 2;
       rows.rows = 5;
       const Parameter part = must(n.model.tied_parameter("part", all, rows));
       n.g.output("y", n.norm(n.g.op("Conv", {x, n.g.parameter(part)}), 5));
     }},
    {"TiedStatistics",
     {1, 7, 5, 4},
     1,
     [](Net& n, Value x) {
       const StorageRole running = StorageRole::running_statistic;
       const Parameter mean = must(n.model.parameter("m", {5}, Init::normal(0.5f), running));
       const Parameter tied = must(n.model.tied_parameter("tied", mean));
       const Value before = n.g.op("Neg", {n.g.parameter(tied)});
       const Value y = n.g.op("BatchNorm",
                              {n.conv(x, {5, 7, 1, 1}), n.weight("s", {5}), n.weight("b", {5}),
                               n.g.parameter(mean), n.weight("v", {5}, Init::ones(), running)},
                              {{"momentum", 0}});
       n.g.output("y", y);
       n.g.output("mean", before);
     }},
    {"StatisticsRead",
     {1, 7, 5, 4},
     1,
     [](Net& n, Value x) {
       n.g.output("y", n.norm(n.conv(x, {5, 7, 1, 1}), 5));
       n.g.output("mean", n.g.last_outputs()[1]);
     }},
    {"Repeat",
     {1, 6, 5, 4},
     2,
     [](Net& n, Value x) {
       ParameterList window, scale, bias, mean, variance;
       const StorageRole running = StorageRole::running_statistic;
       for (const char* i : {"0", "1", "2"}) {
         const auto add = [&](ParameterList& list, const std::string& name, const Dims& shape,
                              Init init, StorageRole role = StorageRole::weight) {
           list.items.push_back(must(n.model.parameter(name + i, shape, init, role)));
         };
         add(window, "w", {6, 6, 1, 1}, Init::normal(0.5f));
         add(scale, "s", {6}, Init::ones());
         add(bias, "b", {6}, Init::normal(1));
         add(mean, "m", {6}, Init::normal(1), running);
         add(variance, "v", {6}, Init::ones(), running);
       }
       const auto body = [&](GraphBuilder& b, const std::vector<Value>& carried) {
         const Value y = b.op("Conv", {carried[0], b.parameter(window)});
         return std::vector<Value>{b.op(
             "BatchNorm",
             {y, b.parameter(scale), b.parameter(bias), b.parameter(mean), b.parameter(variance)},
             {{"momentum", 0}})};
       };
       n.g.output("y", n.layer(n.g.repeat(3, {x}, body).at(0), 6, 4));
     }},
};

// Convolutions between operators that work on channels-last data.
const Case kTurned[] = {
    {"Turned",
     {1, 6, 5, 7},
     1,
     [](Net& n, Value x) {
       const Value first = n.g.op("Transpose", {x}, {{"permutation", {0, 3, 1, 2}}});
       const Value y = n.layer(first, 7, 9, 3, {{"pads", {1, 1, 1, 1}}});
       n.g.output("y", n.g.op("Transpose", {y}, {{"permutation", {0, 2, 3, 1}}}));
     }},
    {"Column",
     {1, 12, 7, 1},
     1,
     [](Net& n, Value x) {
       const Value first = n.g.op("Transpose", {x}, {{"permutation", {0, 2, 1, 3}}});
       const Value y = n.clip(n.norm(n.conv(first, {9, 7, 3, 1}), 9));
       const Value line = n.g.op("Reshape", {y}, {{"dims", {1, 9, 10}}});
       const Value sum = n.g.op("Add", {line, n.weight("shift", {1, 9, 1})});
       n.g.output("y", n.g.op("ReduceMax", {sum}, {{"axes", {2}}, {"keep_dims", true}}));
     }},
    {"Reshaped",
     {2, 3, 10},
     1,
     [](Net& n, Value x) {
       const Value y = n.layer(n.g.op("Reshape", {x}, {{"dims", {2, 3, 10, 1}}}), 3, 4);
       n.g.output("y", n.g.op("Silu", {n.g.op("Reshape", {y}, {{"dims", {2, 4, 10}}})}));
     }},
};

// Counts the nodes of the run and the nodes that are hoisted out of the run.
int nodes_of(const Session& session, const std::string& op) {
  const std::string listing = must(session.listing("forward")) + must(session.listing("build"));
  int count = 0;
  for (size_t at = listing.find(op + "("); at != listing.npos;
       at = listing.find(op + "(", at + 1)) {
    ++count;
  }
  return count;
}
int fused_convolutions(const Session& session) { return nodes_of(session, "FusedConv"); }

Floats run(Session& session, const Case& c, uint32_t training) {
  std::vector<StepScalar> steps = c.steps;
  steps.push_back({"training", training});
  return run_with_x(session, c.shape, steps);
}

void expect_near(const Floats& a, const Floats& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_NEAR(a[i], b[i], 2e-5 * std::max(1.0f, std::abs(b[i]))) << i;
  }
}

Model model_of(const Case& c) {
  Net n;
  c.build(n, n.g.input("x", DType::f32, {c.shape.begin(), c.shape.end()}));
  EXPECT_OK(n.g.finish());
  EXPECT_OK(n.model.materialize(7));
  return std::move(n.model);
}

class Fusion : public OnDevice {
 protected:
  bool fuses() const { return GetParam().find(':') == std::string::npos; }
};
BOWLINE_ON_ALL_DEVICES(Fusion);

TEST_P(Fusion, ComputesWhatUnfusedPlansDo) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    Model model = model_of(c);
    ASSERT_OK(model.to(device_));
    Session fused = must(Session::create(model, device_, "forward", {}));
    Session plain = must(Session::create(model, device_, "forward", {}));
    EXPECT_EQ(fused_convolutions(fused), fuses() ? c.fused : 0);
    run(plain, c, 1);
    EXPECT_EQ(fused_convolutions(plain), 0) << "statistics of the batch are wanted";
    expect_near(run(fused, c, 0), run(plain, c, 0));
    EXPECT_EQ(fused_convolutions(fused), fuses() ? c.fused : 0);
    // A changed weight is packed again.
    const ModelInfo info = must(model.describe());
    for (const ParameterInfo& p : info.parameters) {
      Floats changed = values(model, p.name);
      for (float& v : changed) {
        v = std::abs(v) + 0.25f;
      }
      ASSERT_OK(set(model, p.name, {p.shape.begin(), p.shape.end()}, changed));
    }
    const Floats before = run(plain, c, 0);
    expect_near(run(fused, c, 0), before);
  }
}

// One transpose for the input, one for the output, and one for the mean of each channel.
TEST_P(Fusion, TurnsNothingBetweenConvolutions) {
  const auto stays = std::ranges::find(kCases, std::string_view("ChannelsStayLast"), &Case::name);
  Model model = model_of(*stays);
  ASSERT_OK(model.to(device_));
  Session session = must(Session::create(model, device_, "forward", {}));
  EXPECT_EQ(nodes_of(session, "Transpose"), fuses() ? 3 : 0);
}

// A transpose before or after a convolution joins with the transpose of the convolution. One
// transpose remains, or no transpose.
TEST_P(Fusion, JoinsTransposes) {
  constexpr int kLeft[] = {0, 0, 2};
  for (size_t i = 0; i < std::size(kTurned); ++i) {
    const Case& c = kTurned[i];
    SCOPED_TRACE(c.name);
    Model model = model_of(c);
    ASSERT_OK(model.to(device_));
    Session fused = must(Session::create(model, device_, "forward", {}));
    Session plain = must(Session::create(model, device_, "forward", {}));
    run(plain, c, 1);
    if (fuses()) {
      EXPECT_EQ(nodes_of(fused, "Transpose"), kLeft[i]);
    }
    expect_near(run(fused, c, 0), run(plain, c, 0));
  }
}

// Slices that reorder the gates of a weight and restore the order, slices that overlap, and slices
// that only look similar.
TEST_P(Fusion, JoinsSlices) {
  const Case c{
      "Slices", {2, 12}, 0, [](Net& n, Value x) {
        n.trains();
        const Value w = n.weight("w", {12, 6});
        const auto rows = [&](Value v, int64_t start, int64_t length, int axis = 0) {
          return n.g.op("Slice", {v}, {{"axis", axis}, {"start", start}, {"length", length}});
        };
        const Value turned =
            n.g.op("Concat", {rows(w, 0, 3), rows(w, 9, 3), rows(w, 3, 6)}, {{"axis", 0}});
        const Value shown = n.g.op("Reshape", {n.g.op("Reshape", {turned}, {{"dims", {1, 12, 6}}})},
                                   {{"dims", {12, 6}}});
        const Value back = n.g.op(
            "Concat", {rows(shown, 0, 3), rows(shown, 6, 6), rows(shown, 3, 3)}, {{"axis", 0}});
        const Value all = n.g.op("MatMul", {x, back});
        const Value part = n.g.op("MatMul", {rows(x, 1, 5, 1), rows(rows(back, 2, 9), 3, 5)});
        const Value other = n.g.op(
            "MatMul",
            {rows(x, 0, 12, 1), n.g.op("Concat", {rows(w, 6, 6), rows(w, 0, 6)}, {{"axis", 0}})});
        n.g.output("y", n.g.op("Add", {n.g.op("Add", {all, part}), other}));
      }};
  Model model = model_of(c);
  ASSERT_OK(model.to(device_));
  Session joined = must(Session::create(model, device_, "forward", {}));
  Session plain = must(Session::create(model, device_, "forward", {}));
  run(plain, c, 1);
  // Two slices for `part`, of x and of w, and two for `other`.
  EXPECT_EQ(nodes_of(joined, "Slice"), 4);
  EXPECT_EQ(nodes_of(joined, "Concat"), 1);
  EXPECT_EQ(nodes_of(plain, "Concat"), 3);
  EXPECT_EQ(run(joined, c, 0), run(plain, c, 0));
}

TEST_P(Fusion, WritesNoStatistics) {
  Model model = model_of(kCases[0]);
  ASSERT_OK(model.to(device_));
  Session session = must(Session::create(model, device_, "forward", {}));
  run(session, kCases[0], 0);
  const uint64_t builds = session.counters().plan_builds;
  run(session, kCases[0], 0);
  EXPECT_EQ(session.counters().plan_builds, builds);
  if (fuses()) {
    EXPECT_EQ(must(session.describe()).segments[0].writes.size(), 0u);
  }
}

// A clip behind a node that writes a value which the BatchNorm before the clip reads.
TEST_P(Fusion, ReadsWhatWasThereBeforeAWrite) {
  const Case c{
      "Written",
      {1, 4, 5, 4},
      1,
      [](Net& n, Value x) {
        const StorageRole running = StorageRole::running_statistic;
        const Value bias = n.weight("bias", {4}, Init::ones(), running);
        const Value y = n.g.op(
            "BatchNorm",
            {n.conv(x, {4, 4, 1, 1}), n.weight("s", {4}), bias,
             n.weight("m", {4}, Init::ones(), running), n.weight("v", {4}, Init::ones(), running)},
            {{"momentum", 0}});
        n.g.output("bias", n.g.op("WriteRows", {bias, n.weight("rows", {2})}, {{"axis", 0}}));
        n.g.output("y", n.clip(y));
      },
      {{"position", uint32_t{1}}}};
  Model model = model_of(c);
  ASSERT_OK(model.to(device_));
  Session fused = must(Session::create(model, device_, "forward", {}));
  Session plain = must(Session::create(model, device_, "forward", {}));
  run(plain, c, 1);
  const Floats ones(4, 1.0f);
  ASSERT_OK(set(model, "bias", {4}, ones));
  const Floats got = run(fused, c, 0);
  EXPECT_EQ(fused_convolutions(fused), fuses() ? 1 : 0);
  ASSERT_OK(set(model, "bias", {4}, ones));
  expect_near(got, run(plain, c, 0));
}

// The session builds one more plan and uses it from then on.
TEST_P(Fusion, EndsWithTheFirstRunThatTrains) {
  const Case& c = kCases[0];
  Model model = model_of(c);
  ASSERT_OK(model.to(device_));
  Session session = must(Session::create(model, device_, "forward", {}));
  for (const uint32_t training : {0u, 1u, 0u, 1u}) {
    run(session, c, training);
  }
  EXPECT_EQ(session.counters().plan_builds, fuses() ? 2u : 1u);
}

TEST_P(Fusion, LeavesShortNumbers) {
  Model model = model_of(kCases[0]);
  ASSERT_OK(model.to(device_));
  const BoundEntryPoint half{.name = "forward", .dims = {}, .compute_dtype = DType::bf16};
  Session session = must(Session::create(model, device_, {&half, 1}));
  EXPECT_EQ(fused_convolutions(session), 0);
}

}  // namespace
}  // namespace bowline::test
