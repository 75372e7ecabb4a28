// What the plan of a few rows fuses with a norm and with the writes of a KV cache, and what it must
// not fuse. A fused plan computes what the CPU computes, whose plans are not fused.
#include "emulation/gpt2.h"
#include "generate/decoder_model.h"

namespace bowline::test {
namespace {

constexpr int64_t kWidth = 16;

// A graph whose input x has some rows of kWidth elements.
struct Rows {
  Model model;
  GraphBuilder g{model, "forward"};
  Value x;
  int outputs = 0;

  explicit Rows(int64_t rows) : x(g.input("x", DType::f32, {1, rows, kWidth})) {}
  Value weight(const std::string& name, const Dims& shape) {
    return g.parameter(must(model.parameter(name, shape, Init::normal(0.5f))));
  }
  Value norm() { return g.op("RmsNorm", {x, weight("gamma", {kWidth})}); }
  Value layer_norm() {
    return g.op("LayerNorm", {x, weight("gamma", {kWidth}), weight("beta", {kWidth})});
  }
  Value linear(Value v, const std::string& name, int64_t n) {
    return g.op("Linear", {v, weight(name, {n, kWidth})});
  }
  void output(Value v) { g.output(format("y{}", outputs++), v); }
};

class NormFusion : public testing::Test {
 protected:
  // Builds a graph, compares its results on cuda-emu and the CPU, and returns its listing.
  static std::string listing_of(
      int64_t rows, const std::function<void(Rows&)>& build,
      const std::function<void(Model&)>& quantize_some = [](Model&) {}) {
    Floats results[2];
    std::string listing;
    for (const char* const name : {"cpu", "cuda-emu:0"}) {
      const Device device = must(Device::open(name));
      Rows r(rows);
      build(r);
      EXPECT_OK(r.g.finish());
      EXPECT_OK(r.model.materialize(3));
      quantize_some(r.model);
      EXPECT_OK(r.model.to(device));
      Session session = must(Session::create(r.model, device, "forward", {}));
      results[name == std::string("cpu") ? 0 : 1] = run_with_x(session, {1, rows, kWidth});
      listing = must(session.listing("forward"));
    }
    EXPECT_EQ(results[0].size(), results[1].size());
    for (size_t i = 0; i < results[0].size(); ++i) {
      EXPECT_NEAR(results[0][i], results[1][i], 2e-5f * (1 + std::abs(results[0][i]))) << i;
    }
    return listing;
  }
  // Whether the listing has a node of this operator.
  static bool has(const std::string& listing, const std::string& op) {
    return listing.find(" " + op + "(") != std::string::npos;
  }
};

TEST_F(NormFusion, WithTheProductsThatReadTheNorm) {
  const std::string listing = listing_of(1, [](Rows& r) {
    const Value h = r.norm();
    r.output(r.linear(h, "q", 16));
    r.output(r.linear(h, "k", 8));
    r.output(r.linear(h, "v", 8));
  });
  EXPECT_TRUE(has(listing, "FusedNormMatMul")) << listing;
  EXPECT_FALSE(has(listing, "RmsNorm") || has(listing, "Linear")) << listing;
}

TEST_F(NormFusion, WithAGate) {
  for (const bool gate_is_second : {false, true}) {
    const std::string listing = listing_of(3, [&](Rows& r) {
      const Value h = r.norm();
      const Value a = r.linear(h, "a", 24), b = r.linear(h, "b", 24);
      r.output(gate_is_second ? r.g.op("Mul", {a, r.g.op("Silu", {b})})
                              : r.g.op("Mul", {r.g.op("Silu", {a}), b}));
    });
    EXPECT_TRUE(has(listing, "FusedNormMatMul")) << listing;
    EXPECT_FALSE(has(listing, "Mul") || has(listing, "Silu")) << listing;
  }
}

TEST_F(NormFusion, WithBiasesAndAnActivation) {
  for (const char* const activation : {"Gelu", "Silu", "Relu"}) {
    const std::string listing = listing_of(2, [&](Rows& r) {
      const Value v = r.g.op("MatMul", {r.layer_norm(), r.weight("w", {kWidth, 24})});
      r.output(r.g.op(activation, {r.g.op("Add", {v, r.weight("bias", {24})})}));
    });
    EXPECT_TRUE(has(listing, "FusedNormMatMul")) << listing;
    EXPECT_FALSE(has(listing, "Add") || has(listing, activation)) << listing;
  }
}

TEST_F(NormFusion, WithASplit) {
  const std::string listing = listing_of(2, [](Rows& r) {
    const Value v = r.g.op("MatMul", {r.layer_norm(), r.weight("w", {kWidth, 24})});
    (void)r.g.op("Split", {v}, {{"axis", -1}, {"sizes", {8, 4, 12}}});
    for (const Value& part : r.g.last_outputs()) {
      r.output(part);
    }
  });
  EXPECT_TRUE(has(listing, "FusedNormMatMul")) << listing;
  EXPECT_FALSE(has(listing, "Split")) << listing;
}

// Weights that are stored in different ways take a launch each.
TEST_F(NormFusion, WithWeightsOfDifferentEncodings) {
  const auto quantize_some = [](Model& m) {
    must(quantize(m, "int8 block row", "q"));
    must(quantize(m, "int4 block 8", "v"));
  };
  for (const bool transposed : {false, true}) {
    const std::string listing = listing_of(
        2,
        [&](Rows& r) {
          const Value h = r.layer_norm();
          for (const char* const name : {"q", "k", "v"}) {
            const Dims shape = transposed ? Dims{24, kWidth} : Dims{kWidth, 24};
            r.output(r.g.op("MatMul", {h, r.weight(name, shape)}, {{"transpose_b", transposed}}));
          }
        },
        quantize_some);
    EXPECT_TRUE(has(listing, "FusedNormMatMul")) << listing;
    EXPECT_FALSE(has(listing, "LayerNorm")) << listing;
  }
  const std::string gated = listing_of(
      2,
      [](Rows& r) {
        const Value h = r.norm();
        const Value q = r.linear(h, "q", 24), v = r.linear(h, "v", 24);
        r.output(r.g.op("Mul", {r.g.op("Silu", {q}), v}));
      },
      quantize_some);
  EXPECT_TRUE(has(gated, "FusedNormMatMul") && has(gated, "Mul")) << gated;
}

TEST_F(NormFusion, NotOfANormWithOtherReaders) {
  const std::string returned = listing_of(1, [](Rows& r) {
    const Value h = r.norm();
    r.output(r.linear(h, "q", 16));
    r.output(h);
  });
  EXPECT_FALSE(has(returned, "FusedNormMatMul")) << returned;
  const std::string added = listing_of(1, [](Rows& r) {
    const Value h = r.norm();
    r.output(r.g.op("Add", {r.linear(h, "q", 16), h}));
  });
  EXPECT_FALSE(has(added, "FusedNormMatMul")) << added;
}

TEST_F(NormFusion, NotOfManyRows) {
  const std::string listing = listing_of(9, [](Rows& r) { r.output(r.linear(r.norm(), "q", 8)); });
  EXPECT_FALSE(has(listing, "FusedNormMatMul")) << listing;
}

// The sums have another reader, so the activation, the gate and the Split stay.
TEST_F(NormFusion, NotWithReadersOfSumsThatAreReadTwice) {
  const std::string activated = listing_of(1, [](Rows& r) {
    const Value v = r.linear(r.norm(), "up", 24);
    r.output(r.g.op("Silu", {v}));
    r.output(v);
  });
  EXPECT_TRUE(has(activated, "FusedNormMatMul") && has(activated, "Silu")) << activated;
  const std::string gated = listing_of(1, [](Rows& r) {
    const Value h = r.norm();
    const Value a = r.linear(h, "a", 24), b = r.linear(h, "b", 24);
    r.output(r.g.op("Mul", {r.g.op("Silu", {a}), b}));
    r.output(b);
  });
  EXPECT_TRUE(has(gated, "FusedNormMatMul") && has(gated, "Mul")) << gated;
  const std::string divided = listing_of(1, [](Rows& r) {
    const Value v = r.linear(r.norm(), "w", 24);
    (void)r.g.op("Split", {v}, {{"axis", -1}, {"sizes", {8, 16}}});
    const std::vector<Value> parts = r.g.last_outputs();
    r.output(parts[0]);
    r.output(parts[1]);
    r.output(v);
  });
  EXPECT_TRUE(has(divided, "FusedNormMatMul") && has(divided, "Split")) << divided;
}

// A step of attention with a cache of keys and values. Positions of queries and keys have a base.
struct CachedStep {
  Model model;

  CachedStep(double q_base, double k_base, bool reads_turned_keys) {
    const ParameterList keys = cache("k"), values = cache("v");
    GraphBuilder g(model, "forward");
    const Value x = g.input("x", DType::f32, {1, 1, 3, 8});
    const Value positions = g.input("positions", DType::i32, {1});
    const auto y = g.repeat(2, {x}, [&](GraphBuilder& b, const std::vector<Value>& in) {
      const Value at = b.capture(positions);
      const Value q = b.op("Rope", {in[0], at}, {{"base", q_base}});
      const Value k = b.op("Rope", {b.op("Neg", {in[0]}), at}, {{"base", k_base}});
      const auto cached = [&](const ParameterList& list, Value rows) {
        const Value flat = b.op("Reshape", {rows}, {{"dims", {1, 3, 8}}});
        const Value all = b.op("WriteRows", {b.parameter(list), flat}, {{"axis", 0}});
        return b.op("Reshape", {all}, {{"dims", {1, 5, 3, 8}}});
      };
      const Value written = cached(keys, k);
      const Value o = b.op("Attention", {q, written, cached(values, in[0])});
      return std::vector<Value>{reads_turned_keys ? b.op("Add", {o, k}) : o};
    });
    g.output("y", y.at(0));
    EXPECT_OK(g.finish());
  }
  ParameterList cache(const std::string& name) {
    return must(
        model.parameters(name + "{}", 2, {5, 3, 8}, Init::normal(1), StorageRole::kv_cache));
  }
};

class CacheFusion : public NormFusion {
 protected:
  static std::string listing_of(double q_base, double k_base, bool reads_turned_keys = false) {
    Floats results[2];
    std::string listing;
    for (const char* const name : {"cpu", "cuda-emu:0"}) {
      const Device device = must(Device::open(name));
      CachedStep step(q_base, k_base, reads_turned_keys);
      EXPECT_OK(step.model.materialize(3));
      EXPECT_OK(step.model.to(device));
      Session session = must(Session::create(step.model, device, "forward", {}));
      Floats& all = results[name == std::string("cpu") ? 0 : 1];
      for (const uint32_t position : {1u, 2u}) {
        Floats x(24), y(24);
        for (size_t i = 0; i < x.size(); ++i) {
          x[i] = static_cast<float>((i * 37 + position) % 101) / 50 - 1;
        }
        std::vector<int32_t> at = {static_cast<int32_t>(position)};
        std::vector<Tensor> outputs = {tensor("y", {1, 1, 3, 8}, y)};
        const std::vector<StepScalar> words = {{"position", position}};
        EXPECT_OK(
            session.run(std::vector{tensor("x", {1, 1, 3, 8}, x), tensor("positions", {1}, at)},
                        outputs, words));
        all.insert(all.end(), y.begin(), y.end());
      }
      for (const char* const cache : {"k0", "k1", "v0", "v1"}) {
        const Floats state = values(step.model, cache);
        all.insert(all.end(), state.begin(), state.end());
      }
      listing = must(session.listing("forward"));
    }
    EXPECT_EQ(results[0].size(), results[1].size());
    for (size_t i = 0; i < results[0].size(); ++i) {
      EXPECT_NEAR(results[0][i], results[1][i], 1e-5f) << i;
    }
    return listing;
  }
};

TEST_F(CacheFusion, WithTheRotationOfKeysAndQueries) {
  const std::string listing = listing_of(10000, 10000);
  EXPECT_TRUE(has(listing, "FusedWriteRows")) << listing;
  EXPECT_FALSE(has(listing, "Rope") || has(listing, "WriteRows")) << listing;
}

TEST_F(CacheFusion, NotWithRotationsThatDiffer) {
  const std::string listing = listing_of(10000, 100);
  EXPECT_TRUE(has(listing, "FusedWriteRows") && has(listing, "Rope")) << listing;
  EXPECT_FALSE(has(listing, "WriteRows")) << listing;
}

TEST_F(CacheFusion, NotWithARotationThatIsReadTwice) {
  const std::string listing = listing_of(10000, 10000, true);
  EXPECT_TRUE(has(listing, "FusedWriteRows") && has(listing, "Rope")) << listing;
}

// Whole models: some tokens, with caches that are longer than a part of the keys.
TEST(DecodeFusion, GivesTheLogitsOfTheCpu) {
  for (const int64_t context : {8, 200}) {
    Floats results[2];
    for (const char* const name : {"cpu", "cuda-emu:0"}) {
      const Device device = must(Device::open(name));
      Gpt2 gpt({2, 16, 2, 29, 16});
      gpt.add_decode();
      EXPECT_OK(gpt.model.materialize(1));
      EXPECT_OK(gpt.model.resize("cache.*", context).status());
      EXPECT_OK(gpt.model.to(device));
      const BoundDim length = {"kv_length", context};
      Session session = must(Session::create(gpt.model, device, "decode", {&length, 1}));
      for (int32_t i = 0; i < 3; ++i) {
        std::vector<int32_t> token = {7 * i + 2}, at = {i};
        Floats logits(29);
        const std::vector<Tensor> outputs = {tensor("logits", {1, 29}, logits)};
        const std::vector<StepScalar> words = {{"position", static_cast<uint32_t>(i)},
                                               {"kv_length", static_cast<uint32_t>(i + 1)}};
        EXPECT_OK(
            session.run(std::vector{tensor("tokens", {1, 1}, token), tensor("positions", {1}, at)},
                        outputs, words));
        Floats& all = results[name == std::string("cpu") ? 0 : 1];
        all.insert(all.end(), logits.begin(), logits.end());
      }
    }
    for (size_t i = 0; i < results[0].size(); ++i) {
      EXPECT_NEAR(results[0][i], results[1][i], 1e-4f) << i;
    }
  }
}

}  // namespace
}  // namespace bowline::test
