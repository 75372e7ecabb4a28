// Quantized storages, on every device: a storage is encoded once, all of its parameters read the same codes, and what stays
// trainable trains through them.
#include <filesystem>

#include "ties/seed_models.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

using Quantized = OnDevice;
BOWLINE_ON_ALL_DEVICES(Quantized);

std::string scratch_file(const std::string& name) {
  const auto* info = testing::UnitTest::GetInstance()->current_test_info();
  return testing::TempDir() + test_name(info->name()) + "_" + name;
}

// E is embedding and head: "forward" gives a row of it, and the logits of x.
Model tied(const Dims& shape, Floats numbers) {
  Model m;
  const Parameter embedding = must(m.parameter("embed", shape, Init::normal(0.5f)));
  const Parameter head = must(m.tied_parameter("head", embedding));
  GraphBuilder g(m, "forward");
  const Value id = g.input("id", DType::i32, {1});
  const Value x = g.input("x", DType::f32, {1, shape[1]});
  g.output("row", g.op("Embedding", {g.parameter(embedding), id}));
  g.output("logits", g.op("Linear", {x, g.parameter(head)}));
  EXPECT_OK(g.finish());
  EXPECT_OK(m.materialize(1));
  if (!numbers.empty()) {
    EXPECT_OK(set(m, "embed", shape, std::move(numbers)));
  }
  return m;
}

Model q8() { return tied({3, 2}, {1, -0.5f, 0.25f, 0.75f, -1.27f, 0.633f}); }

struct Outputs {
  Floats row;
  Floats logits;
};

Outputs run(const Model& model, const Device& device, int32_t id, Floats x) {
  const ModelInfo info = must(model.describe());
  const auto rows = info.storages[0].shape[0];
  const auto columns = info.storages[0].shape[1];
  Session session = must(Session::create(model, device, "forward", {}));
  Outputs out{Floats(static_cast<size_t>(columns)), Floats(static_cast<size_t>(rows))};
  std::vector<int32_t> ids = {id};
  const Dims one = {1}, wide = {1, columns}, logits = {1, rows};
  const Tensor in[] = {tensor("id", one, ids), tensor("x", wide, x)};
  const Tensor results[] = {tensor("row", wide, out.row), tensor("logits", logits, out.logits)};
  EXPECT_OK(session.run(in, results));
  return out;
}

std::vector<int> codes_of(const Model& model, size_t count) {
  const std::vector<std::byte> bytes = must(model.storage_bytes(0));
  std::vector<int> out;
  for (size_t i = 0; i < count; ++i) {
    out.push_back(static_cast<int8_t>(bytes[i]));
  }
  return out;
}

const std::vector<int> kCodes = {100, -50, 25, 75, -127, 63};

void expect_q8(const Model& model, const Device& device) {
  const Outputs out = run(model, device, 2, {1, 1});
  expect_number(out.row[0], -1.27);
  expect_number(out.row[1], 0.63, {{0.633, "the head was quantized, the embedding reads a copy"}});
  expect_number(out.logits[0], 0.5);
  expect_number(out.logits[1], 1.0);
  expect_number(out.logits[2], -0.64, {{-0.637, "the embedding was quantized, the head was not"}});
  EXPECT_EQ(codes_of(model, 6), kCodes);
  EXPECT_TRUE(model.same_storage("embed", "head").value());
}

TEST_P(Quantized, Q8) {
  Model m = q8();
  ASSERT_OK(m.to(device_));
  const std::string ties = m.ties();
  const QuantizeReport report = must(m.quantize("int8", "head"));
  EXPECT_EQ(report.storages, 1u);
  EXPECT_EQ(report.bytes_before, 24u);
  EXPECT_EQ(report.bytes_after, 12u) << "6 codes, 2 to reach a scale, the scale";
  EXPECT_EQ(must(m.describe()).storages[0].bytes, 12u);
  EXPECT_EQ(m.ties(), ties);
  expect_q8(m, device_);
}

// A codes-to-numbers-to-codes round trip gives the same codes, and each verb between leaves them alone.
TEST_P(Quantized, EveryVerbKeepsTheCodesAndTheTie) {
  Model m = q8();
  ASSERT_OK(m.quantize("int8"));
  const std::string ties = m.ties();
  const Device cpu = open_test_device("cpu");
  ASSERT_OK(m.to(device_));
  expect_q8(m, device_);
  ASSERT_OK(m.to(cpu));
  expect_q8(m, cpu);
  ASSERT_OK(m.to(device_));
  const std::string path = scratch_file("q8.bowline");
  ASSERT_OK(m.save(path));
  std::vector<Model> copies;
  copies.push_back(must(m.clone()));
  copies.push_back(must(Model::open(path)));
  for (Model& copy : copies) {
    ASSERT_OK(copy.to(device_));
    expect_q8(copy, device_);
    EXPECT_EQ(copy.ties(), ties);
  }
  ASSERT_OK(m.load(path, {.mode = LoadMode::copy}));
  expect_q8(m, device_);
  ASSERT_OK(m.dequantize());
  EXPECT_EQ(must(m.describe()).storages[0].encoding, "plain");
  EXPECT_EQ(m.ties(), ties);
  const Outputs out = run(m, device_, 2, {1, 1});
  expect_number(out.row[1], 0.63);
  expect_number(out.logits[2], -0.64);
  ASSERT_OK(m.quantize("int8"));
  expect_q8(m, device_);
}

// Every encoding: both uses give the numbers that get_value() says, through whatever kernel the device has.
TEST_P(Quantized, BothUsesReadTheSameNumbers) {
  for (const char* encoding :
       {"int8", "int8 block row scale f16", "int8 block 32", "int8 block 32 with zero points",
        "int4", "int4 with zero points", "int4 block 16 scale f32", "q8_0", "q4_0"}) {
    SCOPED_TRACE(encoding);
    Model m = tied({67, 96}, {});
    ASSERT_OK(m.to(device_));
    const QuantizeReport report = must(m.quantize(encoding));
    ASSERT_EQ(report.storages, 1u) << report.text();
    EXPECT_EQ(report.bytes_after, must(m.storage_bytes(0)).size()) << "predicted, and real";
    const Floats numbers = values(m, "head");
    Floats x(96);
    x[5] = 1;
    const Outputs out = run(m, device_, 66, x);
    for (size_t i = 0; i < 96; ++i) {
      expect_number(out.row[i], numbers[66 * 96 + i]);
    }
    for (size_t r = 0; r < 67; ++r) {
      expect_number(out.logits[r], numbers[r * 96 + 5]);
    }
  }
}

// The head is shown transposed: MatMul reads the codes as they lie.
TEST_P(Quantized, ATransposedViewReadsTheCodes) {
  Model m;
  const Parameter embedding = must(m.parameter("embed", Dims{5, 3}, Init::normal(0.5f)));
  View transposed;
  transposed.transpose = true;
  const Parameter head = must(m.tied_parameter("head", embedding, transposed));
  GraphBuilder g(m, "forward");
  const Value x = g.input("x", DType::f32, {2, 3});
  g.output("logits", g.op("MatMul", {x, g.parameter(head)}));
  ASSERT_OK(g.finish());
  ASSERT_OK(m.materialize(3));
  const QuantizeReport rows = must(m.quantize("int8 block row"));
  EXPECT_EQ(rows.storages, 0u);
  EXPECT_EQ(
      rows.text(),
      "0 storages: 0 bytes before, 0 after\nkept \"embed\" is shown by \"head\": A view cannot "
      "transpose blocks along axis -1.\n");
  ASSERT_EQ(must(m.quantize("int8")).storages, 1u);
  ASSERT_OK(m.to(device_));
  Session session = must(Session::create(m, device_, "forward", {}));
  Floats in = {1, 0, 0, 0, 0, 1}, out(10);
  const Dims shape = {2, 3}, result = {2, 5};
  const Tensor inputs[] = {tensor("x", shape, in)}, outputs[] = {tensor("logits", result, out)};
  ASSERT_OK(session.run(inputs, outputs));
  const Floats e = values(m, "embed");
  for (size_t n = 0; n < 5; ++n) {
    expect_number(out[n], e[n * 3]);
    expect_number(out[5 + n], e[n * 3 + 2]);
  }
  EXPECT_EQ(must(m.describe()).storages[0].copies.size(), 0u);
}

// A frozen base of codes between trained weights: the gradient flows through it, its bytes stay, and the steps are those of the
// numbers that the codes stand for.
TEST_P(Quantized, TrainsWhatIsAroundIt) {
  const auto make = [] {
    Seed s;
    s.shape = {2, 33};
    s.x = Floats(66);
    for (size_t i = 0; i < s.x.size(); ++i) {
      s.x[i] = static_cast<float>(i % 7) * 0.1f - 0.3f;
    }
    const Parameter first = must(s.model.parameter("first", Dims{34, 33}, Init::normal(0.3f)));
    const Parameter base = must(s.model.parameter("base", Dims{35, 34}, Init::normal(0.3f)));
    const Parameter last = must(s.model.parameter("last", Dims{5, 35}, Init::normal(0.3f)));
    GraphBuilder g(s.model, "loss");
    Value y = g.input("x", DType::f32, {2, 33});
    for (const Parameter& w : {first, base, last}) {
      y = g.op("Linear", {y, g.parameter(w)});
    }
    g.output("loss", g.op("ReduceMean", {g.op("Mul", {y, y})}));
    EXPECT_OK(g.finish());
    EXPECT_OK(s.model.materialize(7));
    return s;
  };
  for (const char* encoding : {"int8", "int4 block 8 with zero points"}) {
    SCOPED_TRACE(encoding);
    Seed codes = make(), numbers = make();
    ASSERT_EQ(must(codes.model.quantize(encoding, "base")).storages, 1u);
    ASSERT_OK(numbers.model.quantize(encoding, "base"));
    ASSERT_OK(numbers.model.dequantize("base"));
    const auto before = must(codes.model.storage_bytes(1));
    for (Seed* s : {&codes, &numbers}) {
      ASSERT_OK(s->model.to(device_));
      Trainer t = must(Trainer::create(s->model, device_, plain_sgd(0.1f)));
      for (int i = 0; i < 3; ++i) {
        step(t, *s);
      }
      EXPECT_EQ(s->model.quantize("int8", "first").status().message(),
                "The model is busy: a Trainer lives, and quantize() would change what it trains.");
    }
    EXPECT_EQ(must(codes.model.storage_bytes(1)), before);
    for (const char* name : {"first", "last"}) {
      const Floats got = values(codes.model, name), right = values(numbers.model, name);
      EXPECT_NE(got, values(make().model, name));
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], right[i], 1e-5f) << name;
      }
    }
  }
}

// Plans that compute in 16 bits read the same codes: no copy of them is made.
TEST_P(Quantized, IsReadByPlansIn16Bits) {
  Model m = tied({67, 96}, {});
  ASSERT_OK(m.quantize("int8 block row"));
  ASSERT_OK(m.to(device_));
  const Floats numbers = values(m, "embed");
  BoundEntryPoint entry{"forward", {}, DType::bf16};
  Session session = must(Session::create(m, device_, std::span(&entry, 1)));
  Floats x(96), row(96), logits(67);
  x[5] = 1;
  std::vector<int32_t> ids = {3};
  const Dims one = {1}, wide = {1, 96}, out = {1, 67};
  const Tensor in[] = {tensor("id", one, ids), tensor("x", wide, x)};
  const Tensor results[] = {tensor("row", wide, row), tensor("logits", out, logits)};
  ASSERT_OK(session.run(in, results));
  for (size_t r = 0; r < 67; ++r) {
    EXPECT_NEAR(logits[r], numbers[r * 96 + 5], 0.01f);
  }
  EXPECT_EQ(must(m.describe()).storages[0].copies.size(), 0u);
}

// R50: what is reported is what the graph gets, and no code or scale is rounded again.
TEST_P(Quantized, ACastKeepsTheCodes) {
  Model m = q8();
  ASSERT_OK(m.quantize("int8"));
  ASSERT_OK(m.to(device_));
  const auto before = must(m.storage_bytes(0));
  EXPECT_EQ(must(m.cast(DType::bf16)).storages, 1u);
  EXPECT_EQ(must(m.storage_bytes(0)), before);
  EXPECT_EQ(must(m.describe()).storages[0].dtype, DType::bf16);
  Session session = must(Session::create(m, device_, "forward", {}));
  std::vector<int32_t> ids = {2};
  std::vector<uint16_t> x = {0x3F80, 0x3F80}, row(2), logits(3);  // 1, 1
  const Dims one = {1}, wide = {1, 2}, out = {1, 3};
  const Tensor in[] = {tensor("id", one, ids), {"x", DType::bf16, wide, x.data()}};
  const Tensor results[] = {{"row", DType::bf16, wide, row.data()},
                            {"logits", DType::bf16, out, logits.data()}};
  ASSERT_OK(session.run(in, results));
  EXPECT_EQ(row, (std::vector<uint16_t>{0xBFA3, 0x3F21})) << "-1.27 and 0.63";
  EXPECT_EQ(logits, (std::vector<uint16_t>{0x3F00, 0x3F80, 0xBF24})) << "0.5, 1, -0.64";
}

// ------------------------------------------------------------------------------------------ reports

TEST(Quantize, TwiceIsNothing) {
  Model m = q8();
  ASSERT_OK(m.quantize("int8"));
  const std::string before = m.storages();
  const QuantizeReport again = must(m.quantize("int8"));
  EXPECT_EQ(again.storages, 0u);
  EXPECT_EQ(m.storages(), before);
  EXPECT_EQ(
      m.quantize("int4").status().message(),
      "\"embed\" is stored as int8 scale f32, not int4 block 32 axis -1 scale f16; dequantize() "
      "gives it numbers.");
  EXPECT_EQ(m.storages(), before);
}

TEST(Quantize, SaysWhatItDoesNotKnow) {
  Model m = q8();
  const std::string before = m.storages();
  EXPECT_EQ(m.quantize("q9").status().message(),
            "There is no encoding \"q9\" but plain, int8, int4, q8_0, q4_0.");
  EXPECT_EQ(m.quantize("int8 blocks 3").status().message(),
            "\"int8 blocks 3\" is no encoding: \"blocks 3\" says nothing of int8.");
  EXPECT_EQ(m.quantize("q8_0 block 16").status().message(),
            "\"q8_0 block 16\" is no encoding: \"block 16\" says nothing of q8_0.");
  EXPECT_EQ(m.quantize("plain").status().message(),
            "quantize() makes codes; dequantize() makes numbers.");
  EXPECT_EQ(m.quantize("int8", "nothing").status().message(),
            "The pattern \"nothing\" matches none of the 2 parameters.");
  EXPECT_EQ(m.storages(), before);
}

// One use of a storage that takes no codes keeps all of it plain, and is named.
TEST(Quantize, IsForStoragesWhoseReadersAllTakeCodes) {
  Model m;
  const Parameter w = must(m.parameter("w", Dims{4, 4}, Init::normal(1)));
  const Parameter tied_to_w = must(m.tied_parameter("tied", w));
  const Parameter bias = must(m.parameter("bias", Dims{4}, Init::normal(1)));
  const Parameter good = must(m.parameter("good", Dims{4, 4}, Init::normal(1)));
  const Parameter small = must(m.parameter("small", Dims{1, 1}, Init::normal(1)));
  GraphBuilder g(m, "forward");
  const Value x = g.input("x", DType::f32, {2, 4});
  const Value y =
      g.op("Linear", {g.op("Linear", {x, g.parameter(w), g.parameter(bias)}), g.parameter(good)});
  g.output("y", g.op("Add", {y, g.op("ReduceSum", {g.op("Abs", {g.parameter(tied_to_w)})})}));
  g.output("z",
           g.op("MatMul", {g.op("ReduceSum", {x}, {{"keep_dims", true}}), g.parameter(small)}));
  ASSERT_OK(g.finish());
  ASSERT_OK(m.materialize(1));
  const QuantizeReport report = must(m.quantize("int8"));
  EXPECT_EQ(report.text(),
            "1 storage: 64 bytes before, 20 after\n"
            "kept \"w\" is read by node 2 (Abs) of \"forward\", which takes no codes\n"
            "kept \"bias\" has rank 1\n"
            "kept \"small\" would have 8 bytes instead of 4\n");
}

TEST(Quantize, DropsWhatBelongedToTheNumbers) {
  Seed s = lm32();
  const Device cpu = open_test_device("cpu");
  ASSERT_OK(s.model.to(cpu));
  TrainOptions o = plain_sgd(0.1f);
  o.optimizer.momentum = 0.9f;
  {
    Trainer t = must(Trainer::create(s.model, cpu, o));
    step(t, s);
    const std::string path = scratch_file("trained.bowline");
    ASSERT_OK(t.save(path, {}));
    s.model = must(Model::open(path));
  }
  const QuantizeReport report = must(s.model.quantize("int8"));
  ASSERT_EQ(report.dropped.size(), 1u);
  EXPECT_EQ(report.dropped[0].role, StorageRole::moment);
  EXPECT_EQ(report.dropped[0].bytes, 24u);
  EXPECT_FALSE(must(s.model.describe()).storages[0].trainable);
}

// R116: quantizing raises neither memory nor file.
TEST(Quantize, ATiedModelShrinksWithItsFile) {
  Model m = tied({1000, 64}, {});
  const std::string before = scratch_file("f32.bowline"), after = scratch_file("int8.bowline");
  ASSERT_OK(m.save(before));
  const QuantizeReport report = must(m.quantize("int8 block row"));
  EXPECT_EQ(report.bytes_before, 256000u);
  EXPECT_EQ(report.bytes_after, 68000u);
  ASSERT_OK(m.save(after));
  EXPECT_EQ(weight_bytes(must(Model::open(after))), 68000u);
  EXPECT_LE(std::filesystem::file_size(after), 68000u + 8192);
  EXPECT_LT(std::filesystem::file_size(after), std::filesystem::file_size(before));
}

// R117: no side, both in one encoding, both in two, one side; tied, and with storages of their own.
TEST(Quantize, ThePartitionIsAsDeclaredInEveryCase) {
  for (const bool is_tied : {true, false}) {
    const auto make = [&] {
      Model m = tied({64, 64}, {});
      if (!is_tied) {
        EXPECT_OK(m.untie("head"));
      }
      return m;
    };
    const auto bytes = [](const Model& m) { return weight_bytes(m); };
    const uint64_t plain = 64 * 64 * 4, int8 = 64 * 64 + 4, q4 = 64 * 2 * 18;
    const std::string ties = make().ties();
    Model none = make();
    EXPECT_EQ(bytes(none), is_tied ? plain : 2 * plain);
    Model same = make();
    ASSERT_OK(same.quantize("int8"));
    EXPECT_EQ(bytes(same), is_tied ? int8 : 2 * int8);
    EXPECT_EQ(same.ties(), ties);
    Model different = make();
    ASSERT_OK(different.quantize("int8", "embed"));
    const Status second = different.quantize("q4_0", "head").status();
    EXPECT_EQ(second.ok(), !is_tied) << second.message();
    EXPECT_EQ(bytes(different), is_tied ? int8 : int8 + q4);
    EXPECT_EQ(different.ties(), ties);
    Model one = make();
    ASSERT_OK(one.quantize("int8", "head"));
    EXPECT_EQ(bytes(one), is_tied ? int8 : plain + int8);
    EXPECT_EQ(one.ties(), ties);
  }
}

}  // namespace
}  // namespace bowline::test
