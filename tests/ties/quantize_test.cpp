// Quantized storages on every device. A storage is quantized once, all of its parameters read the
// same quantized values, and the trainable storages train through them.
#include "model/tied_model.h"
#include "ties/seed_models.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

using Quantized = OnDevice;
BOWLINE_ON_ALL_DEVICES(Quantized);

Model q8() { return lookup_and_head({3, 2}, {1, -0.5f, 0.25f, 0.75f, -1.27f, 0.633f}); }

// For every encoding, both uses read the values that get_value() returns, with any kernel of the
// device.
TEST_P(Quantized, BothUsesReadTheSameNumbers) {
  for (const char* encoding : {"int8", "int8 block row scale f16", "int8 block 32",
                               "int8 block 32 with zero points", "int4", "int4 with zero points",
                               "int4 block 16 scale f32", "q8_0", "q4_0", "q5_1", "iq4_nl"}) {
    SCOPED_TRACE(encoding);
    Model m = lookup_and_head({67, 96});
    ASSERT_OK(m.to(device_));
    const QuantizeReport report = must(quantize(m, encoding));
    ASSERT_EQ(report.storages, 1u) << report.text();
    EXPECT_EQ(report.bytes_after, must(m.storage_bytes(0)).size()) << "predicted, and real";
    const Floats numbers = values(m, "head");
    const auto check = [&] {
      Floats x(96);
      x[5] = 1;
      const RowAndLogits out = run_lookup_and_head(m, device_, 66, x);
      for (size_t i = 0; i < 96; ++i) {
        expect_number(out.row[i], numbers[66 * 96 + i]);
      }
      for (size_t r = 0; r < 67; ++r) {
        expect_number(out.logits[r], numbers[r * 96 + 5]);
      }
    };
    check();
    // Behind other bytes in the allocation.
    WeightFormat behind;
    behind.name = "behind";
    behind.layout = [](std::span<const StorageInfo> group) {
      return Result(FormatLayout{64 + group[0].bytes, {64}});
    };
    ASSERT_OK(register_weight_format(m, std::move(behind)));
    ASSERT_EQ(must(set_weight_format(m, "behind")).ties.size(), 1u);
    check();
    // As two storages.
    EXPECT_EQ(must(m.untie_cost("head")), report.bytes_after);
    EXPECT_EQ(must(m.untie("head")), report.bytes_after);
    EXPECT_EQ(values(m, "head"), numbers);
    EXPECT_EQ(values(m, "embed"), numbers);
    check();
  }
}

// A view of rows keeps their quantized values and scales.
TEST_P(Quantized, AnUntiedPartHasTheSameNumbers) {
  for (const char* encoding :
       {"int8", "int8 with zero points", "int8 block row with zero points",
        "int8 block 32 scale bf16", "int4 with zero points", "q8_0", "q4_0"}) {
    SCOPED_TRACE(encoding);
    Model m;
    const Parameter whole = must(m.parameter("whole", {7, 64}, Init::normal(0.5f)));
    View rows;
    rows.row_start = 2;
    rows.rows = 3;
    must(m.tied_parameter("rows", whole, rows));
    ASSERT_OK(m.materialize(1));
    ASSERT_OK(m.to(device_));
    ASSERT_EQ(must(quantize(m, encoding)).storages, 1u);
    const std::string encoded = must(m.describe()).storages[0].encoding;
    const Floats all = values(m, "whole"), some = values(m, "rows");
    const uint64_t cost = must(m.untie_cost("rows"));
    EXPECT_EQ(must(m.untie("rows")), cost);
    const ModelInfo info = must(m.describe());
    EXPECT_EQ(info.storages[1].encoding, encoded);
    EXPECT_EQ(must(m.storage_bytes(1)).size(), cost);
    EXPECT_EQ(values(m, "rows"), some);
    EXPECT_EQ(values(m, "whole"), all);
  }
}

// The head is a transposed view. MatMul reads the quantized values in place.
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
  const QuantizeReport rows = must(quantize(m, "int8 block row"));
  EXPECT_EQ(rows.storages, 0u);
  EXPECT_EQ(rows.text(),
            "0 storages converted: 0 bytes before, 0 after\nkept \"embed\" is viewed by \"head\": "
            "A view cannot "
            "transpose blocks along axis -1.\n");
  ASSERT_EQ(must(quantize(m, "int8")).storages, 1u);
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

// Frozen quantized weights between trained weights. The gradient flows through them, their bytes do
// not change, and the steps equal those with the dequantized values.
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
    ASSERT_EQ(must(quantize(codes.model, encoding, "base")).storages, 1u);
    ASSERT_OK(quantize(numbers.model, encoding, "base"));
    ASSERT_OK(dequantize(numbers.model, "base"));
    const auto before = must(codes.model.storage_bytes(1));
    for (Seed* s : {&codes, &numbers}) {
      ASSERT_OK(s->model.to(device_));
      Trainer t = must(Trainer::create(s->model, device_, plain_sgd(0.1f)));
      for (int i = 0; i < 3; ++i) {
        step(t, *s);
      }
      EXPECT_EQ(quantize(s->model, "int8", "first").status().message(),
                "The model is busy: quantize() would change parameters that a Trainer uses. "
                "Destroy the Trainer first.");
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

// Plans that compute in 16 bits read the same quantized values without a copy.
TEST_P(Quantized, IsReadByPlansIn16Bits) {
  Model m = lookup_and_head({67, 96});
  ASSERT_OK(quantize(m, "int8 block row"));
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

// R50: reports show the values that the graph reads, and a cast rounds neither quantized values nor
// scales again.
TEST_P(Quantized, ACastKeepsTheCodes) {
  Model m = q8();
  ASSERT_OK(quantize(m, "int8"));
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

// ------------------------------------------------------------------------------------------
// reports

TEST(Quantize, TwiceIsNothing) {
  Model m = q8();
  ASSERT_OK(quantize(m, "int8"));
  const std::string before = m.storages();
  const QuantizeReport again = must(quantize(m, "int8"));
  EXPECT_EQ(again.storages, 0u);
  EXPECT_EQ(m.storages(), before);
  EXPECT_EQ(quantize(m, "int4").status().message(),
            "\"embed\" is stored as int8 scale f32, not int4 block 32 axis -1 scale f16; call "
            "dequantize() first.");
  EXPECT_EQ(m.storages(), before);
}

TEST(Quantize, SaysWhatItDoesNotKnow) {
  Model m = q8();
  const std::string before = m.storages();
  std::string known = "plain, int8, int4";
  for (const BlockFormat& format : block_formats()) {
    known += ", " + std::string(format.name);
  }
  EXPECT_EQ(quantize(m, "q9").status().message(),
            "There is no encoding \"q9\". Encodings of this build: " + known + ".");
  EXPECT_EQ(quantize(m, "int8 blocks 3").status().message(),
            "\"int8 blocks 3\" is not an encoding: \"blocks 3\" is not a parameter of int8.");
  EXPECT_EQ(quantize(m, "q8_0 block 16").status().message(),
            "\"q8_0 block 16\" is not an encoding: \"block 16\" is not a parameter of q8_0.");
  EXPECT_EQ(quantize(m, "plain").status().message(),
            "quantize() cannot quantize to plain values. Use dequantize().");
  EXPECT_EQ(quantize(m, "int8", "nothing").status().message(),
            "The pattern \"nothing\" matches none of the 2 parameters.");
  EXPECT_EQ(m.storages(), before);
}

// A storage stays plain if one of its uses cannot read quantized values. The report names the use.
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
  const QuantizeReport report = must(quantize(m, "int8"));
  EXPECT_EQ(
      report.text(),
      "1 storage converted: 64 bytes before, 20 after\n"
      "kept \"w\" is read by node 2 (Abs) of \"forward\", which cannot read quantized values\n"
      "kept \"bias\" has rank 1\n"
      "kept \"small\" would have 8 bytes instead of 4\n");
}

TEST(Quantize, DropsWhatBelongedToTheNumbers) {
  Seed s = lm32();
  const Device cpu = open_test_device("cpu");
  ASSERT_OK(s.model.to(cpu));
  TrainOptions o = plain_sgd(0.1f);
  o.optimizer.settings["momentum"] = 0.9f;
  {
    Trainer t = must(Trainer::create(s.model, cpu, o));
    step(t, s);
    const Folder folder;
    const std::string path = folder / "trained.bowline";
    ASSERT_OK(t.save(path, {}));
    s.model = must(Model::open(path));
  }
  const QuantizeReport report = must(quantize(s.model, "int8"));
  ASSERT_EQ(report.dropped.size(), 1u);
  EXPECT_EQ(report.dropped[0].role, StorageRole::moment);
  EXPECT_EQ(report.dropped[0].bytes, 24u);
  EXPECT_FALSE(must(s.model.describe()).storages[0].trainable);
}

Model of_rows(int64_t rows, const Floats& numbers) {
  return lookup_and_head({rows, static_cast<int64_t>(numbers.size()) / rows}, numbers);
}

TEST(Quantize, KeepsWhatNoScaleHolds) {
  Floats large(64, 0.5f);
  large[3] = 5e5f;
  Floats tiny(64, 1e-9f);
  for (const Floats& numbers : {large, tiny}) {
    for (const char* encoding : {"int4", "q4_0"}) {
      SCOPED_TRACE(encoding);
      Model m = of_rows(2, numbers);
      const bool is_small_for_q4_0 = numbers == large && std::string_view(encoding) == "q4_0";
      const QuantizeReport report = must(quantize(m, encoding));
      EXPECT_EQ(report.storages, is_small_for_q4_0 ? 1u : 0u) << report.text();
      if (!is_small_for_q4_0) {
        ASSERT_EQ(report.kept.size(), 1u);
        EXPECT_NE(report.kept[0].find("\"embed\" has values that "), std::string::npos)
            << report.kept[0];
        EXPECT_EQ(values(m, "embed"), numbers);
      }
    }
  }
  Model m = of_rows(2, large);
  EXPECT_EQ(must(quantize(m, "int8")).storages, 1u) << "its scale is f32";
}

// All storages in a list of a Repeat have one encoding.
TEST(Quantize, OneStorageThatStaysKeepsItsList) {
  Model m;
  const ParameterList list = must(m.parameters("w{}", 3, Dims{32, 32}, Init::normal(0.1f)));
  GraphBuilder g(m, "forward");
  const Value x = g.input("x", DType::f32, {1, 32});
  g.output("y", g.repeat(3, {x}, [&](GraphBuilder& b, const std::vector<Value>& carried) {
    return std::vector<Value>{b.op("Linear", {carried[0], b.parameter(list)})};
  })[0]);
  ASSERT_OK(g.finish());
  ASSERT_OK(m.materialize(1));
  Floats numbers = values(m, "w1");
  numbers[7] = 1e6f;
  const Dims shape = {32, 32};
  ASSERT_OK(m.set_value("w1", tensor("", shape, numbers)));
  const QuantizeReport report = must(quantize(m, "int4"));
  EXPECT_EQ(report.storages, 0u);
  ASSERT_EQ(report.kept.size(), 3u) << report.text();
  EXPECT_NE(report.text().find("\"w0\" is in the same list of a Repeat as \"w1\""),
            std::string::npos)
      << report.text();
}

// The mixture gives layers of one Repeat different formats. The result is that of the dequantized
// weights.
TEST_P(Quantized, LayersOfARepeatHaveFormatsOfTheirOwn) {
  constexpr int kLayers = 8;
  const std::string name = "model.layers.{}.mlp.down_proj.weight";
  Model m;
  const ParameterList list = must(m.parameters(name, kLayers, Dims{32, 32}, Init::normal(0.2f)));
  GraphBuilder g(m, "forward");
  const Value x = g.input("x", DType::f32, {1, 32});
  g.output("y", g.repeat(kLayers, {x}, [&](GraphBuilder& b, const std::vector<Value>& carried) {
    return std::vector<Value>{b.op("Linear", {carried[0], b.parameter(list)})};
  })[0]);
  ASSERT_OK(g.finish());
  ASSERT_OK(m.materialize(1));
  ASSERT_OK(m.to(device_));
  ASSERT_EQ(must(quantize(m, "q4_k_m")).storages, 8u);
  std::string formats;
  for (const StorageInfo& s : must(m.describe()).storages) {
    formats += s.encoding + " ";
  }
  // of blocks of 32, because the rows are short
  EXPECT_EQ(formats, "q8_0 q5_0 q5_0 q8_0 q5_0 q5_0 q8_0 q8_0 ");
  const auto run = [&] {
    Floats in(32, 0.5f), out(32);
    const Dims shape = {1, 32};
    Session session = must(Session::create(m, device_, "forward", {}));
    const Tensor inputs[] = {tensor("x", shape, in)};
    const Tensor outputs[] = {tensor("y", shape, out)};
    EXPECT_OK(session.run(inputs, outputs));
    return out;
  };
  const Floats mixed = run();
  ASSERT_EQ(must(dequantize(m)).storages, 8u);
  const Floats right = run();
  for (size_t i = 0; i < right.size(); ++i) {
    EXPECT_NEAR(mixed[i], right[i], 1e-4f * std::abs(right[i]) + 1e-5f) << i;
  }
}

// Names decide, and rows of whole blocks get K formats.
TEST(Quantize, AMixtureDependsOnTheUseOfAWeight) {
  Model m;
  for (int i = 0; i < 2; ++i) {
    for (const char* part : {"self_attn.v_proj", "self_attn.q_proj", "mlp.down_proj"}) {
      must(m.parameter(format("model.layers.{}.{}.weight", i, part), {2, 256}, Init::normal(1)));
    }
  }
  const Parameter table = must(m.parameter("model.embed_tokens.weight", {2, 256}, Init::normal(1)));
  must(m.tied_parameter("lm_head.weight", table));
  must(m.parameter("transformer.h.0.attn.c_attn.weight", {2, 256}, Init::normal(1)));
  must(m.parameter("other.weight", {2, 256}, Init::normal(1)));
  ASSERT_OK(m.materialize(1));
  ASSERT_EQ(must(quantize(m, "q4_k_m")).storages, 9u);
  std::string formats;
  for (const StorageInfo& s : must(m.describe()).storages) {
    formats += s.encoding + " ";
  }
  EXPECT_EQ(formats, "q4_k q4_k q4_k q6_k q4_k q6_k q6_k q5_k q4_k ");
}

TEST(Quantize, NoCastMakesANumberInfinite) {
  Floats numbers(64, 0.5f);
  numbers[3] = 70001;
  Model plain = of_rows(2, numbers);
  const std::string refused = std::string(plain.cast(DType::f16).status().message());
  EXPECT_NE(refused.find("Element 3 (70001) would be infinite in f16. Cast it to bf16."),
            std::string::npos)
      << refused;
  EXPECT_EQ(values(plain, "embed"), numbers);
  EXPECT_OK(plain.cast(DType::bf16).status());
  Model codes = of_rows(2, numbers);
  ASSERT_EQ(must(quantize(codes, "int8")).storages, 1u);
  EXPECT_FALSE(codes.cast(DType::f16).ok());
  EXPECT_EQ(must(dequantize(codes, "*", DType::f16)).kept.size(), 1u);
}

}  // namespace
}  // namespace bowline::test
