// The ONNX importer on damaged, hostile and unsupported models: a Status with the position, never a
// crash.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <random>

#include "onnx.pb.h"
#include "onnx/import.h"
#include "onnx/maker.h"

namespace bowline::onnx {
namespace {

namespace fs = std::filesystem;

file::NodeProto& add_node(file::ModelProto& m, const std::string& op,
                          const std::vector<std::string>& in, const std::vector<std::string>& out) {
  file::NodeProto& node = *m.mutable_graph()->add_node();
  node.set_op_type(op);
  for (const std::string& name : in) {
    node.add_input(name);
  }
  for (const std::string& name : out) {
    node.add_output(name);
  }
  return node;
}

void add_value(google::protobuf::RepeatedPtrField<file::ValueInfoProto>* to,
               const std::string& name, const std::vector<int64_t>& dims, int dtype = 1) {
  file::ValueInfoProto& info = *to->Add();
  info.set_name(name);
  auto* type = info.mutable_type()->mutable_tensor_type();
  type->set_elem_type(dtype);
  type->mutable_shape();
  for (const int64_t d : dims) {
    type->mutable_shape()->add_dim()->set_dim_value(d);
  }
}

void set_int(file::NodeProto& node, const std::string& name, int64_t value) {
  file::AttributeProto& a = *node.add_attribute();
  a.set_name(name);
  a.set_i(value);
}

void set_ints(file::NodeProto& node, const std::string& name, const std::vector<int64_t>& values) {
  file::AttributeProto& a = *node.add_attribute();
  a.set_name(name);
  for (const int64_t v : values) {
    a.add_ints(v);
  }
}

file::TensorProto& add_floats(file::ModelProto& m, const std::string& name,
                              const std::vector<int64_t>& dims, const std::vector<float>& values) {
  file::TensorProto& t = *m.mutable_graph()->add_initializer();
  t.set_name(name);
  t.set_data_type(1);
  for (const int64_t d : dims) {
    t.add_dims(d);
  }
  for (const float v : values) {
    t.add_float_data(v);
  }
  return t;
}

// y = transpose(relu(x w + b)), with a computed shape.
file::ModelProto small_model() {
  file::ModelProto m;
  m.set_ir_version(8);
  m.add_opset_import()->set_version(13);
  add_value(m.mutable_graph()->mutable_input(), "x", {2, 3});
  add_floats(m, "w", {3, 2}, {1, 2, 3, 4, 5, 6});
  add_floats(m, "b", {2}, {0.5f, -100});
  add_node(m, "Gemm", {"x", "w", "b"}, {"h"});
  add_node(m, "Relu", {"h"}, {"r"});
  add_node(m, "Shape", {"r"}, {"s"});
  add_node(m, "Reshape", {"r", "s"}, {"q"});
  set_ints(add_node(m, "Transpose", {"q"}, {"y"}), "perm", {1, 0});
  add_value(m.mutable_graph()->mutable_output(), "y", {2, 2});
  return m;
}

Result<Imported> import(const file::ModelProto& model, const std::string& folder = "") {
  const Result<std::shared_ptr<file::ModelProto>> parsed = parse_model(model.SerializeAsString());
  BOWLINE_TRY(Status(parsed.status()));
  return import_graph(*parsed.value(), folder, {});
}

void expect_refused(const file::ModelProto& model, Code code, const std::vector<std::string>& words,
                    const std::string& folder = "") {
  const Result<Imported> r = import(model, folder);
  ASSERT_FALSE(r.ok()) << "The model was imported.";
  EXPECT_EQ(name_of(r.status().code()), name_of(code)) << r.status().message();
  for (const std::string& word : words) {
    EXPECT_NE(r.status().message().find(word), std::string::npos) << r.status().message();
  }
}

struct Folder {
  Folder() : path(fs::temp_directory_path() / ("bowline_onnx_" + std::to_string(::getpid()))) {
    fs::remove_all(path);
    fs::create_directories(path / "model" / "sub");
  }
  ~Folder() { fs::remove_all(path); }
  void write(const fs::path& name, const std::string& bytes) const {
    std::ofstream(path / name, std::ios::binary) << bytes;
  }
  std::string model() const { return (path / "model").string(); }
  fs::path path;
};

TEST(OnnxReader, ASmallModelRuns) {
  Result<Imported> imported = import(small_model());
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  const Device device = Device::open("cpu").value();
  ASSERT_TRUE(imported.value().model.to(device).ok());
  Result<Session> session =
      Session::create(imported.value().model, device, "forward", std::span<const BoundDim>{});
  ASSERT_TRUE(session.ok()) << session.status().message();
  float x[6] = {1, 0, 0, 0, 1, 2}, y[4] = {};
  const Tensor in[] = {{"x", DType::f32, {2, 3}, x}};
  const Tensor out[] = {{"y", DType::f32, {2, 2}, y}};
  ASSERT_TRUE(session.value().run(in, out).ok());
  const float expected[4] = {1.5f, 13.5f, 0, 0};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(y[i], expected[i]) << i;
  }
}

// An index out of range must be an error. A part of a GatherND index could otherwise select an
// element of another row, and an index beyond i32 could wrap around to a valid element.
TEST(OnnxReader, IndicesOutsideOfTheirAxisAreFound) {
  constexpr int64_t kFar = int64_t{1} << 32;
  const struct {
    const char* op;
    int64_t index[2];
    bool inside;
  } cases[] = {{"GatherND", {1, 2}, true},           {"GatherND", {-2, -3}, true},
               {"GatherND", {0, 3}, false},          {"GatherND", {1, -4}, false},
               {"GatherND", {kFar, 0}, false},       {"ScatterND", {1, 2}, true},
               {"ScatterND", {0, 3}, false},         {"Gather", {1, -2}, true},
               {"Gather", {0, kFar}, false},         {"GatherElements", {1, 1}, true},
               {"GatherElements", {-kFar, 0}, false}};
  const Device device = Device::open("cpu").value();
  for (const auto& c : cases) {
    SCOPED_TRACE(fmt::format("{} [{}, {}]", c.op, c.index[0], c.index[1]));
    file::ModelProto m;
    m.set_ir_version(8);
    m.add_opset_import()->set_version(16);
    add_value(m.mutable_graph()->mutable_input(), "i", {1, 2}, 7);
    add_floats(m, "x", {2, 3}, {0, 1, 2, 3, 4, 5});
    const bool scatters = std::string_view(c.op) == "ScatterND";
    if (scatters) {
      add_floats(m, "u", {1}, {7});
    }
    add_node(
        m, c.op,
        scatters ? std::vector<std::string>{"x", "i", "u"} : std::vector<std::string>{"x", "i"},
        {"z"});
    set_int(add_node(m, "ReduceSum", {"z"}, {"y"}), "keepdims", 0);
    add_value(m.mutable_graph()->mutable_output(), "y", {});
    Result<Imported> imported = import(m);
    ASSERT_TRUE(imported.ok()) << imported.status().message();
    ASSERT_TRUE(imported.value().model.to(device).ok());
    Result<Session> session =
        Session::create(imported.value().model, device, "forward", std::span<const BoundDim>{});
    ASSERT_TRUE(session.ok()) << session.status().message();
    int64_t index[2] = {c.index[0], c.index[1]};
    float y[1] = {};
    const Tensor in[] = {{"i", DType::i64, {1, 2}, index}};
    const Tensor out[] = {{"y", DType::f32, {}, y}};
    const Status ran = session.value().run(in, out);
    EXPECT_EQ(ran.ok(), c.inside) << ran.message();
    EXPECT_TRUE(c.inside || ran.code() == Code::index_out_of_range) << ran.message();
  }
}

// Before operator set 10 the mask has the dtype of x. Inference drops nothing.
TEST(OnnxReader, TheMaskOfADropoutHasTheDtypeOfItsOperatorSet) {
  const Device device = Device::open("cpu").value();
  for (const int version : {9, 10}) {
    SCOPED_TRACE(version);
    file::ModelProto m;
    m.set_ir_version(8);
    m.add_opset_import()->set_version(version);
    add_value(m.mutable_graph()->mutable_input(), "x", {2});
    add_node(m, "Dropout", {"x"}, {"y", "mask"});
    add_value(m.mutable_graph()->mutable_output(), "mask", {2}, version < 10 ? 1 : 9);
    Result<Imported> imported = import(m);
    ASSERT_TRUE(imported.ok()) << imported.status().message();
    ASSERT_TRUE(imported.value().model.to(device).ok());
    Result<Session> session =
        Session::create(imported.value().model, device, "forward", std::span<const BoundDim>{});
    ASSERT_TRUE(session.ok()) << session.status().message();
    float numbers[2] = {};
    uint8_t truths[2] = {};
    const Tensor out[] = {version < 10 ? Tensor{"mask", DType::f32, {2}, numbers}
                                       : Tensor{"mask", DType::boolean, {2}, truths}};
    const Status ran = session.value().run(std::span<const Tensor>{}, out);
    ASSERT_TRUE(ran.ok()) << ran.message();
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(version < 10 ? numbers[i] : static_cast<float>(truths[i]), 1.0f);
    }
  }
}

TEST(OnnxReader, LargeWholeNumbersKeepAllOfTheirBits) {
  file::ModelProto m = small_model();
  const std::vector<int64_t> numbers = {16777217,  -16777217, 1234567890123456789,
                                        INT64_MIN, INT64_MAX, -1};
  file::TensorProto& t = *m.mutable_graph()->add_initializer();
  t.set_name("large");
  t.set_data_type(7);
  t.add_dims(static_cast<int64_t>(numbers.size()));
  for (const int64_t v : numbers) {
    t.add_int64_data(v);
  }
  add_node(m, "Identity", {"large"}, {"z"});
  add_value(m.mutable_graph()->mutable_output(), "z", {6}, 7);
  Result<Imported> imported = import(m);
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  const Device device = Device::open("cpu").value();
  ASSERT_TRUE(imported.value().model.to(device).ok());
  Result<Session> session =
      Session::create(imported.value().model, device, "forward", std::span<const BoundDim>{});
  ASSERT_TRUE(session.ok()) << session.status().message();
  float x[6] = {}, y[4] = {};
  std::vector<int64_t> z(numbers.size());
  const Tensor in[] = {{"x", DType::f32, {2, 3}, x}};
  const Tensor out[] = {{"y", DType::f32, {2, 2}, y}, {"z", DType::i64, {6}, z.data()}};
  ASSERT_TRUE(session.value().run(in, out).ok());
  EXPECT_EQ(z, numbers);
}

TEST(OnnxReader, WeightsAreTrainableAndConstantsAreNot) {
  file::ModelProto m = small_model();
  const Result<Imported> imported = import(m);
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  const ModelInfo info = imported.value().model.describe().value();
  ASSERT_EQ(info.parameters.size(),
            2u);  // the shape is known when the model is read, so it is not a parameter
  for (const ParameterInfo& p : info.parameters) {
    EXPECT_TRUE(p.trainable) << p.name;
  }
}

TEST(OnnxReader, NodesThatNothingNeedsAreLeftOut) {
  file::ModelProto m = small_model();
  add_node(m, "NoSuchOperator", {"h"}, {"unused"});
  const Result<Imported> imported = import(m);
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  ASSERT_EQ(imported.value().notes.size(), 1u);
  EXPECT_NE(imported.value().notes[0].find("node 5 (NoSuchOperator)"), std::string::npos);
}

TEST(OnnxReader, ACycleIsNamed) {
  file::ModelProto m = small_model();
  m.mutable_graph()->mutable_node(0)->set_input(0, "r");
  expect_refused(m, Code::bad_file, {"\"r\"", "node 1 (Relu)", "cycle", "node 0 (Gemm)"});
  m.mutable_graph()->mutable_node(0)->set_input(0, "h");
  expect_refused(m, Code::bad_file, {"\"h\"", "cycle", "node 0 (Gemm)"});
}

TEST(OnnxReader, MissingAndDoubleValuesAreNamed) {
  file::ModelProto m = small_model();
  m.mutable_graph()->mutable_node(1)->set_input(0, "nowhere");
  expect_refused(m, Code::bad_file,
                 {"\"nowhere\"", "no node, input or initializer", "node 1 (Relu)"});
  m = small_model();
  m.mutable_graph()->mutable_node(1)->set_output(0, "h");
  expect_refused(m, Code::bad_file, {"\"h\"", "node 0 (Gemm)", "node 1 (Relu)"});
  m = small_model();
  add_floats(m, "h", {1}, {1});
  expect_refused(m, Code::bad_file, {"Two values have the name \"h\""});
  m = small_model();
  m.mutable_graph()->mutable_output(0)->set_name("z");
  expect_refused(m, Code::bad_file, {"output \"z\""});
}

TEST(OnnxReader, VersionsThatAreNotKnownAreRefused) {
  file::ModelProto m = small_model();
  m.mutable_opset_import(0)->set_version(99);
  expect_refused(m, Code::unsupported, {"ai.onnx", "version 99", "1 to 28", "node 0 (Gemm)"});
  m.mutable_opset_import(0)->set_version(0);
  expect_refused(m, Code::unsupported, {"version 0"});
  m = small_model();
  m.clear_opset_import();
  expect_refused(m, Code::bad_file, {"names no operator set"});
  m = small_model();
  m.set_ir_version(1000);
  expect_refused(m, Code::unsupported, {"IR version 1000"});
  m = small_model();
  m.mutable_graph()->mutable_node(1)->set_domain("com.example");
  expect_refused(m, Code::bad_file, {"com.example", "node 1"});
  m.add_opset_import()->set_domain("com.example");
  m.mutable_opset_import(1)->set_version(1);
  expect_refused(m, Code::unsupported, {"\"Relu\" of the domain \"com.example\"", "node 1"});
}

TEST(OnnxReader, TodaysVersionsAreRead) {
  for (int version = 13; version <= 28; ++version) {
    file::ModelProto m = small_model();
    m.mutable_opset_import(0)->set_version(version);
    m.set_ir_version(version < 19 ? 8 : 14);
    const Result<Imported> imported = import(m);
    EXPECT_TRUE(imported.ok()) << version << ": " << imported.status().message();
  }
}

// tf2onnx declares every domain that it supports.
TEST(OnnxReader, ADomainThatNoNodeUsesMayHaveAnyVersion) {
  file::ModelProto m = small_model();
  for (const char* domain : {"ai.onnx.ml", "com.microsoft", "ai.onnx.preview.training"}) {
    auto& set = *m.add_opset_import();
    set.set_domain(domain);
    set.set_version(99);
  }
  const Result<Imported> imported = import(m);
  EXPECT_TRUE(imported.ok()) << imported.status().message();
}

TEST(OnnxReader, WhatALoweringDoesNotReadIsRefused) {
  file::ModelProto m = small_model();
  file::AttributeProto& a = *m.mutable_graph()->mutable_node(1)->add_attribute();
  a.set_name("alpha");
  a.set_f(1);
  expect_refused(m, Code::unsupported, {"\"alpha\" is not supported", "node 1 (Relu)"});
  m = small_model();
  m.mutable_graph()->mutable_node(1)->add_input("x");
  expect_refused(m, Code::unsupported, {"Input 1 is not supported"});
  m = small_model();
  m.mutable_graph()->mutable_node(1)->set_op_type("Unheard");
  expect_refused(m, Code::unsupported, {"\"Unheard\"", "node 1"});
}

TEST(OnnxReader, TensorsThatDoNotFitAreRefused) {
  file::ModelProto m = small_model();
  m.mutable_graph()->mutable_initializer(0)->set_dims(0, 4);
  expect_refused(m, Code::bad_file, {"6 values", "needs 8", "initializer \"w\""});
  m.mutable_graph()->mutable_initializer(0)->set_dims(0, int64_t{1} << 62);
  expect_refused(m, Code::bad_file, {"initializer \"w\"", "elements"});
  m.mutable_graph()->mutable_initializer(0)->set_dims(0, -3);
  expect_refused(m, Code::bad_file, {"-3"});
  m = small_model();
  m.mutable_graph()->mutable_initializer(0)->set_data_type(11);
  expect_refused(m, Code::unsupported, {"DOUBLE"});
  m.mutable_graph()->mutable_initializer(0)->set_data_type(77);
  expect_refused(m, Code::bad_file, {"77"});
  m = small_model();
  m.mutable_graph()->mutable_initializer(1)->set_dims(0, 1);
  m.mutable_graph()->mutable_initializer(1)->set_raw_data("abc");
  expect_refused(m, Code::bad_file, {"3 bytes", "needs 4"});
  m = small_model();
  m.mutable_graph()
      ->mutable_input(0)
      ->mutable_type()
      ->mutable_tensor_type()
      ->mutable_shape()
      ->mutable_dim(0)
      ->set_dim_param("batch");
  expect_refused(m, Code::unsupported, {"\"batch\"", "has no size", "input \"x\""});
}

TEST(OnnxReader, NamedDimsGetTheNumbersOfTheCaller) {
  file::ModelProto m = small_model();
  m.mutable_graph()
      ->mutable_input(0)
      ->mutable_type()
      ->mutable_tensor_type()
      ->mutable_shape()
      ->mutable_dim(0)
      ->set_dim_param("batch");
  ImportOptions options;
  options.dims = {{"batch", 5}};
  const Result<Imported> imported = import_graph(m, "", options);
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  const EntryPointInfo entry = imported.value().model.describe().value().entry_points[0];
  EXPECT_EQ(entry.outputs[0].shape, (TensorShape{2, 5}));
}

// The number of boxes is not known, so a later node would take the rows of -1 for boxes.
TEST(OnnxReader, NonMaxSuppressionIsTheLastNode) {
  const auto model = [](bool last) {
    file::ModelProto m;
    m.set_ir_version(8);
    m.add_opset_import()->set_version(13);
    add_value(m.mutable_graph()->mutable_input(), "boxes", {1, 6, 4});
    add_value(m.mutable_graph()->mutable_input(), "scores", {1, 2, 6});
    file::TensorProto& most = *m.mutable_graph()->add_initializer();
    most.set_name("most");
    most.set_data_type(7);
    most.add_int64_data(3);
    add_node(m, "NonMaxSuppression", {"boxes", "scores", "most"}, {last ? "y" : "kept"});
    if (!last) {
      add_node(m, "Neg", {"kept"}, {"y"});
    }
    add_value(m.mutable_graph()->mutable_output(), "y", {6, 3}, 7);
    return m;
  };
  const Result<Imported> imported = import(model(true));
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  ASSERT_EQ(imported.value().notes.size(), 1u);
  EXPECT_NE(imported.value().notes[0].find("6 rows"), std::string::npos);
  expect_refused(model(false), Code::unsupported, {"node 0 (NonMaxSuppression)", "last node"});
}

// A model with an input x of this shape, whose first dim becomes the dynamic batch.
file::ModelProto model_of(const std::vector<int64_t>& dims) {
  file::ModelProto m;
  m.set_ir_version(8);
  m.add_opset_import()->set_version(13);
  add_value(m.mutable_graph()->mutable_input(), "x", dims);
  add_value(m.mutable_graph()->mutable_output(), "y", {});
  m.mutable_graph()->mutable_output(0)->mutable_type()->mutable_tensor_type()->clear_shape();
  return m;
}

void add_whole(file::ModelProto& m, const std::string& name, const std::vector<int64_t>& values) {
  file::TensorProto& t = *m.mutable_graph()->add_initializer();
  t.set_name(name);
  t.set_data_type(7);
  t.add_dims(static_cast<int64_t>(values.size()));
  for (const int64_t v : values) {
    t.add_int64_data(v);
  }
}

Result<Imported> import_batched(const file::ModelProto& m, const std::string& name = "n") {
  ImportOptions options;
  options.batch_dim = name;
  return import_graph(m, "", options);
}

void expect_batch_refused(const file::ModelProto& m, const std::vector<std::string>& words) {
  const Result<Imported> r = import_batched(m);
  ASSERT_FALSE(r.ok()) << "The model was imported.";
  for (const std::string& word : words) {
    EXPECT_NE(r.status().message().find(word), std::string::npos) << r.status().message();
  }
}

TEST(OnnxBatch, AnInputHasADynamicDim) {
  file::ModelProto m = model_of({1, 3});
  add_node(m, "Relu", {"x"}, {"y"});
  const Result<Imported> r = import_batched(m, "rows");
  ASSERT_TRUE(r.ok()) << r.status().message();
  const ModelInfo info = r.value().model.describe().value();
  EXPECT_EQ(info.entry_points[0].inputs[0].dims, (std::vector<GraphDim>{"rows", 3}));
  ASSERT_EQ(info.dims.size(), 1u);
  EXPECT_EQ(info.dims[0].name, "rows");
}

TEST(OnnxBatch, RowsThatMeetAreRefusedWithTheNode) {
  const std::vector<std::string> apart = {"would mix the rows", "\"n\" is dynamic"};
  const auto refused = [&](const std::string& op, std::vector<std::string> words,
                           const auto& more) {
    file::ModelProto m = model_of({1, 3, 4});
    add_whole(m, "w", {12});
    add_whole(m, "zero", {0});
    file::NodeProto& node = add_node(m, op, {"x"}, {"y"});
    node.set_name("here");
    more(m, node);
    words.push_back(fmt::format("\"here\" ({})", op));
    SCOPED_TRACE(op);
    expect_batch_refused(m, words);
  };
  refused("Softmax", apart, [](auto&, file::NodeProto& n) { set_int(n, "axis", 0); });
  refused("ReduceMean", apart, [](auto&, file::NodeProto&) {});
  refused("CumSum", apart, [](auto&, file::NodeProto& n) { n.add_input("zero"); });
  refused("Gather", apart, [](file::ModelProto& m, file::NodeProto& n) {
    add_whole(m, "twice", {0, 0});
    n.add_input("twice");
  });
  refused("Concat", apart, [](auto&, file::NodeProto& n) {
    n.add_input("x");
    set_int(n, "axis", 0);
  });
  refused("BatchNormalization", apart, [](file::ModelProto& m, file::NodeProto& n) {
    for (const char* name : {"a", "b", "c", "d"}) {
      add_floats(m, name, {3}, {1, 1, 1});
      n.add_input(name);
    }
    set_int(n, "training_mode", 1);
  });
}

// The product would combine every row with every other row.
TEST(OnnxBatch, AProductOfRowsWithRowsIsRefused) {
  file::ModelProto m = model_of({1, 3});
  set_ints(add_node(m, "Transpose", {"x"}, {"t"}), "perm", {1, 0});
  add_node(m, "MatMul", {"x", "t"}, {"y"});
  expect_batch_refused(m, {"every row of one operand with every row of the other", "(MatMul)"});
  m = model_of({1, 3});
  set_ints(add_node(m, "Transpose", {"x"}, {"t"}), "perm", {1, 0});
  add_node(m, "MatMul", {"t", "x"}, {"y"});
  expect_batch_refused(m, {"sums over the batch axis", "(MatMul)"});
}

// Rows without a batch axis: an operator along their first axis would combine all rows.
TEST(OnnxBatch, RowsWithoutAnAxisForTheBatchStayApart) {
  const auto model = [](const std::string& op) {
    file::ModelProto m = model_of({1, 3});
    add_node(m, "Squeeze", {"x"}, {"row"});
    set_int(add_node(m, op, {"row"}, {"y"}), "axis", 0);
    return m;
  };
  expect_batch_refused(model("Softmax"), {"would mix the rows", "(Softmax)"});
  file::ModelProto m = model("Softmax");
  m.mutable_graph()->mutable_node()->RemoveLast();
  add_node(m, "Relu", {"row"}, {"y"});
  const Result<Imported> r = import_batched(m);
  ASSERT_TRUE(r.ok()) << r.status().message();
  EXPECT_EQ(r.value().model.describe().value().entry_points[0].outputs[0].rank, 2u);
}

// If the file declares a dynamic batch, its first row is only the first row, and a shape is the
// shape of all rows.
TEST(OnnxBatch, ADynamicBatchOfTheFileMeansWhatItSays) {
  const auto model = [](const std::string& op) {
    file::ModelProto m = model_of({1, 4});
    m.mutable_graph()
        ->mutable_input(0)
        ->mutable_type()
        ->mutable_tensor_type()
        ->mutable_shape()
        ->mutable_dim(0)
        ->set_dim_param("n");
    add_whole(m, "zero", {0});
    add_whole(m, "one", {1});
    add_whole(m, "last", {-1});
    add_whole(m, "least", {-1000});
    add_whole(m, "pairs", {-1, 2});
    if (op == "first") {
      add_node(m, "Slice", {"x", "zero", "one", "zero"}, {"y"});
    } else if (op == "flip") {
      add_node(m, "Slice", {"x", "last", "least", "zero", "last"}, {"y"});
    } else if (op == "row") {
      add_node(m, "Gather", {"x", "zero"}, {"y"});
    } else {
      add_node(m, "Reshape", {"x", "pairs"}, {"y"});
    }
    return m;
  };
  for (const char* op : {"first", "flip", "row", "pairs"}) {
    SCOPED_TRACE(op);
    expect_batch_refused(model(op), {"The file declares a dynamic batch", "--shape NAME=1,..."});
    ImportOptions of_one;
    of_one.batch_dim = "n";
    of_one.shapes["x"] = {1, 4};
    const Result<Imported> r = import_graph(model(op), "", of_one);
    EXPECT_TRUE(r.ok()) << r.status().message();
  }
}

// An operator may read only the shape of an input.
TEST(OnnxReader, AnInputWithoutUseIsNoted) {
  file::ModelProto m = small_model();
  add_value(m.mutable_graph()->mutable_input(), "unused", {2});
  const Result<Imported> r = import(m);
  ASSERT_TRUE(r.ok()) << r.status().message();
  EXPECT_EQ(r.value().notes,
            (std::vector<std::string>{
                "Input \"unused\" is left out, because no output depends on its values."}));
}

// A mean over the batch that divides by the size as a constant.
TEST(OnnxBatch, WhatFollowsFromTheSizeOfTheBatchIsRefused) {
  file::ModelProto m = model_of({1, 3});
  add_whole(m, "zero", {0});
  add_node(m, "Shape", {"x"}, {"shape"});
  add_node(m, "Gather", {"shape", "zero"}, {"size"});
  file::NodeProto& cast = add_node(m, "Cast", {"size"}, {"real"});
  set_int(cast, "to", 1);
  cast.set_name("as a float");
  add_node(m, "Div", {"x", "real"}, {"y"});
  expect_batch_refused(m, {"\"as a float\"", "depend on the size of the batch \"n\""});
}

// A value that is equal for both trial sizes may still depend on the batch size. It is rejected
// where it determines the graph.
TEST(OnnxBatch, ANumberThatFollowsFromTheSizeIsRefused) {
  const auto model = [](const std::string& op, int64_t operand) {
    file::ModelProto m = model_of({1, 3});
    add_whole(m, "operand", {operand});
    add_whole(m, "zero", {0});
    add_node(m, "Shape", {"x"}, {"shape"});
    add_node(m, "Gather", {"shape", "zero"}, {"size"});
    add_node(m, op, {"size", "operand"}, {"number"});
    return m;
  };
  const auto as_factor = [&](const std::string& op, int64_t operand) {
    file::ModelProto m = model(op, operand);
    set_int(add_node(m, "Cast", {"number"}, {"factor"}), "to", 1);
    add_node(m, "Mul", {"x", "factor"}, {"y"});
    return m;
  };
  for (const char* op : {"Min", "Mod", "Div", "Greater"}) {
    SCOPED_TRACE(op);
    expect_batch_refused(as_factor(op, 4), {"depends on the batch size"});
  }
  // Every batch has at least one row, so "size < 1" does not depend on the batch.
  EXPECT_TRUE(import_batched(as_factor("Less", 0)).ok());
  file::ModelProto m = model("Min", 5);
  add_whole(m, "columns", {1});
  add_node(m, "Slice", {"x", "zero", "number", "columns"}, {"y"});
  expect_batch_refused(m, {"depends on the batch size"});
  m = model("Mul", 1);  // all three columns, although the batch size may differ
  add_whole(m, "columns", {1});
  add_node(m, "Slice", {"x", "zero", "number", "columns"}, {"y"});
  expect_batch_refused(m, {"The slice of axis 1 depends on the size of the batch"});
}

TEST(OnnxBatch, AModelWithoutABatchIsRefused) {
  file::ModelProto m = model_of({2, 3});
  add_node(m, "Relu", {"x"}, {"y"});
  expect_batch_refused(m, {"No input has an axis for the batch \"n\""});
  EXPECT_EQ(import_batched(model_of({1}), "\xff").status().code(), Code::bad_argument);
}

TEST(OnnxReader, ExternalDataStaysInItsFolder) {
  const Folder folder;
  const std::string bytes(24, '\0');
  folder.write("model/w.bin", bytes + bytes);
  folder.write("outside.bin", bytes);
  folder.write("model/sub/w.bin", bytes);
  fs::create_symlink(folder.path / "outside.bin", folder.path / "model" / "link.bin");
  fs::create_directory_symlink(folder.path, folder.path / "model" / "up");
  const auto from = [&](const std::string& location, const std::string& offset = "0",
                        const std::string& length = "24") {
    file::ModelProto m = small_model();
    file::TensorProto& w = *m.mutable_graph()->mutable_initializer(0);
    w.clear_float_data();
    w.set_data_location(1);
    for (const auto& [key, value] : {std::pair<std::string, std::string>{"location", location},
                                     {"offset", offset},
                                     {"length", length}}) {
      auto& entry = *w.add_external_data();
      entry.set_key(key);
      entry.set_value(value);
    }
    return m;
  };
  for (const char* inside : {"w.bin", "sub/w.bin", "./sub//w.bin"}) {
    const Result<Imported> r = import(from(inside), folder.model());
    EXPECT_TRUE(r.ok()) << r.status().message();
  }
  EXPECT_TRUE(import(from("w.bin", "24"), folder.model()).ok());
  for (const char* outside : {"../outside.bin", "sub/../../outside.bin", "link.bin",
                              "up/outside.bin", "", "/etc/passwd", ".", "sub", "none.bin"}) {
    expect_refused(from(outside), Code::bad_file, {"initializer \"w\""}, folder.model());
  }
  expect_refused(from((folder.path / "outside.bin").string()), Code::bad_file,
                 {"not a path relative"}, folder.model());
  expect_refused(from("w.bin", "25"), Code::bad_file, {"48 bytes"}, folder.model());
  expect_refused(from("w.bin", "18446744073709551615"), Code::bad_file, {"48 bytes"},
                 folder.model());
  expect_refused(from("w.bin", "x"), Code::bad_file, {"not a number"}, folder.model());
  expect_refused(from("w.bin", "0", "12"), Code::bad_file, {"12 bytes"}, folder.model());
}

// Small files that would use much memory or time.
TEST(OnnxReader, WhatAFileCostsIsLimited) {
  file::ModelProto m = small_model();
  const auto range = [&](int n, int64_t count) {
    const std::string name = "n" + std::to_string(n);
    for (const auto& [part, value] :
         {std::pair<std::string, int64_t>{"a", 0}, {"b", count}, {"c", 1}}) {
      file::NodeProto& node = add_node(m, "Constant", {}, {name + part});
      file::AttributeProto& a = *node.add_attribute();
      a.set_name("value_int");
      a.set_i(value);
    }
    add_node(m, "Range", {name + "a", name + "b", name + "c"}, {name});
    add_value(m.mutable_graph()->mutable_output(), name, {count}, 7);
  };
  range(0, int64_t{1} << 40);
  expect_refused(m, Code::unsupported, {"too many values", "(Range)"});
  m = small_model();
  for (int n = 0; n < 6; ++n) {
    range(n, 4000000);
  }
  expect_refused(m, Code::over_budget, {"more than 16777216 elements", "(Range)"});
}

TEST(OnnxReader, NestedMessagesAreBounded) {
  file::ModelProto m = small_model();
  file::GraphProto* graph = m.mutable_graph();
  for (int depth = 0; depth < 200; ++depth) {
    file::NodeProto& node = *graph->add_node();
    node.set_op_type("If");
    graph = node.add_attribute()->mutable_g();
  }
  expect_refused(m, Code::bad_file, {"parsing ends at byte"});
}

// Runs the model and returns its only output, for an input x of [2, 3] if the model has inputs.
std::vector<float> run(const file::ModelProto& model, size_t elements) {
  Result<Imported> imported = import(model);
  if (!imported.ok()) {
    ADD_FAILURE() << imported.status().message();
    return {};
  }
  const Device device = Device::open("cpu").value();
  EXPECT_TRUE(imported.value().model.to(device).ok());
  Result<Session> session =
      Session::create(imported.value().model, device, "forward", std::span<const BoundDim>{});
  if (!session.ok()) {
    ADD_FAILURE() << session.status().message();
    return {};
  }
  const EntryPointInfo entry = imported.value().model.describe().value().entry_points[0];
  float x[6] = {1, -2, 3, -4, 5, -6};
  std::vector<float> y(elements, 99);
  const std::vector<Tensor> in(imported.value().inputs.size(), {"x", DType::f32, {2, 3}, x});
  const Tensor out[] = {{"y", DType::f32, entry.outputs[0].shape.value(), y.data()}};
  const Status status = session.value().run(in, out);
  EXPECT_TRUE(status.ok()) << status.message();
  return y;
}

// A model without nodes, with input x [2, 3] and output y.
file::ModelProto bare_model() {
  file::ModelProto m;
  m.set_ir_version(8);
  m.add_opset_import()->set_version(17);
  add_value(m.mutable_graph()->mutable_input(), "x", {2, 3});
  add_value(m.mutable_graph()->mutable_output(), "y", {});
  return m;
}

void add_integers(file::ModelProto& m, const std::string& name, const std::vector<int64_t>& dims,
                  const std::vector<int64_t>& values, int dtype = 7) {
  file::TensorProto& t = *m.mutable_graph()->add_initializer();
  t.set_name(name);
  t.set_data_type(dtype);
  for (const int64_t d : dims) {
    t.add_dims(d);
  }
  for (const int64_t v : values) {
    dtype == 7 ? t.add_int64_data(v) : t.add_int32_data(static_cast<int32_t>(v));
  }
}

file::NodeProto& node_in(file::GraphProto& g, const std::string& op,
                         const std::vector<std::string>& in, const std::vector<std::string>& out) {
  file::NodeProto& node = *g.add_node();
  node.set_op_type(op);
  node.mutable_input()->Add(in.begin(), in.end());
  node.mutable_output()->Add(out.begin(), out.end());
  return node;
}

file::GraphProto& add_graph(file::NodeProto& node, const std::string& name) {
  file::AttributeProto& a = *node.add_attribute();
  a.set_name(name);
  return *a.mutable_g();
}

const ParameterInfo* parameter_named(const ModelInfo& info, const std::string& name) {
  const auto found = std::ranges::find(info.parameters, name, &ParameterInfo::name);
  return found == info.parameters.end() ? nullptr : &*found;
}

TEST(OnnxReader, TheShapeOfWhatFailedIsNotLookedAt) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const float depth : {-1.0f, 0x1p31f, 0x1p40f, -0x1p63f, 1e30f, kNan}) {
    file::ModelProto m = bare_model();
    add_integers(m, "i", {2}, {0, 1});
    add_floats(m, "depth", {}, {depth});
    add_floats(m, "values", {2}, {0, 1});
    add_node(m, "OneHot", {"i", "depth", "values"}, {"y"});
    expect_refused(m, Code::unsupported, {"Depth", "node 0 (OneHot)"});
  }
  file::ModelProto m = bare_model();
  m.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->set_elem_type(2);
  add_integers(m, "w", {}, {1}, 2);
  add_integers(m, "zero", {}, {0}, 2);
  add_node(m, "ConvInteger", {"x", "w", "zero", "zero"}, {"y"});
  expect_refused(m, Code::bad_file, {"node 0 (ConvInteger)"});
  // An axis out of range is rejected in every lowering.
  const Dims none;
  EXPECT_THROW((void)none[0], Refused);
  EXPECT_THROW((void)none.back(), Refused);
}

TEST(OnnxReader, WhatFollowsFromAWeightDoesNotFreezeIt) {
  const std::vector<std::pair<std::string, std::vector<int64_t>>> ways = {
      {"Transpose", {}}, {"Identity", {}}, {"Neg", {}}, {"Reshape", {3, 3}}};
  for (const auto& [op, shape] : ways) {
    file::ModelProto m = bare_model();
    add_floats(m, "W", {3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
    add_integers(m, "s", {2}, shape.empty() ? std::vector<int64_t>{0, 0} : shape);
    add_node(m, op,
             op == "Reshape" ? std::vector<std::string>{"W", "s"} : std::vector<std::string>{"W"},
             {"v"});
    add_node(m, "MatMul", {"x", "v"}, {"y"});
    const Result<Imported> imported = import(m);
    ASSERT_TRUE(imported.ok()) << imported.status().message();
    const ModelInfo info = imported.value().model.describe().value();
    const ParameterInfo* w = parameter_named(info, "W");
    ASSERT_NE(w, nullptr) << op;
    EXPECT_TRUE(w->trainable) << op;
    EXPECT_EQ(info.parameters.size(), 1u) << op;
    if (op == "Transpose") {
      EXPECT_EQ(run(m, 6), (std::vector<float>{6, 12, 18, -12, -27, -42}));
    }
  }
}

// PyTorch writes equal weights once. Weights with equal elements may be equal by chance.
TEST(OnnxReader, WeightsThatAreEqualByChanceTrainApart) {
  for (const bool uniform : {true, false}) {
    file::ModelProto m = bare_model();
    add_floats(m, "first", {3}, {1, 1, uniform ? 1.f : 2.f});
    add_node(m, "Identity", {"first"}, {"second"});
    add_node(m, "Mul", {"x", "first"}, {"h"});
    add_node(m, "Mul", {"h", "second"}, {"y"});
    const ModelInfo info = import(m).value().model.describe().value();
    ASSERT_EQ(info.parameters.size(), uniform ? 2u : 1u);
    EXPECT_EQ(info.parameters.back().name, uniform ? "second" : "first");
    EXPECT_TRUE(info.parameters.back().trainable);
  }
}

TEST(OnnxReader, ConstantsOfSeveralFloatsAreWeightsAndMasksAreNot) {
  const auto model = [](const std::vector<float>& values) {
    file::ModelProto m = bare_model();
    file::AttributeProto& a = *add_node(m, "Constant", {}, {"w"}).add_attribute();
    a.set_name("value_floats");
    for (const float v : values) {
      a.add_floats(v);
    }
    add_node(m, "Add", {"x", "w"}, {"y"});
    return m;
  };
  const auto trainable = [&](const std::vector<float>& values) {
    const ModelInfo info = import(model(values)).value().model.describe().value();
    return info.parameters.at(0).trainable;
  };
  EXPECT_TRUE(trainable({1, 2, 3}));
  EXPECT_FALSE(trainable({1}));
  EXPECT_FALSE(trainable({0, -INFINITY, 0}));
  EXPECT_EQ(import(model({1, 2, 3})).value().model.describe().value().parameters[0].name, "w");
}

TEST(OnnxReader, StatisticsKeepTheirNamesAndAreNotTrained) {
  file::ModelProto m = bare_model();
  const std::vector<float> three = {1, 2, 3};
  for (const char* name : {"scale", "bias", "mean", "variance"}) {
    add_floats(m, name, {3}, three);
  }
  add_node(m, "BatchNormalization", {"x", "scale", "bias", "mean", "variance"}, {"h"});
  // A statistic that two layers share becomes a separate parameter of each layer.
  add_node(m, "BatchNormalization", {"h", "scale", "bias", "bias", "variance"}, {"y"});
  m.mutable_graph()->mutable_node(1)->set_name("second");
  const ModelInfo info = import(m).value().model.describe().value();
  const auto expect = [&](const std::string& name, bool trainable) {
    const ParameterInfo* p = parameter_named(info, name);
    ASSERT_NE(p, nullptr) << name;
    EXPECT_EQ(p->trainable, trainable) << name;
  };
  expect("scale", true);
  expect("bias", true);
  expect("mean", false);
  expect("second.running_mean", false);
  expect("second.running_variance", false);
}

TEST(OnnxReader, ABranchIsChosenByAConditionThatIsKnown) {
  for (const int64_t size : {6, 7}) {
    file::ModelProto m = bare_model();
    add_integers(m, "six", {}, {size});
    add_node(m, "Size", {"x"}, {"size"});
    add_node(m, "Equal", {"size", "six"}, {"condition"});
    file::NodeProto& node = add_node(m, "If", {"condition"}, {"y"});
    file::GraphProto& yes = add_graph(node, "then_branch");
    node_in(yes, "Relu", {"x"}, {"a"});
    yes.add_output()->set_name("a");
    file::GraphProto& no = add_graph(node, "else_branch");
    node_in(no, "Neg", {"x"}, {"b"});
    no.add_output()->set_name("b");
    EXPECT_EQ(run(m, 6), size == 6 ? (std::vector<float>{1, 0, 3, 0, 5, 0})
                                   : (std::vector<float>{-1, 2, -3, 4, -5, 6}));
  }
  file::ModelProto m = bare_model();
  add_node(m, "ReduceSum", {"x"}, {"sum"});
  add_node(m, "Cast", {"sum"}, {"condition"}).add_attribute()->set_name("to");
  m.mutable_graph()->mutable_node(1)->mutable_attribute(0)->set_i(9);
  file::NodeProto& node = add_node(m, "If", {"condition"}, {"y"});
  add_graph(node, "then_branch");
  add_graph(node, "else_branch");
  expect_refused(m, Code::unsupported, {"condition is not known", "--given", "node 2 (If)"});
}

// s = s + x w, with a weight in the body. y has the sums of all iterations.
file::ModelProto loop_model(int64_t iterations, bool weight_is_a_node = false) {
  file::ModelProto m = bare_model();
  add_integers(m, "count", {}, {iterations});
  add_floats(m, "zero", {2, 3}, {0, 0, 0, 0, 0, 0});
  file::NodeProto& node = add_node(m, "Loop", {"count", "", "zero"}, {"last", "y"});
  file::GraphProto& body = add_graph(node, "body");
  for (const char* name : {"i", "before", "s"}) {
    body.add_input()->set_name(name);
  }
  file::TensorProto* w = nullptr;
  if (weight_is_a_node) {
    file::NodeProto& constant = node_in(body, "Constant", {}, {"w"});
    file::AttributeProto& a = *constant.add_attribute();
    a.set_name("value");
    w = a.mutable_t();
  } else {
    w = body.add_initializer();
    w->set_name("w");
  }
  node_in(body, "Mul", {"x", "w"}, {"product"});
  node_in(body, "Add", {"s", "product"}, {"next"});
  node_in(body, "Identity", {"before"}, {"goes_on"});
  for (const char* name : {"goes_on", "next", "next"}) {
    body.add_output()->set_name(name);
  }
  w->set_data_type(1);
  w->add_dims(3);
  for (const float v : {1.f, 10.f, 100.f}) {
    w->add_float_data(v);
  }
  return m;
}

TEST(OnnxReader, ALoopWithAKnownCountIsUnrolledOverOneWeight) {
  for (const bool weight_is_a_node : {false, true}) {
    const file::ModelProto m = loop_model(2, weight_is_a_node);
    EXPECT_EQ(run(m, 12),
              (std::vector<float>{1, -20, 300, -4, 50, -600, 2, -40, 600, -8, 100, -1200}));
    const ModelInfo info = import(m).value().model.describe().value();
    ASSERT_NE(parameter_named(info, "w"), nullptr);
    EXPECT_TRUE(parameter_named(info, "w")->trainable);
    EXPECT_EQ(info.parameters.size(), 2u);  // with the initial zeros
  }
  expect_refused(loop_model(int64_t{1} << 40), Code::over_budget, {"262144 nodes", "(Loop)"});
  expect_refused(loop_model(0), Code::unsupported, {"no iterations", "(Loop)"});
}

// A very long loop is rejected before it is expanded.
TEST(OnnxReader, LoopsWithoutNodesAreLimited) {
  file::ModelProto m = loop_model(int64_t{1} << 40);
  file::GraphProto& body = *m.mutable_graph()->mutable_node(0)->mutable_attribute(0)->mutable_g();
  body.clear_node();
  body.mutable_output(0)->set_name("before");
  body.mutable_output(1)->set_name("s");
  body.mutable_output(2)->set_name("s");
  expect_refused(m, Code::over_budget, {"1099511627776 iterations", "262144 nodes", "(Loop)"});
}

TEST(OnnxReader, AScanReadsOneRowAfterTheOther) {
  file::ModelProto m = bare_model();
  add_floats(m, "zero", {3}, {0, 0, 0});
  file::NodeProto& node = add_node(m, "Scan", {"zero", "x"}, {"last", "y"});
  file::AttributeProto& scanned = *node.add_attribute();
  scanned.set_name("num_scan_inputs");
  scanned.set_i(1);
  set_ints(node, "scan_input_directions", {1});
  set_ints(node, "scan_output_axes", {-1});
  file::GraphProto& body = add_graph(node, "body");
  body.add_input()->set_name("s");
  body.add_input()->set_name("row");
  node_in(body, "Add", {"s", "row"}, {"next"});
  body.add_output()->set_name("next");
  body.add_output()->set_name("next");
  // The scan runs backwards and writes the sums to columns.
  EXPECT_EQ(run(m, 6), (std::vector<float>{-4, -3, 5, 3, -6, -3}));
}

TEST(OnnxReader, ALocalFunctionIsReadInPlace) {
  file::ModelProto m = bare_model();
  auto& set = *m.add_opset_import();
  set.set_domain("mine");
  set.set_version(1);
  file::FunctionProto& f = *m.add_functions();
  f.set_domain("mine");
  f.set_name("Leaky");
  f.add_input("a");
  f.add_input("unused");
  f.add_output("b");
  f.add_attribute("slope");
  f.add_opset_import()->set_version(17);
  file::NodeProto& leaky = *f.add_node();
  leaky.set_op_type("LeakyRelu");
  leaky.add_input("a");
  leaky.add_output("b");
  file::AttributeProto& alpha = *leaky.add_attribute();
  alpha.set_name("alpha");
  alpha.set_ref_attr_name("slope");
  file::NodeProto& node = add_node(m, "Leaky", {"x"}, {"y"});
  node.set_domain("mine");
  file::AttributeProto& slope = *node.add_attribute();
  slope.set_name("slope");
  slope.set_f(0.5f);
  EXPECT_EQ(run(m, 6), (std::vector<float>{1, -1, 3, -2, 5, -3}));
  slope.set_name("slop");
  expect_refused(m, Code::unsupported, {"\"slop\" is not supported", "node 0 (Leaky)"});
  // Recursion of a function ends with an error.
  slope.set_name("slope");
  leaky.set_op_type("Leaky");
  leaky.set_domain("mine");
  leaky.clear_attribute();
  expect_refused(m, Code::unsupported, {"nested deeper than 32 levels"});
}

// Parses and imports a changed file. Returns whether the importer reached its nodes.
bool read_anything(const std::string& bytes) {
  const Result<std::shared_ptr<file::ModelProto>> parsed = parse_model(bytes);
  if (!parsed.ok()) {
    EXPECT_FALSE(parsed.status().message().empty());
    return false;
  }
  const Result<Imported> imported = import_graph(*parsed.value(), "/nowhere", {});
  EXPECT_TRUE(imported.ok() || !imported.status().message().empty());
  const Code code = imported.status().code();
  EXPECT_TRUE(imported.ok() || code == Code::bad_file || code == Code::unsupported ||
              code == Code::over_budget || code == Code::out_of_memory)
      << name_of(code) << ": " << imported.status().message();
  return imported.ok() || imported.status().message().find("node ") != std::string::npos;
}

std::vector<std::string> seeds() {
  std::vector<std::string> out = {small_model().SerializeAsString()};
  // One model for each operator of the ONNX test package, if it is installed.
  std::error_code error;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(BOWLINE_ONNX_DATA, error)) {
    found.push_back(entry.path() / "model.onnx");
  }
  std::ranges::sort(found);
  for (size_t i = 0; i < found.size(); i += 7) {
    std::ifstream in(found[i], std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(in), {});
    if (bytes.size() < 20000) {
      out.push_back(bytes);
    }
  }
  return out;
}

TEST(OnnxReader, EveryTruncationGivesAStatus) {
  for (const std::string& bytes : seeds()) {
    for (size_t n = 0; n < bytes.size(); n += 1 + bytes.size() / 100) {
      read_anything(bytes.substr(0, n));
    }
  }
  const std::string whole = small_model().SerializeAsString();
  for (size_t n = 0; n < whole.size(); ++n) {
    read_anything(whole.substr(0, n));
  }
}

TEST(OnnxReader, RandomChangesGiveAStatus) {
  std::mt19937 random(17);
  int tries = 0, read = 0;
  for (const std::string& seed : seeds()) {
    for (int i = 0; i < 300; ++i) {
      std::string bytes = seed;
      for (unsigned n = 1 + random() % 4; n > 0; --n) {
        const size_t at = random() % bytes.size();
        switch (random() % 4) {
          case 0:
            bytes[at] = static_cast<char>(random());
            break;
          case 1:
            bytes[at] = static_cast<char>(bytes[at] ^ 1 << random() % 8);
            break;
          case 2:
            bytes.erase(at, 1 + random() % 3);
            break;
          default:
            bytes.insert(at, 1, static_cast<char>(random() % 2 == 0 ? 0xff : random()));
        }
        if (bytes.empty()) {
          break;
        }
      }
      SCOPED_TRACE(i);
      ++tries;
      read += read_anything(bytes) ? 1 : 0;
    }
  }
  EXPECT_GT(read, tries / 20) << "Few of the changed files are read as far as their nodes.";
}

}  // namespace
}  // namespace bowline::onnx
