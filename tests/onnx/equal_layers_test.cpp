// Merging equal layers of ONNX models into one Repeat: the result computes and trains as the layers
// do.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "onnx.pb.h"
#include "onnx/import.h"

namespace bowline::onnx::equal_layers {
namespace {

constexpr int kRows = 3, kWidth = 4, kLayers = 5;

file::NodeProto& add_node(file::ModelProto& m, const std::string& op,
                          const std::vector<std::string>& in, const std::string& out) {
  file::NodeProto& node = *m.mutable_graph()->add_node();
  node.set_op_type(op);
  for (const std::string& name : in) {
    node.add_input(name);
  }
  node.add_output(out);
  return node;
}

void add_value(file::ValueInfoProto& info, const std::string& name,
               const std::vector<int64_t>& dims) {
  info.set_name(name);
  auto* type = info.mutable_type()->mutable_tensor_type();
  type->set_elem_type(1);
  type->mutable_shape();
  for (const int64_t d : dims) {
    type->mutable_shape()->add_dim()->set_dim_value(d);
  }
}

void add_floats(file::ModelProto& m, const std::string& name, const std::vector<int64_t>& dims,
                float first) {
  file::TensorProto& t = *m.mutable_graph()->add_initializer();
  t.set_name(name);
  t.set_data_type(1);
  int64_t n = 1;
  for (const int64_t d : dims) {
    t.add_dims(d);
    n *= d;
  }
  for (int64_t i = 0; i < n; ++i) {
    t.add_float_data(first * static_cast<float>((i * 7 + 3) % 11 - 5) / 8);
  }
}

// Options of a layer: its own parameters or those of the first layer, other values, a result that
// is a graph output.
struct Layer {
  bool own = false;
  float scale = 1;
  bool is_output = false;
};

// h = x; layer: h = h + tanh((h sigmoid(m)) W^T + b); loss = mean(h h). The transpose of W and
// sigmoid(m) are computed once.
file::ModelProto model_of(const std::vector<Layer>& layers) {
  file::ModelProto m;
  m.set_ir_version(8);
  m.add_opset_import()->set_version(17);
  for (const char* name : {"x", "m"}) {
    add_value(*m.mutable_graph()->add_input(), name, {kRows, kWidth});
  }
  add_node(m, "Sigmoid", {"m"}, "mask");
  std::string h = "x";
  for (size_t i = 0; i < layers.size(); ++i) {
    const std::string n = std::to_string(i), of = layers[i].own ? n : "0";
    if (of == n) {
      add_floats(m, "w" + n, {kWidth, kWidth}, layers[i].scale);
      add_floats(m, "b" + n, {kWidth}, layers[i].scale);
      file::AttributeProto& a = *add_node(m, "Transpose", {"w" + n}, "t" + n).add_attribute();
      a.set_name("perm");
      a.add_ints(1);
      a.add_ints(0);
    }
    add_node(m, "Mul", {h, "mask"}, "seen" + n);
    add_node(m, "MatMul", {"seen" + n, "t" + of}, "product" + n);
    add_node(m, "Add", {"product" + n, "b" + of}, "sum" + n);
    add_node(m, "Tanh", {"sum" + n}, "tanh" + n);
    add_node(m, "Add", {"tanh" + n, h}, "h" + n);
    h = "h" + n;
    if (layers[i].is_output) {
      add_value(*m.mutable_graph()->add_output(), h, {kRows, kWidth});
    }
  }
  add_node(m, "Mul", {h, h}, "square");
  file::AttributeProto& keep = *add_node(m, "ReduceMean", {"square"}, "loss").add_attribute();
  keep.set_name("keepdims");
  keep.set_i(0);
  add_value(*m.mutable_graph()->add_output(), "loss", {});
  return m;
}

struct Trained {
  std::vector<float> outputs;  // before the step
  std::vector<float> w, b;     // after the step
  int repeats = 0;             // iterations of the Repeat
  size_t parameters = 0;
  std::string notes;
};

// Imports the model, runs it and takes an SGD step.
void train(const std::vector<Layer>& layers, bool tie_equal, Trained& out) {
  ImportOptions options;
  options.entry_point = "loss";
  options.tie_equal = tie_equal;
  Result<Imported> imported = import_graph(model_of(layers), "", options);
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  Model& model = imported.value().model;
  for (const std::string& note : imported.value().notes) {
    out.notes += note + "\n";
  }
  const ModelInfo info = model.describe().value();
  out.parameters = info.parameters.size();
  for (const NodeInfo& node : info.entry_points[0].nodes) {
    out.repeats += node.op == "Repeat" ? static_cast<int>(node.count) : 0;
  }
  const Device device = Device::open("cpu").value();
  ASSERT_TRUE(model.to(device).ok());
  std::vector<float> x(kRows * kWidth), mask(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(i % 5) / 4 - 0.5f;
    mask[i] = static_cast<float>(i % 3) - 1;
  }
  const std::vector<Tensor> inputs = {{"x", DType::f32, {kRows, kWidth}, x.data()},
                                      {"m", DType::f32, {kRows, kWidth}, mask.data()}};
  Result<Session> session = Session::create(model, device, "loss", {});
  ASSERT_TRUE(session.ok()) << session.status().message();
  std::vector<std::vector<float>> made;
  std::vector<Tensor> outputs;
  for (const OutputInfo& o : info.entry_points[0].outputs) {
    made.emplace_back(o.name == "loss" ? 1 : x.size());
    outputs.push_back({o.name, DType::f32,
                       o.name == "loss" ? TensorShape{} : TensorShape{kRows, kWidth},
                       made.back().data()});
  }
  const Status ran = session.value().run(inputs, outputs);
  ASSERT_TRUE(ran.ok()) << ran.message();
  for (const std::vector<float>& values : made) {
    out.outputs.insert(out.outputs.end(), values.begin(), values.end());
  }
  TrainOptions options_of_step;
  options_of_step.optimizer = {"sgd"};
  options_of_step.schedule.learning_rate = 0.5f;
  options_of_step.clip_norm = 0;
  Result<Trainer> trainer = Trainer::create(model, device, options_of_step);
  ASSERT_TRUE(trainer.ok()) << trainer.status().message();
  const auto step = trainer.value().micro_step(inputs);
  ASSERT_TRUE(step.ok()) << step.status().message();
  out.w.resize(kWidth * kWidth);
  out.b.resize(kWidth);
  ASSERT_TRUE(model.get_value("w0", {"", DType::f32, {kWidth, kWidth}, out.w.data()}).ok());
  ASSERT_TRUE(model.get_value("b0", {"", DType::f32, {kWidth}, out.b.data()}).ok());
}

void expect_same(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i], b[i], 2e-6f * std::max(1.0f, std::abs(a[i]))) << i;
  }
}

void expect_like(const Trained& made, const Trained& unrolled) {
  expect_same(made.outputs, unrolled.outputs);
  expect_same(made.w, unrolled.w);
  expect_same(made.b, unrolled.b);
}

TEST(OnnxEqualLayers, AreOneRepeat) {
  Trained unrolled, shared, copies;
  ASSERT_NO_FATAL_FAILURE(train(std::vector<Layer>(kLayers), false, unrolled));
  EXPECT_EQ(unrolled.repeats, 0);
  ASSERT_NO_FATAL_FAILURE(train(std::vector<Layer>(kLayers), true, shared));
  ASSERT_NO_FATAL_FAILURE(train(std::vector<Layer>(kLayers, {.own = true}), true, copies));
  for (const Trained& made : {shared, copies}) {
    EXPECT_EQ(made.repeats, kLayers) << made.notes;
    EXPECT_EQ(made.parameters, unrolled.parameters);
    EXPECT_NE(made.notes.find("5 equal layers of 5 nodes are merged into one Repeat."),
              std::string::npos)
        << made.notes;
    expect_like(made, unrolled);
  }
  EXPECT_NE(shared.w, std::vector<float>(shared.w.size()));
}

TEST(OnnxEqualLayers, StayApartWhereTheyDiffer) {
  std::vector<Layer> layers(kLayers);
  layers[4] = {.own = true, .scale = 0.5f};
  Trained unrolled, made;
  ASSERT_NO_FATAL_FAILURE(train(layers, false, unrolled));
  ASSERT_NO_FATAL_FAILURE(train(layers, true, made));
  EXPECT_EQ(made.repeats, 4) << made.notes;
  EXPECT_EQ(made.parameters, unrolled.parameters);
  expect_like(made, unrolled);

  for (size_t i = 0; i < layers.size(); ++i) {
    layers[i] = {.own = true, .scale = 1 + 0.25f * static_cast<float>(i)};
  }
  Trained different, kept;
  ASSERT_NO_FATAL_FAILURE(train(layers, false, different));
  ASSERT_NO_FATAL_FAILURE(train(layers, true, kept));
  EXPECT_EQ(kept.repeats, 0);
  EXPECT_NE(kept.notes.find("--tie-equal changes nothing"), std::string::npos) << kept.notes;
  expect_like(kept, different);
}

TEST(OnnxEqualLayers, KeepWhatIsReadElsewhere) {
  std::vector<Layer> layers(kLayers);
  layers[1].is_output = true;  // the Repeat does not contain the first two layers
  Trained unrolled, made;
  ASSERT_NO_FATAL_FAILURE(train(layers, false, unrolled));
  ASSERT_NO_FATAL_FAILURE(train(layers, true, made));
  EXPECT_EQ(made.repeats, 3) << made.notes;
  expect_like(made, unrolled);
}

}  // namespace
}  // namespace bowline::onnx::equal_layers
