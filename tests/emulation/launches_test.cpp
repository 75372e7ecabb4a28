// The number of launches of GPT-2 124M, as the importer builds it, and what may follow a product in
// one launch.
#include "emulation/launches.h"

#include <map>

namespace bowline::test {
namespace {

struct Batch {
  int64_t rows;
  int64_t tokens;
};

// A step on an H200. With 256 tokens, it spends most of its time on launches.
Launches launches_of_a_step(std::optional<DType> compute, const std::string& library = "",
                            const Batch& batch = {1, 256}, const Gpt2Shape& shape = kGpt2Shape) {
  const Device planning = must(Device::open("planning:cuda-emu@90x132" + library));
  Gpt2 gpt(shape);
  EXPECT_OK(gpt.model.to(planning));
  TrainOptions o;
  o.dims = {{"batch", batch.rows}, {"seq", batch.tokens}};
  o.precision.compute_dtype = compute;
  const Trainer trainer = must(Trainer::create(gpt.model, planning, o));
  Launches out;
  for (const SegmentInfo& segment : must(trainer.describe()).segments) {
    if (segment.name == "accumulate" || segment.name == "update") {
      add_records(segment, out);
    }
  }
  return out;
}

// The limits may only decrease.
TEST(Launches, OfATrainingStep) {
  const Launches f32 = launches_of_a_step({});
  EXPECT_LE(f32.count, 253u) << f32.listing;
  const Launches bf16 = launches_of_a_step(DType::bf16);
  EXPECT_LE(bf16.count, 253u) << bf16.listing;
  for (const Launches& step : {f32, bf16}) {
    EXPECT_NE(
        step.listing.find("1 x FusedCrossEntropy: [weight of all rows] [fused cross entropy]\n"),
        std::string::npos)
        << step.listing;
    EXPECT_EQ(step.listing.find("CrossEntropyGrad"), std::string::npos) << step.listing;
  }
}

size_t count(const std::string& text, std::string_view part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++n;
  }
  return n;
}

// All products of a small step are the library's, except those before Gelu and before its gradient.
TEST(Launches, OfATrainingStepWithTheLibrary) {
  const Launches bf16 = launches_of_a_step(DType::bf16, "+cublaslt");
  EXPECT_LE(bf16.count, 253u) << bf16.listing;
  EXPECT_GE(count(bf16.listing, "[cublasLtMatmul]\n"), 10u) << bf16.listing;
  EXPECT_EQ(count(bf16.listing, "12 x FusedMatMul: [tensor product]\n"), 2u) << bf16.listing;
  EXPECT_EQ(count(bf16.listing, "[tensor product]"), 2u) << bf16.listing;
}

// All products of a large step are the library's, on lines of whole packs, also with the vocabulary
// of GPT-2, which is odd.
TEST(Launches, OfALargeTrainingStepWithTheLibrary) {
  Gpt2Shape shape = kGpt2Shape;
  shape.vocabulary = 50257;
  const Launches bf16 = launches_of_a_step(DType::bf16, "+cublaslt", {4, 1024}, shape);
  EXPECT_EQ(count(bf16.listing, "[tensor product]"), 0u) << bf16.listing;
  EXPECT_EQ(count(bf16.listing, "unaligned rows"), 0u) << bf16.listing;
  EXPECT_EQ(count(bf16.listing,
                  "1 x FusedLinearCrossEntropy: [a copy with zeros] [weight of all rows] "
                  "[cublasLtMatmul] [fused cross entropy] [cublasLtMatmul]"),
            1u)
      << bf16.listing;
  EXPECT_EQ(count(bf16.listing, "[fused cross entropy]"), 8u) << bf16.listing;
  EXPECT_EQ(count(bf16.listing, "12 x Gelu: "), 1u) << bf16.listing;
  EXPECT_EQ(count(bf16.listing, "12 x GeluGrad: "), 1u) << bf16.listing;
}

// The launches of a training step, by operator, of a recurrent layer with its product of the gates.
std::map<std::string, size_t> launches_of_a_layer(const char* op, int64_t gates, int reset_after) {
  constexpr int64_t kSteps = 128, kRows = 16, kUnits = 256;
  const Device planning = must(Device::open("planning:cuda-emu@90x132"));
  Model model;
  GraphBuilder g(model, "loss");
  const auto weight = [&](const char* name) {
    return g.parameter(must(model.parameter(name, {gates * kUnits, kUnits}, Init::normal(0.1f))));
  };
  const Value h = g.input("h", DType::f32, {kRows, kUnits});
  const Value x = g.input("x", DType::f32, {kSteps, kRows, kUnits});
  std::vector<Value> inputs = {g.op("Linear", {x, weight("w_ih")}), weight("w_hh"), h};
  std::vector<Attribute> attributes;
  if (gates == 4) {
    inputs.push_back(h);
  } else {
    attributes.push_back({"reset_after", reset_after});
  }
  const Value y = g.op(op, inputs, attributes);
  g.output("loss", g.op("ReduceSum", {g.op("Square", {y})}));
  EXPECT_OK(g.finish());
  EXPECT_OK(model.to(planning));
  const Trainer trainer = must(Trainer::create(model, planning, TrainOptions()));
  std::map<std::string, size_t> out;
  for (const SegmentInfo& segment : must(trainer.describe()).segments) {
    for (const RecordInfo& r : segment.records) {
      if (segment.name == "accumulate") {
        out[r.op] += r.kernels.size();
      }
    }
  }
  return out;
}

// One launch for all products of the gates and one for all time steps.
TEST(Launches, OfARecurrentLayer) {
  const auto lstm = launches_of_a_layer("Lstm", 4, 0);
  EXPECT_EQ(lstm.at("Linear"), 1u);
  EXPECT_EQ(lstm.at("Lstm"), 1u);
  EXPECT_EQ(lstm.at("LstmGrad"), 1u);
  for (const int reset_after : {0, 1}) {
    const auto gru = launches_of_a_layer("Gru", 3, reset_after);
    EXPECT_EQ(gru.at("Linear"), 1u);
    EXPECT_EQ(gru.at("Gru"), 1u);
    EXPECT_EQ(gru.at("GruGrad"), 1u);
  }
}

TEST(Launches, OfAToken) { limit_launches_of_a_token("planning:cuda-emu@90x132", 81, 80); }

// What may follow a product in one launch, and what may not. Both devices compute the same.
class Followed : public testing::Test {
 protected:
  // Builds the outputs of product y with `add` and returns the listing on cuda-emu.
  template <class F>
  std::string listing_of(F&& add) {
    std::vector<float> results[2];
    std::string listing;
    for (const char* const name : {"cpu", "cuda-emu:0"}) {
      const Device device = must(Device::open(name));
      Model m;
      const Parameter w = must(m.parameter("w", {6, 8}, Init::normal(1)));
      const Parameter bias = must(m.parameter("bias", {8}, Init::normal(1)));
      GraphBuilder g(m, "forward");
      const Value x = g.input("x", DType::f32, {20, 6});
      const Value addend = g.input("addend", DType::f32, {20, 8});
      for (const Value& v :
           add(g, g.op("MatMul", {x, g.parameter(w)}), g.parameter(bias), addend)) {
        g.output(format("y{}", outputs_++), v);
      }
      EXPECT_OK(g.finish());
      EXPECT_OK(m.materialize(1));
      EXPECT_OK(m.to(device));
      Session session = must(Session::create(m, device, "forward", {}));
      run(session, results[name == std::string("cpu") ? 0 : 1]);
      listing = must(session.listing("forward"));
    }
    for (size_t i = 0; i < results[0].size(); ++i) {
      EXPECT_NEAR(results[0][i], results[1][i], 1e-5f) << i;
    }
    return listing;
  }

 private:
  void run(Session& session, std::vector<float>& results) {
    std::vector<float> x(120), addend(160);
    for (size_t i = 0; i < addend.size(); ++i) {
      addend[i] = static_cast<float>(i % 11) / 8 - 0.5f;
      x[i % 120] = static_cast<float>(i % 7) / 4 - 0.75f;
    }
    std::vector<std::vector<float>> y(static_cast<size_t>(outputs_), std::vector<float>(160));
    std::vector<Tensor> outputs;
    for (int i = 0; i < outputs_; ++i) {
      outputs.push_back(tensor(names_[i], {20, 8}, y[static_cast<size_t>(i)]));
    }
    EXPECT_OK(session.run(std::vector{tensor("x", {20, 6}, x), tensor("addend", {20, 8}, addend)},
                          outputs));
    for (const std::vector<float>& part : y) {
      results.insert(results.end(), part.begin(), part.end());
    }
    outputs_ = 0;
  }

  static constexpr const char* names_[] = {"y0", "y1", "y2"};
  int outputs_ = 0;
};

TEST_F(Followed, ByABiasAnAddendAndGelu) {
  const std::string added = listing_of([](GraphBuilder& g, Value y, Value bias, Value addend) {
    return std::vector{g.op("Add", {addend, g.op("Add", {y, bias})})};
  });
  EXPECT_NE(added.find("FusedMatMul"), std::string::npos) << added;
  EXPECT_EQ(added.find("Add("), std::string::npos) << added;
  const std::string curved = listing_of([](GraphBuilder& g, Value y, Value bias, Value) {
    const Value v = g.op("Add", {y, bias});
    return std::vector{g.op("Gelu", {v}, {{"form", "tanh"}}), v};
  });
  EXPECT_EQ(curved.find("Gelu("), std::string::npos) << curved;
}

TEST_F(Followed, ByNothingIfAnotherReaderNeedsTheProduct) {
  const std::string listing = listing_of([](GraphBuilder& g, Value y, Value bias, Value) {
    return std::vector{y, g.op("Add", {y, bias})};
  });
  EXPECT_NE(listing.find("Add("), std::string::npos) << listing;
  const std::string doubled = listing_of([](GraphBuilder& g, Value y, Value, Value) {
    return std::vector{g.op("Add", {y, y})};
  });
  EXPECT_NE(doubled.find("Add("), std::string::npos) << doubled;
}

}  // namespace
}  // namespace bowline::test
