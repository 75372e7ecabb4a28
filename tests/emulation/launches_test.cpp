// The number of launches of GPT-2 124M, as the importer builds it, and what may follow a product in
// one launch.
#include "train/tiny_lm.h"

namespace bowline::test {
namespace {

constexpr int64_t kLayers = 12, kWidth = 768, kHeads = 12, kVocabulary = 50304, kPositions = 1024;

struct Gpt2 {
  Model model;
  Parameter tokens, positions, head, norm, norm_bias;
  ParameterList norm1, norm1_bias, qkv, qkv_bias, out, out_bias, norm2, norm2_bias, up, up_bias,
      down, down_bias;

  Gpt2() {
    const Init draw = Init::normal(0.1f);
    tokens = must(model.parameter("wte", {kVocabulary, kWidth}, draw));
    head = must(model.tied_parameter("lm_head", tokens));
    positions = must(model.parameter("wpe", {kPositions, kWidth}, draw));
    norm = must(model.parameter("ln_f.weight", {kWidth}, Init::ones()));
    norm_bias = must(model.parameter("ln_f.bias", {kWidth}, Init::zeros()));
    const auto list = [&](const std::string& name, const Dims& shape) {
      return must(model.parameters("h.{}." + name, kLayers, shape, draw));
    };
    norm1 = list("ln_1.weight", {kWidth});
    norm1_bias = list("ln_1.bias", {kWidth});
    qkv = list("attn.c_attn.weight", {kWidth, 3 * kWidth});
    qkv_bias = list("attn.c_attn.bias", {3 * kWidth});
    out = list("attn.c_proj.weight", {kWidth, kWidth});
    out_bias = list("attn.c_proj.bias", {kWidth});
    norm2 = list("ln_2.weight", {kWidth});
    norm2_bias = list("ln_2.bias", {kWidth});
    up = list("mlp.c_fc.weight", {kWidth, 4 * kWidth});
    up_bias = list("mlp.c_fc.bias", {4 * kWidth});
    down = list("mlp.c_proj.weight", {4 * kWidth, kWidth});
    down_bias = list("mlp.c_proj.bias", {kWidth});
    add_loss();
  }

  Value layer(GraphBuilder& b, Value x) const {
    const auto product = [&](Value v, const ParameterList& w, const ParameterList& bias) {
      return b.op("Add", {b.op("MatMul", {v, b.parameter(w)}), b.parameter(bias)});
    };
    const Value h = b.op("LayerNorm", {x, b.parameter(norm1), b.parameter(norm1_bias)});
    (void)b.op("Split", {product(h, qkv, qkv_bias)},
               {{"axis", -1}, {"sizes", {kWidth, kWidth, kWidth}}});
    const std::vector<Value> split = b.last_outputs();
    const auto heads = [&](Value v) {
      return b.op("Reshape", {v}, {{"dims", {"batch", "seq", kHeads, kWidth / kHeads}}});
    };
    const Value q = heads(split.at(0)), k = heads(split.at(1)), v = heads(split.at(2));
    const Value a = b.op("Attention", {q, k, v}, {{"causal", 1}});
    const Value merged = b.op("Reshape", {a}, {{"dims", {"batch", "seq", kWidth}}});
    const Value y = b.op("Add", {x, product(merged, out, out_bias)});
    const Value n = b.op("LayerNorm", {y, b.parameter(norm2), b.parameter(norm2_bias)});
    const Value f = b.op("Gelu", {product(n, up, up_bias)}, {{"form", "tanh"}});
    return b.op("Add", {y, product(f, down, down_bias)});
  }

  void add_loss() {
    GraphBuilder g(model, "loss");
    const Value ids = g.input("tokens", DType::i32, {"batch", "seq"});
    const Value labels = g.input("labels", DType::i32, {"batch", "seq"});
    const Value at =
        g.op("Slice", {g.parameter(positions)}, {{"axis", 0}, {"start", 0}, {"length", "seq"}});
    const Value x0 = g.op("Add", {g.op("Embedding", {g.parameter(tokens), ids}), at});
    const auto x = g.repeat(kLayers, {x0}, [&](GraphBuilder& b, const std::vector<Value>& in) {
      return std::vector<Value>{layer(b, in[0])};
    });
    const Value h = g.op("LayerNorm", {x.at(0), g.parameter(norm), g.parameter(norm_bias)});
    g.output("loss", g.op("CrossEntropy", {g.op("Linear", {h, g.parameter(head)}), labels}));
    EXPECT_OK(g.finish());
  }
};

struct Launches {
  uint64_t count = 0;
  std::string listing;  // by record: how often it runs, and its launches
};

void add_records(const SegmentInfo& segment, Launches& to) {
  uint32_t runs = 1;
  for (const RecordInfo& r : segment.records) {
    if (r.kind != RecordInfo::Kind::op) {
      runs = r.kind == RecordInfo::Kind::repeat_begin ? r.count : 1;
      continue;
    }
    to.listing += format("{} x {}:", runs, r.op);
    for (const std::string& kernel : r.kernels) {
      to.listing += format(" [{}]", kernel);
    }
    to.listing += "\n";
  }
  to.count += segment.launches;
}

// A step of 256 tokens on an H200, which spends most of its time on launches.
Launches launches_of_a_step(std::optional<DType> compute) {
  const Device planning = must(Device::open("planning:cuda-emu@90x132"));
  Gpt2 gpt;
  EXPECT_OK(gpt.model.to(planning));
  TrainOptions o;
  o.dims = {{"batch", 1}, {"seq", 256}};
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
  EXPECT_LE(f32.count, 419u) << f32.listing;
  const Launches bf16 = launches_of_a_step(DType::bf16);
  EXPECT_LE(bf16.count, 470u) << bf16.listing;
}

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
